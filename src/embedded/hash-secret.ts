/** The HASH_SECRET of an embedded database: made once, and kept beside the data that is worthless without it. */
import { randomBytes } from 'node:crypto'
import { link, mkdir, readFile, unlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

/** `isNeeded`: whether there are keys that only the lost one knows; then none is made in its place. */
export async function readOrCreateHashSecret(
  dataDir: string,
  isNeeded: () => Promise<boolean>,
): Promise<string> {
  const file = join(dataDir, 'hash-secret')
  const kept = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return ''
    throw new Error(`cannot read ${file}: ${error.code}`)
  })
  if (kept.trim() !== '') return kept.trim()
  if (await isNeeded())
    throw new Error(
      `${file} is missing, without which no key is known: restore it, or give its content as HASH_SECRET`,
    )
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  const made = randomBytes(32).toString('base64url')
  // Linked into place: a kill halfway leaves no half of a secret, and of two first starts the first one's stays.
  const unfinished = `${file}.${process.pid}`
  await writeFile(unfinished, `${made}\n`, { mode: 0o600, flush: true })
  try {
    await link(unfinished, file)
    return made
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    return (await readFile(file, 'utf8')).trim()
  } finally {
    await unlink(unfinished)
  }
}
