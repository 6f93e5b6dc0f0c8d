// The client where it runs besides Node: its modules as they are, in a browser, Deno and Bun.
import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { chromium } from 'playwright-core'
import t, { type Test } from 'tap'
import ts from 'typescript'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

const run = promisify(execFile)
const client = new URL('../../src/client/', import.meta.url)
const instance = await startInstance(t, await useServices(t))

const program = (module: string, { token }: { token: string }) => `
  const { createClient, LatchkeyError } = await import('${module}')
  const latchkey = createClient({ baseUrl: '${instance.url}', key: '${token}' })
  const { id } = await latchkey.keys.create({ name: 'made there' })
  const names = []
  for await (const { name } of latchkey.keys.list({ limit: 1 })) names.push(name)
  const error = await latchkey.keys.get('apk_nonesuch').catch((error) => error)
  const seen = { id, names, isOurs: error instanceof LatchkeyError, code: error.code }`
const wanted = { id: /^apk_/, names: ['made there', 'a key'], isOurs: true, code: 'not_found' }

const executablePath = '/usr/bin/chromium'
const noChromium = existsSync(executablePath) ? false : 'Chromium is not installed'

t.test('a browser runs the client', { skip: noChromium }, async (t) => {
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })
  t.teardown(() => browser.close())
  const page = await browser.newPage()
  await page.route(/\/(client\/.*)?$/, (route) => {
    const [, file] = /\/client\/(.*)$/.exec(route.request().url()) ?? []
    if (file === undefined) return route.fulfill({ contentType: 'text/html', body: '<!doctype html>' })
    return route.fulfill({ contentType: 'text/javascript', body: javascript(file) })
  })
  await page.goto(`${instance.url}/`)
  const text = program('/client/index.ts', await makeCaller(instance))
  t.match(await page.evaluate(`(async () => {${text}; return seen })()`), wanted)
})

function javascript(file: string): string {
  const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext }
  return ts.transpileModule(readFileSync(new URL(file, client), 'utf8'), { compilerOptions }).outputText
}

const runtimes = [
  { name: 'deno', args: ['run', '--allow-all'] },
  { name: 'bun', args: [] },
]
for (const { name, args } of runtimes) {
  const found = await run(name, ['--version']).catch(() => null)
  const skip = found === null && `${name} is not installed`
  t.test(`${name} runs the client`, { skip }, async (t: Test) => {
    const text = program(new URL('index.ts', client).href, await makeCaller(instance))
    const folder = t.testdir({ 'program.mjs': `${text}\nconsole.log(JSON.stringify(seen))` })
    const { stdout } = await run(name, [...args, join(folder, 'program.mjs')])
    t.match(JSON.parse(stdout), wanted)
  })
}
