/** A hot standby of a private Postgres that confirms each of its commits, to be promoted in its place. */
import { access, chown, constants, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { chooseLaunch, commandOf } from '../../src/embedded/as-unprivileged.ts'
import { openDataDir } from '../../src/embedded/data-dir.ts'
import { until } from '../process/until.ts'
import { type Binaries, findLocalPostgres, forcedSource } from '../services/binaries.ts'
import type { PrivatePostgres } from '../services/index.ts'
import { freePort } from '../services/ports.ts'
import { startPostgres } from '../services/postgres.ts'
import { startPrivateServer } from '../services/private-server.ts'
import { run } from '../services/processes.ts'

import { connectTo } from './postgres-world.ts'

export interface Standby extends PrivatePostgres {
  /** Answers once it takes writes. */
  promote(): Promise<void>
  /** Stops it; the primary goes on alone. */
  retire(): Promise<void>
}

/** Null where there is no pg_basebackup: the Postgres that npm installs has none. */
export async function findBaseBackup(): Promise<Binaries | null> {
  const binaries = forcedSource() === 'npm' ? null : await findLocalPostgres()
  if (!binaries) return null
  return access(join(binaries.directory, 'pg_basebackup'), constants.X_OK).then(
    () => binaries,
    () => null,
  )
}

/** Answers once the primary commits nothing that this has not received, so that nothing answered is lost with it. */
export async function startStandby(
  t: Test,
  binaries: Binaries,
  primary: Pick<PrivatePostgres, 'url' | 'port'>,
): Promise<Standby> {
  const port = await freePort()
  let copied = false
  const server = await startPrivateServer(t, 'standby', async (folder) => {
    if (!copied) await copy(binaries, folder, primary.port)
    copied = true
    return startPostgres(binaries, folder, port)
  })
  const sql = connectTo(t, primary.url)
  const confirmed = async (by: '*' | '') => {
    await sql`alter system set synchronous_standby_names = ${sql.unsafe(`'${by}'`)}`
    await sql`select pg_reload_conf()`
  }
  await confirmed('*')
  await until('the standby confirms what is committed', async () => {
    const [row] = await sql`select from pg_stat_replication where sync_state = 'sync'`
    return row !== undefined
  })

  const url = `postgres://postgres@127.0.0.1:${port}/postgres`
  return Object.assign(server, {
    url,
    port,
    async retire() {
      await confirmed('')
      await server.stop()
    },
    async promote() {
      const sql = connectTo(t, url)
      // The copy of a primary that had a standby waits for one too.
      await sql`alter system set synchronous_standby_names = ''`
      await sql`select pg_promote()`
      await sql.end()
    },
  })
}

/** As an operator does it, or a provider whose disk is full: existing connections stay open. */
export async function makeReadOnly(t: Test, url: string): Promise<void> {
  const sql = connectTo(t, url)
  await sql`alter system set default_transaction_read_only = on`
  await sql`select pg_reload_conf()`
  await until(
    'it takes no writes',
    async () => (await sql`show transaction_read_only`)[0]!.transaction_read_only === 'on',
  )
}

/** The primary's data as they are, with where to stream the rest from. */
async function copy(binaries: Binaries, folder: string, port: number): Promise<void> {
  const dir = openDataDir(folder)
  const { launch } = chooseLaunch(binaries, dir)
  await mkdir(dir.cluster, { mode: 0o700 })
  if (launch.owner !== null) await chown(dir.cluster, launch.owner, launch.owner)
  const from = ['-h', '127.0.0.1', '-p', String(port), '-U', 'postgres']
  const how = [
    '--write-recovery-conf',
    '--wal-method=stream',
    '--checkpoint=fast',
    '--no-sync',
    '--no-manifest',
  ]
  const program = join(binaries.directory, 'pg_basebackup')
  const [command, args] = commandOf(launch, program, ['-D', dir.cluster, ...from, ...how])
  await run(command, args, { ...launch.as, env: binaries.env, cwd: dir.path })
}
