/**
 * Runs test files one after the other in one process, each as a subtest. Most of what a small file
 * costs is its start: more than a second of CPU for Node, tap and the service.
 */
import { readdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'

interface Group {
  folders?: string[]
  /** Of other folders. */
  files?: string[]
  /** `[1, 3]`: every third file, from the first one. */
  part?: [number, number]
}

/** By the file in `test/all` that runs them. */
export const groups: Record<string, Group> = {
  api: { folders: ['api'] },
  client: { folders: ['client', 'openapi'] },
  edges: { files: ['hostile-bytes', 'smuggling', 'uniformity'].map((name) => `security/${name}.test.ts`) },
  ops: { folders: ['ops'] },
  'process-1': { folders: ['process'], part: [1, 3] },
  'process-2': { folders: ['process'], part: [2, 3] },
  'process-3': { folders: ['process'], part: [3, 3] },
  simulation: { folders: ['simulation'] },
  stores: { folders: ['postgres', 'redis', 'usage'] },
  units: {
    folders: ['guard', 'http', 'memory', 'plugins', 'rules', 'wiring'],
    files: ['architecture', 'bench/published-figures', 'docs/links', 'figures'].map(
      (name) => `${name}.test.ts`,
    ),
  },
}

const tests = join(import.meta.dirname, '..')

/** Runs timers until none is left, which never ends next to an in-process Redis. */
const alone = 'client/retries.test.ts'

export const filesOf = ({ folders = [], files = [], part: [part, parts] = [1, 1] }: Group): string[] =>
  folders
    .flatMap((folder) => readdirSync(join(tests, folder)).map((name) => `${folder}/${name}`))
    .filter((file) => /^[^.]+\.test\.ts$/.test(file) && file !== alone)
    .concat(files)
    .sort()
    .filter((_, i) => i % parts === part - 1)

/** Something that a test has left open would keep the process until the time limit of all its files. */
const leftOpenMs = 60_000

function endIfLeftOpen() {
  const end = () => {
    console.error(`Left open by a test: ${process.getActiveResourcesInfo().join(', ')}`)
    process.exit(1)
  }
  setTimeout(end, leftOpenMs).unref()
}

export function runTogether(caller: string): void {
  t.teardown(endIfLeftOpen)
  for (const [i, file] of filesOf(groups[basename(caller, '.test.ts')]!).entries())
    t.test(`test/${file}`, async (t) => {
      process.env.TOGETHER_ID = String(i)
      // The loader gives this to the file when it imports tap.
      Object.assign(globalThis, { testOfFile: t })
      await import(`${pathToFileURL(join(tests, file))}?together`)
    })
}
