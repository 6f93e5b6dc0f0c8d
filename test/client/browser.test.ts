// The client in a browser: its modules as they are, on a page of the service's own origin.
import { existsSync, readFileSync } from 'node:fs'
import { chromium } from 'playwright-core'
import t from 'tap'
import ts from 'typescript'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'

const executablePath = '/usr/bin/chromium'
const skip = existsSync(executablePath) ? false : 'Chromium is not installed'

t.test('a browser runs the client', { skip }, async (t) => {
  const instance = await startInstance(t, await useServices(t))
  const { token } = await makeCaller(instance)
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })
  t.teardown(() => browser.close())
  const page = await browser.newPage()
  await page.route(/\/(client\/.*)?$/, (route) => {
    const [, file] = /\/client\/(.*)$/.exec(route.request().url()) ?? []
    if (file === undefined) return route.fulfill({ contentType: 'text/html', body: '<!doctype html>' })
    return route.fulfill({ contentType: 'text/javascript', body: module(file) })
  })
  await page.goto(`${instance.url}/`)
  const seen = await page.evaluate(`(async () => {
    const { createClient, LatchkeyError } = await import('/client/index.ts')
    const latchkey = createClient({ baseUrl: location.origin, key: '${token}' })
    const { id } = await latchkey.keys.create({ name: 'of a browser' })
    const names = []
    for await (const { name } of latchkey.keys.list({ limit: 1 })) names.push(name)
    const error = await latchkey.keys.get('apk_nonesuch').catch((error) => error)
    return { id, names, isOurs: error instanceof LatchkeyError, code: error.code }
  })()`)
  t.match(seen, { id: /^apk_/, names: ['of a browser', 'a key'], isOurs: true, code: 'not_found' })
})

function module(file: string): string {
  const source = readFileSync(new URL(`../../src/client/${file}`, import.meta.url), 'utf8')
  const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext }
  return ts.transpileModule(source, { compilerOptions }).outputText
}
