// A process whose clock is wrong, by libfaketime (Debian's package `faketime`): loaded before the C library, it answers for the
// clock of the day. The monotonic one, by which timers go, stays as it is.
import { access, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Env } from '../process/latchkey.ts'

// The first one is meant for processes with several threads, which Node's are.
const libraries = ['libfaketimeMT.so.1', 'libfaketime.so.1']

/** Null where there is none; the test then has a skipped assertion that says so, and may return. */
export async function findFaketime(t: Test): Promise<string | null> {
  for (const lib of ['/usr/lib', '/usr/lib64']) {
    // Debian has a folder for each architecture.
    const folders = (await readdir(lib).catch(() => [])).map((name) => join(lib, name, 'faketime'))
    for (const folder of [join(lib, 'faketime'), ...folders]) {
      for (const name of libraries) if (await exists(join(folder, name))) return join(folder, name)
    }
  }
  t.pass('a clock that is wrong', { skip: 'there is no libfaketime on this machine' })
  return null
}

export const clockAhead = (library: string, seconds: number): Env => ({
  LD_PRELOAD: library,
  FAKETIME: `${seconds < 0 ? '' : '+'}${seconds}s`,
  FAKETIME_DONT_FAKE_MONOTONIC: '1',
})

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  )
