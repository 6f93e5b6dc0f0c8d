// Imports run one way: routes → plugins, rules, store contracts; only the wiring file knows concrete stores.
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import ts from 'typescript'

const root = fileURLToPath(new URL('..', import.meta.url))

interface Import {
  from: string
  /** A file of ours by its path from the root, or the name of a package. */
  to: string
  ours: boolean
  typeOnly: boolean
}

const filesOf = (folder: string) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.d.ts'))
    .map((name) => posix.join(folder, name.replaceAll('\\', '/')))

/** Every way in which a source names another module: import, export from, import(), import types, require. */
function importsOf(from: string, source: string): Import[] {
  const found: Import[] = []
  const add = (specifier: ts.Node | undefined, typeOnly: boolean) => {
    if (!specifier || !ts.isStringLiteralLike(specifier)) return
    const { text } = specifier
    const ours = text.startsWith('.')
    found.push({ from, to: ours ? posix.join(dirname(from), text) : text, ours, typeOnly })
  }
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) add(node.moduleSpecifier, onlyTypes(node.importClause))
    if (ts.isExportDeclaration(node)) add(node.moduleSpecifier, node.isTypeOnly)
    if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal, true)
    if (ts.isExternalModuleReference(node)) add(node.expression, false)
    if (
      ts.isCallExpression(node) &&
      /^(import|require|createRequire\(import\.meta\.url\))$/.test(node.expression.getText())
    )
      add(node.arguments[0], false)
    ts.forEachChild(node, visit)
  }
  visit(ts.createSourceFile(from, source, ts.ScriptTarget.Latest, true))
  return found
}

function onlyTypes(clause: ts.ImportClause | undefined): boolean {
  if (clause === undefined) return false
  if (clause.isTypeOnly) return true
  const names = clause.namedBindings
  if (clause.name || !names || !ts.isNamedImports(names)) return false
  return names.elements.every(({ isTypeOnly }) => isTypeOnly)
}

const files = ['src', 'plugins', 'schemas'].flatMap(filesOf)
const sources = new Map(files.map((file) => [file, readFileSync(join(root, file), 'utf8')]))
const all = [...sources].flatMap(([file, source]) => importsOf(file, source))

const within =
  (...folders: string[]) =>
  (file: string) =>
    folders.some((folder) => file.startsWith(folder))
const listed = (imports: Import[]) => imports.map(({ from, to }) => `${from} imports ${to}`)
const from = (...folders: string[]) => all.filter((one) => within(...folders)(one.from))
const stores = ['src/postgres/', 'src/redis/', 'src/memory/', 'src/embedded/']

/** What of ours these import beside what they may. */
const strays = (folder: string, ...allowed: string[]) =>
  listed(from(folder).filter(({ ours, to }) => ours && !within(...allowed)(to)))

const packagesOf = (imports: Import[]) =>
  [...new Set(imports.filter(({ ours, to }) => !ours && !to.startsWith('node:')).map(({ to }) => to))].sort()

t.test('every way to name another module is seen', async (t) => {
  const source = `
    import a from './a.ts'
    import type { B } from './b.ts'
    import { type C } from '../c.ts'
    import { type D, d } from './d.ts'
    import './e.ts'
    export * from './f.ts'
    export type { G } from './g.ts'
    const h = await import('./h.ts')
    type I = import('./i.ts').I
    import j = require('./j.ts')
    const k = require('k')
    const m = createRequire(import.meta.url)('m')
    import { l } from 'node:l'`
  const seen = importsOf('src/x/y.ts', source).map(({ to, typeOnly }) => (typeOnly ? `${to} by type` : to))
  t.strictSame(seen, [
    'src/x/a.ts',
    'src/x/b.ts by type',
    'src/c.ts by type',
    'src/x/d.ts',
    'src/x/e.ts',
    'src/x/f.ts',
    'src/x/g.ts by type',
    'src/x/h.ts',
    'src/x/i.ts by type',
    'src/x/j.ts',
    'k',
    'm',
    'node:l',
  ])
  t.ok(files.length > 40 && all.length > 100, 'and the files are there to be read')
})

t.test('every import of ours names a file that is there, with its ending', async (t) => {
  t.strictSame(listed(all.filter(({ ours, to }) => ours && !sources.has(to))), [])
})

t.test('schemas import nothing of ours but schemas, and no package but TypeBox', async (t) => {
  t.strictSame(strays('schemas/', 'schemas/'), [])
  t.strictSame(packagesOf(from('schemas/')), ['@sinclair/typebox'])
})

t.test('plugins import schemas and other plugins only, so that another app can register them', async (t) => {
  t.strictSame(strays('plugins/', 'schemas/', 'plugins/'), [])
  t.strictSame(packagesOf(from('plugins/')), ['fastify', 'fastify-plugin'])
})

t.test('rules are pure: they import rules and schemas only, and of Node what only computes', async (t) => {
  t.strictSame(strays('src/rules/', 'src/rules/', 'schemas/'), [])
  t.strictSame(packagesOf(from('src/rules/')), [])
  const builtin = from('src/rules/').filter(({ to }) => to.startsWith('node:'))
  t.strictSame(listed(builtin.filter(({ to }) => to !== 'node:crypto' && to !== 'node:zlib')), [])
})

t.test('the store contracts import rules and schemas only', async (t) => {
  t.strictSame(strays('src/stores.ts', 'src/rules/', 'schemas/'), [])
  t.strictSame(packagesOf(from('src/stores.ts')), [])
})

t.test(
  'routes import plugins, schemas, rules and the store contracts; anything else of ours by type only',
  async (t) => {
    const folders = ['src/http/routes/', 'src/ops/admin/']
    const allowed = within(...folders, 'src/rules/', 'src/stores.ts', 'plugins/', 'schemas/')
    const strays = from(...folders).filter(({ ours, to }) => ours && !allowed(to))
    t.strictSame(listed(strays.filter(({ typeOnly }) => !typeOnly)), [])
    t.strictSame(
      listed(strays.filter(({ to }) => within(...stores, 'src/wiring/', 'src/process/service.ts')(to))),
      [],
    )
  },
)

t.test('only the wiring imports concrete stores', async (t) => {
  const known = all.filter(({ from, to }) => within(...stores)(to) && dirname(from) !== dirname(to))
  // The last counts seen from Redis are in memory, to continue from while it is down.
  const isLastCounts = ({ from, to }: Import) =>
    within('src/redis/')(from) && to === 'src/memory/minute-counts.ts'
  t.strictSame(listed(known.filter((one) => !within('src/wiring/')(one.from) && !isLastCounts(one))), [])
})

t.test('concrete stores know their own technology, the store contracts, rules and schemas', async (t) => {
  for (const folder of stores) {
    const minuteCounts = folder === 'src/redis/' ? ['src/memory/minute-counts.ts'] : []
    const known = ['src/stores.ts', 'src/rules/', 'src/version.ts', 'schemas/', ...minuteCounts]
    t.strictSame(strays(folder, folder, ...known), [])
  }
})

t.test("a technology's package is imported where the technology is", async (t) => {
  const homes: Record<string, string[]> = {
    postgres: ['src/postgres/'],
    ioredis: ['src/redis/'],
    'prom-client': ['src/process/'],
    pino: ['src/process/log.ts'],
    commander: ['src/commands/'],
  }
  for (const [name, home] of Object.entries(homes)) {
    const imports = all.filter(({ to, typeOnly }) => to === name && !typeOnly)
    t.strictSame(listed(imports.filter(({ from }) => !within(...home)(from))), [])
  }
})

t.test('nothing imports itself by way of others', async (t) => {
  const next = (file: string) => all.filter(({ from, ours }) => ours && from === file).map(({ to }) => to)
  const done = new Set<string>()
  const circles: string[] = []
  const walk = (file: string, path: string[]): void => {
    if (path.includes(file)) circles.push([...path.slice(path.indexOf(file)), file].join(' → '))
    if (path.includes(file) || done.has(file)) return
    for (const to of next(file)) walk(to, [...path, file])
    done.add(file)
  }
  for (const file of files) walk(file, [])
  t.strictSame(circles, [])
})

t.test(
  'every file of the product is reached from the command line or what the package exports',
  async (t) => {
    const reached = new Set([
      'src/cli.ts',
      'src/client/index.ts',
      'src/package/fastify.ts',
      'src/package/guard.ts',
    ])
    for (const file of reached)
      for (const { from, to, ours } of all) if (ours && from === file) reached.add(to)
    t.strictSame(
      files.filter((file) => !reached.has(file)),
      [],
    )
  },
)

t.test(
  'the environment is read by the configuration only; one file hands it on to child processes, one hides a variable from postgres.js, one looks at TERM',
  async (t) => {
    const reads = [...sources].filter(([, source]) =>
      /\bprocess\s*(\.|\?\.)\s*env\b|\bprocess\s*\[|\{[^}]*\benv\b[^}]*\}\s*=\s*process\b/.test(
        withoutComments(source),
      ),
    )
    const files = reads.map(([file]) => file).sort()
    t.strictSame(files, [
      'src/commands/top.ts',
      'src/config.ts',
      'src/embedded/child-env.ts',
      'src/postgres/connect.ts',
    ])
    t.strictSame(listed(all.filter(({ to }) => to === 'node:process' || to === 'process')), [])
  },
)

function withoutComments(source: string): string {
  return ts
    .createPrinter({ removeComments: true })
    .printFile(ts.createSourceFile('x.ts', source, ts.ScriptTarget.Latest, true))
}
