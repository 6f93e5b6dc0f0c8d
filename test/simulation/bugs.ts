/** Deliberate bugs, as patches of the compiled source. The simulation must find each of them. */

export interface Bug {
  name: string
  file: string
  from: string
  to: string
}

const of = (file: string, ...bugs: [name: string, from: string, to: string][]): Bug[] =>
  bugs.map(([name, from, to]) => ({ name, file, from, to }))

const decide = of(
  'src/guard/decide.ts',
  ['the version is not checked', 'version <= key.version &&', ''],
  [
    'a lease counts as a confirmation',
    "typeof version === 'number' &&\n        version <= key.version",
    "(typeof version !== 'number' || version <= key.version)",
  ],
  ['a copy is trusted that no counter confirms', 'trust.degradedCacheTtlMs', 'trust.cacheTtlMs'],
  ['a confirmed copy never grows old', 'ageMs < trust.cacheTtlMs)\n', 'true)\n'],
  ['an old copy is used despite a fence', 'readAtMs >= oldCopies.fromMs', 'true'],
  ['an old copy is used without a report', 'monoMs < oldCopies.untilMs', 'true'],
  [
    'no copy is used while Postgres is down',
    "'refresh_ahead' : 'read_or_go_on'",
    "'read_first' : 'read_first'",
  ],
  ['an old copy is used for as long as it is confirmed', 'monoMs - readAtMs < outageTtlMs', 'true'],
  ['a copy outlives its key', 'monoMs < key.expiresAtMonoMs &&\n        key.readAtMs', 'key.readAtMs'],
  ['a first read ignores the version', 'minVersionOf(version) <= key.version &&', ''],
  ['a copy outlives a change of server', 'key.readAtMs >= trust.invalidBeforeMs', 'true'],
)

const gate = of(
  'src/guard/gate.ts',
  [
    'a version is confirmed from the cache',
    'const { nowMs } = reply;',
    "const { nowMs } = reply; if (typeof version === 'string') counter.confirm({ keyId: key.id, version: key.version }, version);",
  ],
  [
    'a key that was read again is not used',
    'admit(found.key, count, reply.nowMs)',
    'admit(key, count, reply.nowMs)',
  ],
  ['a read that lacks the change is used', 'found.key.version < minVersion', 'false'],
  ['nothing is ever confirmed', "if (typeof version === 'string')", 'if (false)'],
  [
    'a read of one request serves the others',
    '{ ...key, ownReadOf: key }',
    'Object.assign(key, { ownReadOf: key })',
  ],
  ['a first read from a standby is enough', "role === 'primary' ? { ...key", 'true ? { ...key'],
  [
    'a standby that may lack a change confirms its version',
    "found.role === 'primary' && found.key.version >= minVersionOf(version)",
    'found.key.version >= minVersionOf(version)',
  ],
  [
    'a read in the background confirms a lower version',
    "found.role === 'primary' && found.key.version >= minVersionOf(version)",
    "found.role === 'primary'",
  ],
  ['a version that Postgres has lost stays confirmed', 'counter.raise([', '((_) => { })(['],
  [
    'a standby is trusted without a version',
    "found.role !== 'primary' && minVersion === 0",
    "found.role === 'read_only' && minVersion === 0",
  ],
  [
    'a former primary is trusted without a version',
    "found.role !== 'primary' && minVersion === 0",
    "found.role === 'standby' && minVersion === 0",
  ],
)

const reader = of(
  'src/guard/key-reader.ts',
  [
    'the age of a copy starts at the reply',
    'readAtMs, server: readFrom });',
    'readAtMs: performance.now(), server: readFrom });',
  ],
  ['a refused key is admitted', 'credential === undefined || denied !== null', 'credential === undefined'],
  [
    'a look-up is shared with a request that came before',
    'lookups.add(hashes)',
    '(lookups[hashes.hash] ??= lookups.add(hashes).finally(() => delete lookups[hashes.hash]))',
  ],
  ['a version is confirmed by a read before its lease', 'key.readAtMs > askedAtMs', 'true'],
  [
    'a standby that lacks a change refuses a usable key',
    "denied !== null && role !== 'primary' && !isFinal(denied)",
    'false',
  ],
  ['a copy of a standby is renewed by the primary', "role === 'primary' ? server : ''", 'server'],
)

const renewal = [
  ...of(
    'src/guard/last-used.ts',
    [
      'a copy is renewed as of the reply',
      'renew(writing.get(keyId).key, beganMs, touched)',
      'renew(writing.get(keyId).key, performance.now(), touched)',
    ],
    [
      'a copy is renewed that Postgres does not confirm',
      'for (const keyId of touched.confirmed)',
      'for (const keyId of writing.keys())',
    ],
  ),
  ...of('src/guard/key-cache.ts', [
    'a renewed copy expires as the last one',
    'key.expiresAtMonoMs = expiryOf',
    'expiryOf',
  ]),
  ...of('test/simulation/stores.ts', [
    'a use confirms whatever is known of its key',
    'key.version === known.version',
    'true || key.version',
  ]),
]

const unchanged = of(
  'src/guard/unchanged.ts',
  ['a changed key counts as unchanged', 'hasChangedSince(key.id, key.readAtMs) ||', ''],
  ['a copy is unchanged as of the reply', 'latest.asOfMs = askedAtMs', 'latest.asOfMs = nowMs'],
  [
    'a read during the question is said to have seen the change',
    'changedAtMs.set(id, nowMs)',
    'changedAtMs.set(id, askedAtMs)',
  ],
  ['a read before the first reply counts as unchanged', 'fromMs = nowMs', 'fromMs = 0'],
  ['a copy from another Postgres counts as unchanged', 'key.server !== changes.server ||', ''],
)

const reports = of(
  'test/simulation/stores.ts',
  ['a change that is no longer kept counts as none', ' && row.changesSince <= asked', ''],
  ['a report after a long silence lists the changes since', 'row.seenMs > time.nowMs - silentMaxMs', 'true'],
)

const oldCopies = of(
  'src/guard/old-copies.ts',
  ['an instance without old copies reports all the time', 'outageTtlMs > 0 && ', ''],
  ['a fence keeps nothing out', 'allowed.fromMs = sentAtMs', 'allowed.fromMs = 0'],
  [
    'an instance that nobody waits for goes on with old copies',
    'performance.now() >= countedUntilMs',
    'false',
  ],
)

const publication = [
  ...of(
    'src/guard/publish.ts',
    ['an unconfirmed change is answered at once', 'pause(agedMs', 'pause(0'],
    ['nobody waits for the fence', 'fences === null ||', 'true ||'],
    ['a fence that Postgres cannot tell of counts as reported', 'catch {', 'catch { if (fence) return true;'],
    ['an unconfirmed change counts as confirmed', 'if (!isConfirmed)', 'if (false)'],
    ['an unconfirmed change waits for half the time', 'pause(agedMs', 'pause(agedMs / 2'],
  ),
  ...of(
    'src/rules/clock-rates.ts',
    [
      'a copy ages by our own clock',
      'elsewhereMs = (ms) => ms * (1 + rateDifferenceMax)',
      'elsewhereMs = (ms) => ms',
    ],
    [
      'silence is measured by the clock of Postgres',
      'elsewhereMs(outageTtlMs) + silenceMarginMs',
      'outageTtlMs',
    ],
  ),
  ...of(
    'src/redis/counter.ts',
    ['a failed publication counts as confirmed', 'return false;', 'return true;'],
    [
      'a publication is not waited for',
      'await withTimeout(Promise.all(raised)',
      'withTimeout(Promise.all(raised)',
    ],
    ['another server goes unnoticed', 'nowMs()));\n                    onOtherServer();', 'nowMs()));'],
  ),
  ...of('test/simulation/stores.ts', [
    'the deletion of a user leaves out keys that are revoked',
    'committed(versions)',
    "committed(versions.filter((one) => change !== 'delete owner' || !world.postgres.keys.get(one.keyId).revokedAt))",
  ]),
  ...of('src/postgres/published.ts', ['a change is answered before it is published', 'await published;', '']),
  ...of(
    'test/simulation/stores.ts',
    ['a silent instance is not waited for', 'one.seenMs <=', 'true ||'],
    [
      'a change is published before it is committed',
      'const versions = await',
      'committed([{ keyId, version: 99 }]); const versions = await',
    ],
  ),
]

const standstill = [
  ...of(
    'src/redis/standstill.ts',
    [
      'many short standstills go unnoticed',
      '> known + standstillMinMs',
      '> (known = Math.max(known, nowMs - monoMs - 149)) + standstillMinMs',
    ],
    ['a clock that is set back hides a standstill', '|| atMostMs < known - standstillMinMs', ''],
  ),
  ...of('test/simulation/instance.ts', [
    'after a standstill, old copies are used',
    'oldCopies.startOver();',
    '',
  ]),
]

const scripts = of(
  'test/simulation/redis-server.ts',
  ['a key without a version is confirmed', 'return lease;', 'return 1;'],
  ['every lease has the same token', 'const lease = `0', 'const lease = `0?1.1` || `0'],
  ['a version is confirmed without its lease', 'if (get(name) === lease)', ''],
  ['a publication leaves a version alone', 'const known = Math.max', 'return; const known = Math.max'],
  ['a publication lowers a version', 'Math.max(raised,', 'raised || Math.max('],
  ['hits of one key overwrite each other', 'Number(get(counter) ?? 0) + some', 'some'],
)

const counting = [
  ...of(
    'src/redis/shard.ts',
    [
      'an increment without a reply is repeated',
      'withTimeout(sent, answerTimeoutMs)',
      'withTimeout(sent, answerTimeoutMs).catch(() => withTimeout(count(hits, () => true), answerTimeoutMs))',
    ],
    ['a late reply answers again', 'setImmediate(remember, hits, reply)', 'answer(hits, reply, sending)'],
    ['a late reply overtakes an earlier one', 'setImmediate(remember, hits, reply)', 'remember(hits, reply)'],
    ['a clock that has stood still goes unnoticed', 'if (stoodStill(timeIn(reply), sentAtMs))', 'if (false)'],
    ['the window is that of the own clock', 'seconds * 1000 + Math.floor(micros / 1000)', 'now()'],
    ['a late call counts in a later minute', 'minuteOf(nowMs() + answerTimeoutMs)', 'Infinity'],
    [
      'hits that wait to be sent are lost when Redis goes down',
      'for (const hits of calls.take())',
      'calls.take(); for (const hits of [])',
    ],
    ['a local count starts at zero', 'lastCounts.add(keyId, minuteOf(reply.nowMs), 1)', '1'],
  ),
  ...of('src/redis/servers.ts', ['a lost connection goes unnoticed', "onLost('');", '']),
  ...of('src/memory/minute-counts.ts', [
    'a count that Redis has lost starts again',
    'Math.max((known ?? 0) + hits, shared)',
    'shared || (known ?? 0) + hits',
  ]),
  ...of('src/redis/hits.ts', ['hits of one call share a number', 'next[index]++;', '']),
  ...of('src/redis/calls.ts', ['a turn stays in flight', 'turnsInFlight--;', '']),
  ...of('src/redis/with-timeout.ts', ['a call has no time limit', 'setImmediate(giveUp)', '{}']),
  ...of('src/redis/server-state.ts', [
    'an outage never ends',
    "state.mode = 'shared';\n        state.outage",
    'state.outage',
  ]),
]

const answers = [
  ...of('src/package/check.ts', [
    'the limit refuses nothing',
    'overLimit(counted), counted',
    'null, counted',
  ]),
  ...of('plugins/verdict.ts', [
    'a 401 does not wait for its record',
    'await record()',
    'record().catch(() => { })',
  ]),
  ...of('src/guard/refusals.ts', [
    'a refusal is not waited for',
    'await batcher.add(refusal)',
    'batcher.add(refusal)',
  ]),
  ...of('src/guard/refusals.ts', [
    'a refusal that failed counts as recorded',
    'finally {',
    'catch { } finally {',
  ]),
  ...of('src/guard/batcher.ts', ['a batch stays in flight', 'inFlight.delete(batch);', '']),
]

export const bugs: Bug[] = [
  ...decide,
  ...gate,
  ...reader,
  ...renewal,
  ...unchanged,
  ...reports,
  ...oldCopies,
  ...publication,
  ...standstill,
  ...scripts,
  ...counting,
  ...answers,
]
