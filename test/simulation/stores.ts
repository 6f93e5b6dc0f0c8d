/** What src/postgres does, on the model of Postgres. */
import { runPublished } from '../../src/postgres/published.ts'
import { silenceMs } from '../../src/rules/clock-rates.ts'
import { keyState } from '../../src/rules/key-state.ts'
import type { AuditLog, InstanceStore, KeyStore, KeyUse, KeyVersion, Publish } from '../../src/stores.ts'
import type { Instance, World } from './instance.ts'
import { createModelPool, keysAt, nameOf, type PostgresServer, type Statement } from './postgres.ts'
import type { Change, Pool } from './schedule.ts'
import { startMs } from './time.ts'

export interface Stores {
  keys: Pick<KeyStore, 'findByHash' | 'touch'>
  audit: Pick<AuditLog, 'recordRefusals'>
  instances: Pick<InstanceStore, 'fences' | 'report' | 'remove'>
  /** Resolves to the versions that were answered. */
  changeKey(publish: Publish, keyId: string, change: Change): Promise<KeyVersion[]>
}

/** As in src/wiring/pools.ts. */
const timeouts: Record<Pool, number> = {
  ...{ lookups: 1000, management: 1100, background: 5000, refusals: 1200, reports: 1000 },
}

export function createStores(world: World, instance: Instance): Stores {
  const { time, chance, postgres: server, trace } = world
  const { process, links } = instance
  const pool = (name: Pool) =>
    createModelPool(time, chance, process, { server, link: links[name], timeoutMs: timeouts[name], trace })
  const [lookups, management, background, refusals, reports] = [
    ...[pool('lookups'), pool('management'), pool('background'), pool('refusals'), pool('reports')],
  ] as const
  const statement =
    (on: ReturnType<typeof pool>): Statement =>
    (run, what) =>
      on.run((sql) => (sql as unknown as Statement)(run, what))

  return {
    keys: {
      findByHash(hashes) {
        instance.lookups++
        return statement(lookups)(
          (server, nowS) => ({
            found: keysAt(server, instance.reads.hasUntilMs(time.nowMs))
              .filter(({ hash }) => hashes.includes(hash))
              .map((key) => ({ ...key, nowS })),
            role: instance.reads.role,
            server: nameOf(server),
          }),
          ({ found }) => found.map(({ id, version }) => `reads version ${version} of ${id}`).join(', '),
        )
      },
      touch(uses) {
        const sent = uses.map(({ key, atS }) => ({ key: { ...key }, atS }))
        return statement(background)(
          (server, nowS) => ({ confirmed: touched(server, sent), skipped: [], nowS, server: nameOf(server) }),
          ({ confirmed }) => (confirmed.length > 0 ? `confirms ${confirmed.join(', ')}` : undefined),
        )
      },
    },
    audit: {
      recordRefusals: (records) =>
        statement(refusals)(({ audit }) => {
          for (const { requestId } of records) audit.add(requestId)
        }),
    },
    instances: instanceStore(world, statement(management), statement(reports)),
    changeKey: (publish, keyId, change) =>
      runPublished<KeyVersion[]>({ pool: management, lane: null, publish }, async (sql, committed) => {
        const versions = await (sql as unknown as Statement)(
          (server, nowS) => changed(server, nowS, keyId, change),
          (versions) => versions.map((one) => `commits version ${one.version} of ${one.keyId}`).join(', '),
        )
        committed(versions)
        return versions
      }),
  }
}

/** As sql/postgres/029.do.confirm-on-request.sql. */
function touched({ keys, uses }: PostgresServer, given: KeyUse[]): string[] {
  const stored = given.filter(({ key: { id }, atS }) => (uses.get(id) ?? 0) < atS)
  for (const { key, atS } of stored) uses.set(key.id, atS)
  return stored.flatMap(({ key: known }) => {
    const key = keys.get(known.id)!
    const isConfirmed =
      known.refreshing &&
      key.version === known.version &&
      key.rateLimitRpm === known.rateLimitRpm &&
      key.expiresAt === known.expiresAt &&
      key.revokedAt === null &&
      !key.ownerDeleted
    return isConfirmed ? [key.id] : []
  })
}

/** As src/postgres/keys.ts and users.ts: what must be published. */
function changed(
  { keys, past, changes }: PostgresServer,
  nowS: number,
  keyId: string,
  change: Change,
): KeyVersion[] {
  const untilMs = nowS * 1000 - startMs
  const some = change === 'delete owner' ? [...keys.values()] : [keys.get(keyId)!]
  if (change === 'delete owner' && !some[0]!.ownerDeleted) changes.push(some[0]!.userId)
  return some.flatMap((key) => {
    past.push({ untilMs, key: { ...key } })
    if (change === 'delete owner') key.ownerDeleted = true
    if (key.revokedAt !== null)
      return change === 'revoke' || change === 'delete owner' ? [{ keyId: key.id, version: key.version }] : []
    if (change === 'keep' && keyState(key, nowS) === 'expired') return []
    key.version++
    changes.push(key.id)
    if (change === 'revoke') key.revokedAt = nowS
    if (change === 'expire') key.expiresAt ??= nowS + 2
    if (change === 'keep') key.expiresAt = null
    if (change === 'limit') key.rateLimitRpm = key.rateLimitRpm === 5 ? 8 : 5
    return [{ keyId: key.id, version: key.version }]
  })
}

/** As src/postgres/instances.ts; changes that nobody may ask about are deleted at once. */
const instanceStore = (
  { time, outageTtlMs, silentMaxMs }: World,
  management: Statement,
  reports: Statement,
): Stores['instances'] => ({
  fences: {
    raise: () =>
      management(
        (server) => ++server.fence,
        (fence) => `raises fence ${fence}`,
      ),
    passed: (fence) =>
      management(
        ({ instances }) =>
          [...instances.values()].every(
            (one) => one.fence >= fence || one.seenMs <= time.nowMs - silenceMs(outageTtlMs),
          ),
        (passed) => `fence ${fence} ${passed ? 'has' : 'has not'} passed`,
      ),
  },
  report({ id }, { fence, since }) {
    let before: number | undefined
    return reports(
      (server, nowS) => {
        const { changes, instances } = server
        const row = instances.get(id)
        before = row?.fence
        const [epoch, seen] = since?.split(' ') ?? []
        const asked = epoch === nameOf(server) ? Number(seen) : -1
        const isKept = row && row.seenMs > time.nowMs - silentMaxMs && row.changesSince <= asked
        instances.set(id, { seenMs: time.nowMs, fence, changesSince: isKept ? asked : changes.length })
        const changed = isKept ? changes.slice(asked).filter((one) => one !== null) : null
        const known = `${nameOf(server)} ${changes.length}`
        deleteChanges(server, time.nowMs - 2 * silentMaxMs)
        return { fence: server.fence, changes: { server: nameOf(server), known, nowS, changed } }
      },
      ({ fence: latest }) =>
        before === fence ? undefined : `reports fence ${fence}, the latest is ${latest}`,
    )
  },
  remove: (id) =>
    reports(
      ({ instances }) => void instances.delete(id),
      () => 'removes itself',
    ),
})

/** As `drop_key_changes`. */
function deleteChanges({ changes, instances }: PostgresServer, seenAfterMs: number) {
  const asking = [...instances.values()].filter(({ seenMs }) => seenMs > seenAfterMs)
  changes.fill(null, 0, Math.min(changes.length, ...asking.map(({ changesSince }) => changesSince)))
}
