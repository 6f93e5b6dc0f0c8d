// For a machine with nothing installed: Latchkey's own embedded Postgres, and a Redis in TypeScript. The latter is a
// last resort and says so: its listener would bind every interface without a password, so it lives in each test's
// process, and what needs a real Redis (killing it, a cluster, other processes) is skipped.
import { readFile } from 'node:fs/promises'
import { findBinaries } from '../../src/embedded/binaries.ts'
import { openDataDir } from '../../src/embedded/data-dir.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from './folders.ts'
import { freePort } from './ports.ts'
import { startPostgres } from './postgres-process.ts'
import type { Found } from './sources.ts'

export async function npmPostgres(): Promise<Found> {
  const folder = await makeTemporaryFolder('embedded')
  const remove = () => removeTemporaryFolder(folder)
  try {
    const made = await makeEmbedded(folder)
    // Its own start fixes 60 connections and waits for the disk: right for the product, wrong for tests.
    const port = await freePort()
    const server = await startPostgres(findBinaries(openDataDir(folder).libraries), folder, port)
    const url = Object.assign(new URL(made.url), { port: String(port), pathname: '/postgres' })
    return {
      description: "from npm (Latchkey's embedded Postgres)",
      url: url.href,
      async stop() {
        await server.stop()
        await remove()
      },
    }
  } catch (cause) {
    await remove()
    throw cause
  }
}

/** The product's module makes and serves it once: what it cannot bring up is no source for tests either. */
async function makeEmbedded(dataDir: string): Promise<{ url: string }> {
  // Loaded here only: a fault in it must not keep tests from the other sources.
  const { openEmbeddedPostgres } = await import('../../src/embedded/postgres.ts')
  const embedded = await openEmbeddedPostgres({ dataDir, role: 'serve', onProgress: () => {} })
  await embedded.stop()
  return embedded
}

export async function npmRedis(): Promise<Found> {
  // Its package.json is not among its exports; the entry lies in dist/.
  const manifest = new URL('../package.json', import.meta.resolve('js-redis-server'))
  const { version } = JSON.parse(await readFile(manifest, 'utf8'))
  return {
    description: `emulated in each test's process (js-redis-server ${version}, the last resort: no real Redis)`,
    url: null,
    stop: async () => {},
  }
}
