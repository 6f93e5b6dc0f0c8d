// Postgres and Redis from this machine's binaries, started privately: free loopback ports, temporary folders.
import { findLocalPostgres, findRedisServer } from './binaries.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from './folders.ts'
import { freePort } from './ports.ts'
import { startPostgres } from './postgres-process.ts'
import { startRedis } from './redis-process.ts'
import type { ServerProcess } from './server-process.ts'
import type { Found } from './sources.ts'

const description = "from this machine's binaries"

export async function localPostgres(): Promise<Found | null> {
  const binaries = await findLocalPostgres()
  if (!binaries) return null
  const port = await freePort()
  const { stop } = await inTemporaryFolder('postgres', (folder) => startPostgres(binaries, folder, port))
  return { description, url: `postgres://postgres@127.0.0.1:${port}/postgres`, stop }
}

export async function localRedis(): Promise<Found | null> {
  const program = await findRedisServer()
  if (!program) return null
  const port = await freePort()
  const { stop } = await inTemporaryFolder('redis', (folder) => startRedis(program, folder, port))
  return { description, url: `redis://127.0.0.1:${port}`, stop }
}

async function inTemporaryFolder(name: string, start: (folder: string) => Promise<ServerProcess>) {
  const folder = await makeTemporaryFolder(name)
  const remove = () => removeTemporaryFolder(folder)
  const server = await start(folder).catch(async (cause) => {
    await remove()
    throw cause
  })
  return {
    async stop() {
      await server.stop()
      await remove()
    },
  }
}
