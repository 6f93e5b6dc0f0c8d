/** Which tests need no servers and load a file, the nearest first. */
import { readdir, readFile } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'

const testFolders = ['test/rules', 'test/guard', 'test/redis', 'test/plugins', 'test/process', 'test/memory']
/** What a test imports that has servers. */
const servers = /^test\/(services\/index|instance)[.]ts$/

/** The TypeScript files of a folder that have behaviour, from the root. */
export async function sourcesIn(root: string, folder: string): Promise<string[]> {
  const names = await readdir(join(root, folder))
  return names.filter((name) => /(?<![.]d)[.]ts$/.test(name)).map((name) => join(folder, name))
}

export async function testsOf(root: string, file: string): Promise<string[]> {
  const tests = (await Promise.all(testFolders.map((folder) => sourcesIn(root, folder)))).flat()
  const steps: { test: string; steps: number }[] = []
  for (const test of tests.filter((name) => name.endsWith('.test.ts') && !name.includes('.soak.'))) {
    const found = await distances(root, test)
    const distance = found.get(file)
    if (distance !== undefined && ![...found.keys()].some((path) => servers.test(path)))
      steps.push({ test, steps: distance })
  }
  return steps.sort((a, b) => a.steps - b.steps).map(({ test }) => test)
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
