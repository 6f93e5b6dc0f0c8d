/**
 * latchkey keys scan: finds keys of this service that have leaked into files, and revokes them with
 * --revoke.
 */
import { constants, openSync } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { Socket } from 'node:net'
import { addAbortSignal } from 'node:stream'
import type { ScanResult } from '../../schemas/scan.ts'
import { collectLeaks, type Leaks } from '../ops/admin/leaked-keys.ts'
import { tokenScanner, utf16Finder } from '../rules/token-scanner.ts'
import type { Stores } from '../wiring/stores.ts'
import { actor, command, isStdinDirectory, table, withStores } from './command.ts'
import { revoke } from './options.ts'
import { untilStopped } from './until-stopped.ts'

interface ScannedFile extends ScanResult {
  file: string
  /** Why it was not read to its end. */
  error: string | null
}

/** Smaller chunks cost more calls, larger ones do not fit into the processor's cache. */
const chunkBytes = 262_144

export const scan = command<{ revoke?: true }>('scan <file...>', {
  summary: 'find keys of this service in files, or in stdin as -; exits with 1 if one is active',
  example: 'keys scan --revoke .env server.log',
  options: [revoke],
  async run({ config, options, args }) {
    const by = options.revoke ? actor() : null
    const faults = new Set<string>()
    const scanAll = async (stores: Stores) => {
      const files: ScannedFile[] = []
      const stopped = untilStopped()
      for (const file of args) {
        const leaks = collectLeaks(stores, by, { stopped })
        // What has been revoked so far must be reported, whatever happens next.
        const error = await scanFile(stores, file, leaks, stopped).then(
          () => null,
          ({ message }: Error) => (stopped.aborted ? 'the scan was stopped before its end' : message),
        )
        for (const fault of [error, ...leaks.faults.map(({ message }) => message)])
          if (fault !== null) faults.add(fault)
        files.push({ file, error, ...leaks.result() })
      }
      return files
    }
    // With a wrong secret or prefix, it would find nothing and call the files clean.
    const scanned = await withStores(config, scanAll, { needsHashSecret: true, needsKeyPrefix: true })
    const active = new Set(scanned.flatMap(({ keys }) => keys.filter(isActive).map(({ id }) => id))).size
    if (active > 0)
      faults.add(
        `active keys found: ${active}; ${by === null ? 'revoke them with --revoke' : 'run the command again'}`,
      )
    return { json: scanned, lines: linesOf(scanned), fault: [...faults].join('\n') || undefined }
  },
})

const isActive = ({ state }: ScanResult['keys'][0]) => state === 'active'

async function scanFile(stores: Stores, file: string, leaks: Leaks, stopped: AbortSignal) {
  const scanChunk = tokenScanner(stores.tokenFormat)
  const isUtf16 = utf16Finder(stores.tokenFormat)
  if (file === '-' && isStdinDirectory()) throw new Error('-: stdin is a directory')
  const chunks = file === '-' ? addAbortSignal(stopped, process.stdin) : chunksOf(file, stopped)
  for await (const chunk of chunks) {
    stopped.throwIfAborted()
    if (isUtf16(chunk))
      throw new Error(`${file}: cannot be read as text: it is UTF-16; convert it to UTF-8 first`)
    await leaks.add(scanChunk(chunk))
  }
  // Ctrl-C also ends what is writing into our pipe.
  stopped.throwIfAborted()
}

/** Reuses one buffer: collecting a new one for each chunk would take as long as the scan. */
async function* chunksOf(file: string, stopped: AbortSignal): AsyncGenerator<Buffer> {
  let handle: FileHandle | undefined
  try {
    if ((await stat(file)).isFIFO()) return yield* addAbortSignal(stopped, openPipe(file))
    handle = await open(file)
    const buffer = Buffer.allocUnsafeSlow(chunkBytes)
    for (;;) {
      const { bytesRead } = await handle.read(buffer, 0, chunkBytes, null)
      if (bytesRead === 0) return
      yield buffer.subarray(0, bytesRead)
    }
  } catch (error) {
    throw new Error(`${file}: ${(error as Error).message}`)
  } finally {
    await handle?.close()
  }
}

/** A read by a FileHandle would hold up the end of the process until the writer goes on. */
function openPipe(file: string): Socket {
  // Does not wait for a writer here.
  const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK)
  return new Socket({ fd, readable: true, writable: false })
}

function linesOf(scanned: ScannedFile[]): string[] {
  const rows = scanned.flatMap(({ file, keys }) =>
    keys.map((key) => [file, key.id, key.key_prefix, key.revoked ? 'revoked now' : key.state, key.user_id]),
  )
  const unknown = scanned.reduce((sum, file) => sum + file.unknown, 0)
  const read = scanned.filter(({ error }) => error === null).map(({ file }) => file)
  const none = read.length === scanned.length ? '' : ` in ${read.join(', ')}`
  return [
    ...(rows.length > 0
      ? table(['file', 'id', 'prefix', 'state', 'owner'], rows)
      : [read.length === 0 ? 'no file was scanned' : `no key of this service${none}`]),
    ...(unknown > 0 ? [`${unknown} tokens of the same shape are not keys of this service`] : []),
  ]
}
