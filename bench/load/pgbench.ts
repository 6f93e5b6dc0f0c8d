/** Load from pgbench: what Postgres does when nothing but the statements themselves is sent to it. */
import { execFile, spawnSync } from 'node:child_process'
import { mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { hitOf, type Load } from './load.ts'

export interface Work {
  databaseUrl: string
  folder: string
  /** One statement each, after `\set` lines. If there are several, each transaction picks one. */
  scripts: string[]
  /** Variables of the scripts. */
  variables?: Record<string, string>
  /** What a transaction counts for: the keys it looks up. */
  perTransaction?: number
  /** How far `:at` may count. It starts at 0, and no two transactions have the same. */
  end?: number
}

/** Null if it is not on PATH. */
export const pgbenchVersion = (): string | null =>
  /^pgbench \(PostgreSQL\) (\S+)/.exec(
    spawnSync('pgbench', ['--version'], { encoding: 'utf8' }).stdout ?? '',
  )?.[1] ?? null

export function pgbenchLoad(work: Work): Load {
  let first = 0
  return {
    name: 'pgbench',
    async shoot({ connections, seconds }) {
      const { log, perS } = await run(work, first, connections, seconds)
      const transactions = log.map((line) => line.split(' ').map(Number))
      first += connections * (1 + transactions.reduce((most, [, nth]) => Math.max(most, nth!), 0))
      if (first > (work.end ?? Number.POSITIVE_INFINITY)) throw new Error('pgbench: the keys were too few')
      const latenciesMs = transactions.map(([, , us]) => us! / 1000)
      // pgbench ends with an error if a statement fails.
      return hitOf(latenciesMs, {
        requests: latenciesMs.length * (work.perTransaction ?? 1),
        seconds: latenciesMs.length / perS,
      })
    },
  }
}

/** `log`: a line for each transaction: its client, its number with that client, microseconds. */
async function run(work: Work, first: number, clients: number, seconds: number) {
  const folder = await mkdtemp(join(work.folder, 'pgbench-'))
  const files = work.scripts.map((_, i) => join(folder, `${i}.sql`))
  // A variable belongs to one client, which counts its own transactions.
  const numbered = `\\set at ${first} + :i * ${clients} + :client_id\n\\set i :i + 1\n`
  await Promise.all(files.map((file, i) => writeFile(file, numbered + work.scripts[i])))
  const variables = Object.entries({ i: '0', ...work.variables })
  const running = promisify(execFile)('pgbench', [
    '--no-vacuum',
    '--protocol=prepared',
    `--client=${clients}`,
    '--jobs=1',
    `--time=${seconds}`,
    '--log',
    `--log-prefix=${join(folder, 'log')}`,
    ...files.map((file) => `--file=${file}`),
    ...variables.map(([name, value]) => `--define=${name}=${value}`),
    work.databaseUrl,
  ])
  const end = () => running.child.kill()
  process.once('exit', end)
  const { stdout } = await running.finally(() => process.off('exit', end))
  const perS = Number(/^tps = ([\d.]+) \(without/m.exec(stdout)?.[1])
  const log = (await readdir(folder)).find((name) => name.startsWith('log'))!
  return { log: (await readFile(join(folder, log), 'utf8')).trim().split('\n'), perS }
}
