// One Postgres, on loopback, quick because nothing of it needs to survive the machine.
import { chown, mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { chooseLaunch, commandOf } from '../../src/embedded/as-unprivileged.ts'
import { openDataDir } from '../../src/embedded/data-dir.ts'
import type { Binaries } from './binaries.ts'
import { run } from './processes.ts'
import { launch, type ServerProcess } from './server-process.ts'

/**
 * synchronous_commit stays on, so that commits wait for each other as they do in production; only the disk is not waited for.
 * 300 connections: two test files at a time, each with several instances and their pools.
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

/** Makes the cluster in `folder` at the first start. Superuser `postgres`, no password: it is on loopback for one run. */
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
  const [command, args] = commandOf(unprivileged, binaries.postgres, [
    ...['-D', dir.cluster, '-p', String(port)],
    ...asArguments(settings),
  ])
  return launch({
    command,
    args,
    folder: dir.path,
    mark: dir.cluster,
    env: binaries.env,
    as,
    ready: (pid) => saysReady(join(dir.cluster, 'postmaster.pid'), pid),
  })
}

/** As pg_ctl does: the eighth line of its pid file. The first must be this process, not one that was killed before. */
async function saysReady(file: string, pid: number): Promise<boolean> {
  const lines = (await readFile(file, 'utf8').catch(() => '')).split('\n')
  return Number(lines[0]) === pid && (lines[7] ?? '').startsWith('ready')
}
