// The reference pages, as a reader uses them: every link leads somewhere, and every command works
// when pasted into a shell.
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { errorTable } from '../../schemas/error-table.ts'
import { makeCaller, makeKey, makeUser, startInstance, startOps } from '../instance.ts'
import { makeSigner, published, signedBy } from '../ops/github.ts'
import { aFolder } from '../process/latchkey.ts'
import { useServices } from '../services/index.ts'

const services = await useServices(t)
const operatorToken = 'a-token-of-the-operator'
const metricsToken = 'a-token-of-the-scraper'
const github = makeSigner()
const keysFile = join(await aFolder(t), 'github-keys.json')
await writeFile(keysFile, published(github))
const instance = await startInstance(t, services, {
  BASE_URL: 'http://latchkey.test/below',
  OPS_TOKEN: operatorToken,
  METRICS_TOKEN: metricsToken,
  GITHUB_SCANNING_KEYS_FILE: keysFile,
})
const ops = await startOps(t, instance)

const attributes = (html: string, name: string) =>
  [...html.matchAll(new RegExp(` ${name}="([^"]*)"`, 'g'))].map(([, value]) => value!)
const unescaped = (html: string) =>
  html.replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&quot;', '"').replaceAll('&amp;', '&')
const commandsIn = (html: string) =>
  [...html.matchAll(/<pre>(curl [^<]*)<\/pre>/g)].map(([, text]) => unescaped(text!))

t.test('every link of the pages leads to a page and to a place on it', async (t) => {
  const pages = new Map<string, string>()
  const links = ['/below/docs']
  for (const link of links) {
    const [path, fragment] = link.split('#') as [string, string?]
    if (!pages.has(path)) {
      const { status, text } = await instance.ask('GET', path.replace(/^\/below/, ''))
      t.equal(status, 200, path)
      pages.set(path, text)
      const found = path.endsWith('.json') ? [] : attributes(text, 'href')
      links.push(...found.map((href) => (href.startsWith('#') ? path + href : href)))
    }
    if (fragment !== undefined) t.ok(attributes(pages.get(path)!, 'id').includes(fragment), link)
  }
  t.ok(pages.has('/below/openapi.json'))
  for (const code of Object.keys(errorTable)) t.ok(pages.has(`/below/docs/errors/${code}`), code)
  t.ok(links.includes('/below/docs#createKey'), 'error pages link to operations')
  const loaded = [...pages.values()].flatMap((html) => [...html.matchAll(/<(script|link|img|iframe)\b/g)])
  t.same(loaded, [], 'nothing is loaded from elsewhere')
})

t.test('every docs_url that the operators can get leads to a page', async (t) => {
  const { text, headers } = await ops.ask('GET', '/admin/docs', { token: operatorToken })
  t.match(headers.get('content-security-policy'), /^default-src 'none'; style-src 'unsafe-inline'$/)
  const outside = attributes(text, 'href').filter((href) => href.startsWith('http'))
  t.ok(outside.length > 10)
  for (const href of new Set(outside)) {
    t.equal((await instance.ask('GET', href.replace('http://latchkey.test/below', ''))).status, 200, href)
  }
  t.equal((await ops.ask('GET', '/admin/docs')).status, 401)
})

const hasCurl = await promisify(execFile)('curl', ['--version']).catch(() => null)
t.test('every command works when pasted', { skip: hasCurl === null && 'there is no curl' }, async (t) => {
  const admin = (await ops.ask('GET', '/admin/docs', { token: operatorToken })).text
  const callers = commandsIn((await instance.ask('GET', '/docs')).text)
  t.ok(callers.length >= 7)
  const commands = [...callers, ...commandsIn(admin)]
  // In one shell, as starting many from this large process takes long.
  const lines: string[] = []
  for (const command of commands) {
    const caller = await makeCaller(instance)
    const { id } = await makeKey(instance, { userId: caller.userId })
    const user = await makeUser(instance)
    const signed = signedBy(github, /-d '(.*)'$/m.exec(command)?.[1] ?? '')
    const env = {
      ...{ KEY: caller.token, KEY_ID: id, USER_ID: user.id },
      ...{ OPS_TOKEN: operatorToken, METRICS_TOKEN: metricsToken },
      GITHUB_PUBLIC_KEY_IDENTIFIER: signed['github-public-key-identifier'],
      GITHUB_PUBLIC_KEY_SIGNATURE: signed['github-public-key-signature'],
    }
    lines.push(...Object.entries(env).map(([name, value]) => `${name}='${value}'`))
    // No two users have the same external_id.
    const here = command.replace('http://latchkey.test/below', instance.url).replace('crm-7', user.id)
    // A stream of events ends only when its reader leaves.
    lines.push(`${here} --max-time ${command.includes('/events') ? 1 : 60}`, String.raw`printf '\0'`)
  }
  const { stdout } = await promisify(execFile)('bash', ['-c', lines.join('\n')], { maxBuffer: 100_000_000 })
  const answers = stdout.split('\0')
  for (const [i, command] of commands.entries()) t.match(answers[i], /^HTTP\/1\.1 20[01] /, command)
})
