/**
 * Keys used for the first time, beside the statement that looks them up: over HTTP, and the look-ups
 * by themselves, without HTTP, counting and last uses.
 */
import postgres from 'postgres'
import { lookupBatchMax } from '../../src/guard/key-reader.ts'
import { poolBounds } from '../../src/wiring/pools.ts'
import { coldLookUps } from '../benchmarks/cold.ts'
import { pgbenchLoad } from '../load/pgbench.ts'
import { connections, type Subject } from '../measure.ts'
import { atLeast, type Table, type Target } from '../outcome.ts'
import { ratio, throughputRatio } from '../ratios.ts'
import { shown } from '../report/columns.ts'
import type { Database, Rig } from '../rig.ts'
import type { Candidate } from '../servers/candidate.ts'
import { lookUpLoad } from './look-up-load.ts'
import { pgbenchStatement, recordStatements } from './statements.ts'
import { besideOf, figures, withoutHttp } from './without-http.ts'

const [overHttp, alone] = ['latchkey', 'look-ups'] as const
const clients = poolBounds.lookups.max
const shareMin = 0.8
/** pgbench takes 128 scripts at most. */
const batchesMax = 100
/** They are on the command line of pgbench, so it repeats few keys, which makes it faster. */
const hashesMax = 10_000

export async function firstLookUps(
  rig: Rig,
  database: Database,
): Promise<{ table: Table; targets: Target[] }> {
  const found = { size: 0, perRequest: 0 }
  const { results, rounds, seconds } = await coldLookUps(rig, database, {
    names: [overHttp],
    async beside([one]) {
      Object.assign(found, await batches(one!))
      const load = lookUpLoad(database)
      rig.stopWithCandidates(() => load.close())
      return [
        await pgbench(rig, database, overHttp, found.size),
        withoutHttp(alone, load, clients * lookupBatchMax),
        await pgbench(rig, database, alone, lookupBatchMax),
      ]
    },
  })
  const about = [
    `\`${overHttp}\` uses no key twice, so there are only ${rounds} rounds, of ${seconds} s: ${connections} connections, GET /v1/verify. It looks up about ${found.size} keys in a statement, and each key ${found.perRequest.toFixed(1)} times.`,
    `\`${alone}\`: the code that looks up keys, with ${lookupBatchMax} keys in a statement. It starts over after ${shown(database.count, 0)} keys.`,
    `\`pgbench\`: that statement, with as many keys and the ${clients} connections of the service. It repeats the same ${shown(hashesMax, 0)} keys at most, which favours it. Requests are keys; a latency is that of the statement.`,
  ].join(' ')
  const share = (name: string) => ratio(results, 'requestsPerS', name, besideOf(name))
  return {
    table: {
      title: 'Each key for the first time',
      about,
      results,
      ratios: [overHttp, alone].map((name) => throughputRatio(results, name, besideOf(name))),
      figures,
    },
    targets: [
      atLeast('keys used for the first time, by look-ups of pgbench', share(overHttp), shareMin, '×'),
      atLeast('look-ups without HTTP, by those of pgbench', share(alone), shareMin, '×'),
    ],
  }
}

/** Look-ups since the start: how many to a statement, and to a request. */
async function batches({ opsUrl }: Candidate) {
  const metrics = await (await fetch(`${opsUrl}/metrics`)).text()
  const of = (figure: string, batch: string) =>
    Number(new RegExp(`^latchkey_batch_size_${figure}\\{batch="${batch}"\\} (\\S+)`, 'm').exec(metrics)![1])
  const lookUps = of('sum', 'lookups')
  return { size: Math.round(lookUps / of('count', 'lookups')), perRequest: lookUps / of('sum', 'counter') }
}

async function pgbench(rig: Rig, { url }: Database, name: string, size: number): Promise<Subject> {
  const count = Math.min(batchesMax, Math.floor(hashesMax / size))
  const sql = postgres(url, { max: 1 })
  // As the tokens come: rows side by side, with hashes from all over the index.
  const rows = await sql`
    select encode(key_hash, 'hex') as hash from api_keys order by id limit ${count * size}`
  await sql.end()
  const statements = await recordStatements(
    url,
    Array.from({ length: count }, (_, i) => {
      const hashes = rows.slice(i * size, (i + 1) * size).map(({ hash }) => hash)
      return ({ keys }) => keys.findByHash(hashes)
    }),
  )
  const load = pgbenchLoad({
    databaseUrl: url,
    folder: rig.folder,
    scripts: statements.map(({ text }, i) =>
      pgbenchStatement({ text, parameters: ['batch'] }, new Map([['batch', `:batch${i}`]])),
    ),
    variables: Object.fromEntries(
      statements.map(({ parameters }, i) => [`batch${i}`, String(parameters[0])]),
    ),
    perTransaction: size,
  })
  return withoutHttp(besideOf(name), load, clients)
}
