// Where tests store things: hand-over and ledger in the project's `.tap`, servers' data in the
// system's temporary folder.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const prefix = 'latchkey-test-'

export const stateFolder = fileURLToPath(new URL('../../.tap/services/', import.meta.url))

export const makeTemporaryFolder = (name: string) => mkdtemp(join(tmpdir(), `${prefix}${name}-`))

/**
 * Removes a folder made above and refuses any other: the path may come from a file that somebody
 * edited.
 */
export async function removeTemporaryFolder(folder: string): Promise<void> {
  if (dirname(folder) !== tmpdir() || !basename(folder).startsWith(prefix)) return
  await rm(folder, { recursive: true, force: true, maxRetries: 3 })
}
