/** A secret in a file of its own, 0600: either there and whole, or not there. */
import { closeSync, fsyncSync, linkSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { secretText } from '../rules/secret-text.ts'
import { codeOf } from './faults.ts'

/** Null when there is no file. */
export function readSecret(file: string): string | null {
  const content = read(file)
  if (content === null) return null
  const secret = secretText(content)
  if (secret) return secret
  throw new Error(
    secret === null
      ? `${file} is not a UTF-8 text file: restore its content`
      : `${file} is empty: restore its content, or remove it if nothing was made with it yet`,
  )
}

function read(file: string): Buffer | null {
  try {
    return readFileSync(file)
  } catch (cause) {
    if (codeOf(cause) === 'ENOENT') return null
    throw new Error(`cannot read ${file}: ${codeOf(cause)}`, { cause })
  }
}

/** On disk when it returns. If two processes create it at once, both return the first one's. */
export function createSecret(file: string, secret: string): string {
  const unfinished = `${file}.${process.pid}`
  writeFileSync(unfinished, `${secret}\n`, { mode: 0o600, flush: true })
  try {
    linkSync(unfinished, file)
    syncDirectory(dirname(file))
    return secret
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error
    return readSecret(file) ?? secret
  } finally {
    rmSync(unfinished, { force: true })
  }
}

/**
 * A new name only survives a power cut once its directory is on disk. Windows has no such thing.
 */
export function syncDirectory(path: string): void {
  if (process.platform === 'win32') return
  const fd = openSync(path, 'r')
  fsyncSync(fd)
  closeSync(fd)
}
