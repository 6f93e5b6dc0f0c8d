// Latchkey with nothing given but an empty DATA_DIR. At the end of the test no Postgres runs there.
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { commandLine, endTree } from '../services/processes.ts'
import { aFolder, type Env } from './latchkey.ts'

export async function embeddedEnv(t: Test): Promise<Env & { DATA_DIR: string }> {
  const DATA_DIR = join(await aFolder(t), 'data')
  // After the service has been killed, which is registered later; before the folder is removed.
  t.teardown(async () => {
    const pid = await postmasterOf(DATA_DIR)
    if (pid !== null) await endTree(pid)
  })
  return { DATA_DIR, PORT: '0', OPS_PORT: '0' }
}

/** The process id of the Postgres that runs in DATA_DIR. */
export async function postmasterOf(dataDir: string): Promise<number | null> {
  const cluster = join(dataDir, 'postgres')
  const text = await readFile(join(cluster, 'postmaster.pid'), 'utf8').catch(() => '')
  const pid = Number(text.split('\n')[0])
  return pid > 0 && (await commandLine(pid)).includes(cluster) ? pid : null
}
