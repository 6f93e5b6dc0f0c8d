// One Postgres on loopback, fast because its data need not survive the machine.
import { chown, mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { chooseLaunch, commandOf } from '../../src/embedded/as-unprivileged.ts'
import { openDataDir } from '../../src/embedded/data-dir.ts'
import { type Binaries, findAnyPostgres } from './binaries.ts'
import { freePort } from './ports.ts'
import { launch, type PrivateServer, type ServerProcess, startPrivateServer } from './private-server.ts'
import { run } from './processes.ts'

/**
 * synchronous_commit stays on, so that commits wait for each other as in production; only the disk
 * is not waited for. 300 connections: two test files at a time, each with several instances and
 * their pools.
 */
export const postgresSettings: Record<string, string> = {
  fsync: 'off',
  synchronous_commit: 'on',
  full_page_writes: 'off',
  max_connections: '300',
  shared_buffers: '32MB',
}

export const asArguments = (settings: Record<string, string>) =>
  Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])

export interface PrivatePostgres extends PrivateServer {
  /** Superuser, database `postgres`. */
  readonly url: string
  readonly port: number
}

/**
 * A Postgres of the test's own, from this machine's binaries or npm's. `prepare` puts data into the
 * folder before the first start; without it the first start creates them.
 */
export async function startPrivatePostgres(
  t: Test,
  prepare: (folder: string) => Promise<unknown> = async () => {},
): Promise<PrivatePostgres> {
  const port = await freePort()
  let prepared = false
  const server = await startPrivateServer(t, 'postgres', async (folder) => {
    if (!prepared) await prepare(folder)
    prepared = true
    return startPostgres(await findAnyPostgres(folder), folder, port)
  })
  return Object.assign(server, { url: `postgres://postgres@127.0.0.1:${port}/postgres`, port })
}

/** Superuser `postgres` without a password: it is on loopback, for one run. */
export async function startPostgres(
  binaries: Binaries,
  folder: string,
  port: number,
): Promise<ServerProcess> {
  const dir = openDataDir(folder)
  const { launch: unprivileged } = chooseLaunch(binaries, dir)
  const { owner, as } = unprivileged
  if ((await mkdir(dir.cluster, { recursive: true, mode: 0o700 })) !== undefined) {
    if (owner !== null) await chown(dir.cluster, owner, owner)
    const how = ['-U', 'postgres', '--auth=trust', '--encoding=UTF8', '--no-locale', '--no-sync']
    const [command, args] = commandOf(unprivileged, binaries.initdb, ['-D', dir.cluster, ...how])
    await run(command, args, { ...as, env: binaries.env, cwd: dir.path })
  }
  const settings = { ...postgresSettings, listen_addresses: '127.0.0.1', unix_socket_directories: '' }
  const words = ['-D', dir.cluster, '-p', String(port), ...asArguments(settings)]
  const [command, args] = commandOf(unprivileged, binaries.postgres, words)
  return launch({
    ...{ command, args, folder: dir.path, mark: dir.cluster, env: binaries.env, as },
    ready: (pid) => saysReady(join(dir.cluster, 'postmaster.pid'), pid),
  })
}

/**
 * As pg_ctl does: the eighth line of its pid file. The first must be this process, not one that was
 * killed before.
 */
async function saysReady(file: string, pid: number): Promise<boolean> {
  const lines = (await readFile(file, 'utf8').catch(() => '')).split('\n')
  return Number(lines[0]) === pid && (lines[7] ?? '').startsWith('ready')
}
