/** Each operation over HTTP, and its statement in pgbench, with the same number of clients. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import postgres, { type Sql } from 'postgres'
import type { Load } from '../load/load.ts'
import { pgbenchLoad } from '../load/pgbench.ts'
import type { Subject } from '../measure.ts'
import type { Table } from '../outcome.ts'
import { throughputRatio } from '../ratios.ts'
import type { Database, Rig } from '../rig.ts'
import { inRounds } from '../rounds.ts'
import type { Candidate } from '../servers/candidate.ts'
import {
  expressions,
  keyId,
  keysPerUser,
  type Operation,
  operations,
  placeOf,
  placeScript,
  requestId,
  sample,
  staying,
  userId,
  usersAtOnce,
} from './kinds.ts'
import { pgbenchStatement, poolOn, recordStatements, storesOn } from './statements.ts'
import { besideOf, figures, withoutHttp } from './without-http.ts'

const connections = 16
/** A connection of pgbench counts what it has inserted when it ends. */
const countedMsMax = 5000
/** Each round revokes keys, so it needs its own. */
const roundsMax = 4
/** The keys to revoke last three times as long at 2000 a second. */
const secondsMax = 4

export async function besidePgbench(rig: Rig, database: Database): Promise<Table> {
  const [rounds, seconds] = [Math.min(rig.rounds, roundsMax), Math.min(rig.seconds, secondsMax)]
  const sql = postgres(database.url, { max: 1, fetch_types: false })
  try {
    await seedRefusals(sql, database)
    const one = await rig.start('latchkey', database)
    const subjects: Subject[] = []
    for (const operation of operations)
      subjects.push(
        await overHttp(rig, database, one, operation, rounds),
        await inPgbench(rig, database, sql, operation),
      )
    const results = await inRounds(rig, subjects, { rounds, seconds })
    await rig.stopCandidates()
    return {
      title: 'Operations',
      about: `${connections} connections, ${rounds} rounds of ${seconds} s. Requests come from ${usersAtOnce} users in turn, who have ${keysPerUser} keys each or more. \`pgbench\`: the statement of that request, with as many clients.`,
      results,
      ratios: operations.map(({ name }) => throughputRatio(results, name, besideOf(name))),
      figures,
    }
  } finally {
    await sql.end()
  }
}

const usersOf = ({ count }: Database) => count / keysPerUser

/** What `audit find` finds: a refusal of each key that stays. */
async function seedRefusals(sql: Sql, database: Database): Promise<void> {
  const { audit } = storesOn(poolOn(sql))
  const keys = usersOf(database) * staying.count
  for (let n = 0; n < keys; n += usersAtOnce)
    await audit.recordRefusals(
      Array.from({ length: usersAtOnce }, (_, i) => {
        const { user, key } = placeOf(n + i, staying)
        return {
          requestId: requestId(key),
          reason: 'revoked',
          keyId: keyId(key),
          userId: userId(user),
          method: 'GET',
          path: '/v1/verify',
          ip: '127.0.0.1',
          userAgent: null,
          details: null,
        }
      }),
    )
  await sql`vacuum analyze audit_log`
}

async function overHttp(
  rig: Rig,
  database: Database,
  instance: Candidate,
  { name, request, body = '', http, onlyOnce = false, isOps }: Operation,
  rounds: number,
): Promise<Subject> {
  const tokens = (await readFile(database.tokensFile, 'utf8')).split('\n')
  const users = onlyOnce ? usersOf(database) : usersAtOnce
  const lines = Array.from({ length: users * http.count }, (_, n) => {
    const place = placeOf(n, http)
    return `${request(place)} ${tokens[place.caller]} ${body}`.trimEnd()
  })
  const callsFile = join(rig.folder, `calls-${name}`)
  await writeFile(callsFile, `${lines.join('\n')}\n`)
  // The warm-up is round 0.
  const count = onlyOnce ? Math.floor(lines.length / (rounds + 1)) : lines.length
  return {
    name,
    url: isOps ? instance.opsUrl! : instance.url,
    processes: [instance],
    tokensFile: callsFile,
    tokens: (round) => ({ first: onlyOnce ? round * count : 0, count }),
    onlyOnce,
    connections,
  }
}

async function inPgbench(
  rig: Rig,
  database: Database,
  sql: Sql,
  { name, call, pgbench, onlyOnce, isChange }: Operation,
): Promise<Subject> {
  const users = onlyOnce ? usersOf(database) : usersAtOnce
  const [statement] = await recordStatements(database.url, [(stores) => call(stores, sample)])
  const load = pgbenchLoad({
    databaseUrl: database.url,
    folder: rig.folder,
    scripts: [placeScript(users, pgbench) + pgbenchStatement(statement!, expressions)],
    ...(onlyOnce && { end: users * pgbench.count }),
  })
  return withoutHttp(besideOf(name), isChange ? audited(load, sql) : load, connections)
}

/** A statement that changes nothing, because it names no key, would only look fast. */
const audited = (load: Load, sql: Sql): Load => ({
  ...load,
  async shoot(shot) {
    const before = await changesIn(sql)
    const hit = await load.shoot(shot)
    const endMs = performance.now() + countedMsMax
    while ((await changesIn(sql)) < before + hit.requests) {
      if (performance.now() > endMs) throw new Error('pgbench: fewer audit entries than changes')
      await pause(20)
    }
    return hit
  },
})

async function changesIn(sql: Sql): Promise<number> {
  const [row] = await sql`
    select n_tup_ins::float8 as made from pg_stat_user_tables where relname = 'audit_changes'`
  return row!.made
}
