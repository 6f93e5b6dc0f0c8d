// A primary behind an address, and hot standbys that confirm each of its commits and can be
// promoted in its place.
import { chown, mkdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { chooseLaunch, commandOf } from '../../src/embedded/as-unprivileged.ts'
import { openDataDir } from '../../src/embedded/data-dir.ts'
import { until } from '../process/until.ts'
import { type Binaries, findLocalPostgres, isProgram } from '../services/binaries.ts'
import {
  openDatabase,
  type PrivatePostgres,
  startPrivatePostgres,
  startTcpProxy,
  type TcpProxy,
} from '../services/index.ts'
import { run } from '../services/processes.ts'
import { startWorld, type World } from './postgres-fault.ts'

export interface Standby extends PrivatePostgres {
  /** It takes writes, and the address leads to it. */
  promote(): Promise<void>
  /** Stops it; the primary goes on alone. */
  retire(): Promise<void>
}

export interface Pair {
  /** Set it after a failover. */
  primary: PrivatePostgres
  /**
   * What a proxy in front of Postgres, or its DNS name, is. Connections that are open stay where
   * they are.
   */
  address: TcpProxy
  /** Its instance reaches Postgres by the address. */
  world: World
  /** Of the present primary. It outlives its test, since it may be the primary of the next one. */
  startStandby(): Promise<Standby>
}

/**
 * Null, with a skipped assertion, where there is no pg_basebackup: the Postgres that npm installs
 * has none.
 */
export async function startPair(t: Test): Promise<Pair | null> {
  const binaries = await findLocalPostgres()
  if (!binaries || !(await isProgram(baseBackupOf(binaries)))) {
    t.pass('failover to a standby', { skip: 'there is no pg_basebackup on this machine' })
    return null
  }
  const primary = await startPrivatePostgres(t)
  const address = await startTcpProxy(t, primary.url)
  const world = await startWorld(t, address.url)
  const pair: Pair = { primary, address, world, startStandby: () => startStandby(t, binaries, pair) }
  return pair
}

/** Resolves once the primary commits nothing that this has not received. */
async function startStandby(t: Test, binaries: Binaries, { primary, address }: Pair): Promise<Standby> {
  const server = await startPrivatePostgres(t, (folder) => copy(binaries, folder, primary.port))
  const sql = openDatabase(t, primary.url)
  const setConfirmed = async (by: '*' | '') => {
    await sql`alter system set synchronous_standby_names = ${sql.unsafe(`'${by}'`)}`
    await sql`select pg_reload_conf()`
  }
  await setConfirmed('*')
  await until('the standby confirms what is committed', async () => {
    const [row] = await sql`select from pg_stat_replication where sync_state = 'sync'`
    return row !== undefined
  })
  return Object.assign(server, {
    async retire() {
      await setConfirmed('')
      await server.stop()
    },
    async promote() {
      const sql = openDatabase(t, server.url)
      // The copy of a primary that had a standby waits for one, too.
      await sql`alter system set synchronous_standby_names = ''`
      await sql`select pg_promote()`
      await sql.end()
      address.retarget(server.url)
    },
  })
}

/** As an operator does it, or a provider whose disk is full: existing connections stay open. */
export async function makeReadOnly(t: Test, url: string): Promise<void> {
  const sql = openDatabase(t, url)
  await sql`alter system set default_transaction_read_only = on`
  await sql`select pg_reload_conf()`
  await until('it takes no writes', async () => {
    const [row] = await sql`show transaction_read_only`
    return row!.transaction_read_only === 'on'
  })
}

const baseBackupOf = ({ postgres }: Binaries) => join(dirname(postgres), 'pg_basebackup')

/** The primary's data as they are, with where to stream the rest from. */
async function copy(binaries: Binaries, folder: string, port: number): Promise<void> {
  const dir = openDataDir(folder)
  const { launch } = chooseLaunch(binaries, dir)
  await mkdir(dir.cluster, { mode: 0o700 })
  if (launch.owner !== null) await chown(dir.cluster, launch.owner, launch.owner)
  const from = ['-D', dir.cluster, '-h', '127.0.0.1', '-p', String(port), '-U', 'postgres']
  const how = [
    '--write-recovery-conf',
    '--wal-method=stream',
    '--checkpoint=fast',
    '--no-sync',
    '--no-manifest',
  ]
  const [command, args] = commandOf(launch, baseBackupOf(binaries), [...from, ...how])
  await run(command, args, { ...launch.as, env: binaries.env, cwd: dir.path })
}
