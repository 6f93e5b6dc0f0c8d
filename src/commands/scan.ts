/**
 * latchkey keys scan: finds keys of this service that have leaked into files, and revokes them with
 * --revoke.
 */
import { open } from 'node:fs/promises'
import type { ScanResult } from '../../schemas/scan.ts'
import { collectLeaks, type Leaks } from '../ops/admin/leaked-keys.ts'
import { tokenScanner } from '../rules/token-scanner.ts'
import type { Stores } from '../wiring/stores.ts'
import { actor, command, table, withStores } from './command.ts'
import { revoke } from './options.ts'

interface ScannedFile extends ScanResult {
  file: string
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
    const scanned = await withStores(config, async (stores) => {
      const files: ScannedFile[] = []
      for (const file of args) {
        const leaks = collectLeaks(stores, by)
        // What has been revoked so far must be reported, whatever happens next.
        await scanFile(stores, file, leaks).catch((error: Error) => faults.add(error.message))
        for (const { message } of leaks.faults) faults.add(message)
        files.push({ file, ...leaks.result() })
      }
      return files
    })
    const active = new Set(scanned.flatMap(({ keys }) => keys.filter(isActive).map(({ id }) => id))).size
    if (active > 0)
      faults.add(
        `active keys found: ${active}; ${by === null ? 'revoke them with --revoke' : 'run the command again'}`,
      )
    return { json: scanned, lines: linesOf(scanned), fault: [...faults].join('\n') || undefined }
  },
})

const isActive = ({ state }: ScanResult['keys'][0]) => state === 'active'

async function scanFile(stores: Stores, file: string, leaks: Leaks) {
  const scanChunk = tokenScanner(stores.tokenFormat)
  const chunks = file === '-' ? process.stdin : chunksOf(file)
  for await (const chunk of chunks) await leaks.add(scanChunk(chunk))
}

/** Reuses one buffer: collecting a new one for each chunk would take as long as the scan. */
async function* chunksOf(file: string): AsyncGenerator<Buffer> {
  const handle = await open(file)
  try {
    const buffer = Buffer.allocUnsafeSlow(chunkBytes)
    for (;;) {
      const { bytesRead } = await handle.read(buffer, 0, chunkBytes, null)
      if (bytesRead === 0) return
      yield buffer.subarray(0, bytesRead)
    }
  } finally {
    await handle.close()
  }
}

function linesOf(scanned: ScannedFile[]): string[] {
  const rows = scanned.flatMap(({ file, keys }) =>
    keys.map((key) => [file, key.id, key.key_prefix, key.revoked ? 'revoked now' : key.state, key.user_id]),
  )
  const unknown = scanned.reduce((sum, file) => sum + file.unknown, 0)
  return [
    ...(rows.length > 0
      ? table(['file', 'id', 'prefix', 'state', 'owner'], rows)
      : ['no key of this service']),
    ...(unknown > 0 ? [`${unknown} tokens of the same shape are not keys of this service`] : []),
  ]
}
