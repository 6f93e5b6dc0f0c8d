/** Which tests notice a change of a file: those that load it, the nearest first. */
import { readdir, readFile } from 'node:fs/promises'
import { basename, dirname, join, relative } from 'node:path'

const testFolders = [
  ...['test/rules', 'test/guard', 'test/redis', 'test/plugins', 'test/process', 'test/memory'],
  ...['test/ops', 'test/postgres', 'test/usage', 'test/http', 'test/wiring', 'test/package', 'test/client'],
]
/** What a test imports that has servers. */
const servers = /^test\/(services\/index|instance)[.]ts$/
/** Where there are no better ones. */
const farMax = 3

/** The TypeScript files of a folder that have behaviour, from the root. */
export async function sourcesIn(root: string, folder: string): Promise<string[]> {
  const names = await readdir(join(root, folder))
  return names.filter((name) => /(?<![.]d)[.]ts$/.test(name)).map((name) => join(folder, name))
}

/**
 * Those that need no servers, then those with servers in the test folder of the same name. If there
 * are none, the nearest others.
 */
export async function testsOf(root: string, file: string): Promise<string[]> {
  const tests = (await Promise.all(testFolders.map((folder) => sourcesIn(root, folder)))).flat()
  const found: { test: string; steps: number; hasServers: boolean }[] = []
  for (const test of tests.filter((name) => name.endsWith('.test.ts') && !name.includes('.soak.'))) {
    const loaded = await distances(root, test)
    const steps = loaded.get(file)
    if (steps === undefined) continue
    found.push({ test, steps, hasServers: [...loaded.keys()].some((path) => servers.test(path)) })
  }
  const isNamedAlike = (test: string) => basename(test, '.test.ts') === basename(file, '.ts')
  found.sort((a, b) => +isNamedAlike(b.test) - +isNamedAlike(a.test) || a.steps - b.steps)
  const isInItsFolder = (test: string) => basename(dirname(test)) === basename(dirname(file))
  const quick = found.filter(({ hasServers }) => !hasServers)
  const slow = found.filter(({ test, hasServers }) => hasServers && isInItsFolder(test))
  const near = [...quick, ...slow]
  return (near.length > 0 ? near : found.slice(0, farMax)).map(({ test }) => test)
}

/** How many imports away each file is that the test loads. */
async function distances(root: string, test: string): Promise<Map<string, number>> {
  const found = new Map([[test, 0]])
  for (const [file, steps] of found) {
    for (const imported of await importsOf(root, file))
      if (!found.has(imported)) found.set(imported, steps + 1)
  }
  return found
}

const known = new Map<string, string[]>()

async function importsOf(root: string, file: string): Promise<string[]> {
  const stored = known.get(file)
  if (stored !== undefined) return stored
  const text = await readFile(join(root, file), 'utf8')
  const paths = [...text.matchAll(/^(?:import|export)(?! type)[^;]*? from '([.][^']+[.]ts)'/gm)]
  const imports = paths.map(([, path]) => relative(root, join(root, dirname(file), path!)))
  known.set(file, imports)
  return imports
}
