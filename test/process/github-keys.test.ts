// GITHUB_SCANNING_KEYS_FILE: checked at the start and by doctor, and enough for GitHub where
// operators need a token.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { readGithubKeys } from '../../src/ops/github-keys.ts'
import { makeSigner, published, signedBy } from '../ops/github.ts'
import { useServices } from '../services/index.ts'
import { aFolder, externalEnv, openCommandLine, runLatchkey, serveLatchkey } from './latchkey.ts'

const services = await useServices(t)
const folder = await aFolder(t)
const signer = makeSigner()
const envWith = (file: string) => externalEnv(services, { GITHUB_SCANNING_KEYS_FILE: file })

const { runWith } = await openCommandLine(t)

t.test('a file without public keys of GitHub ends the process with one line that names it', async (t) => {
  const bad = join(folder, 'hunter2.json')
  await writeFile(bad, '{"public_keys":[{"key_identifier":"hunter2","key":"hunter2"}]}')
  const { code, stdout, stderr } = await runLatchkey(t, envWith(bad), 'serve')
  t.strictSame([code, stdout], [1, ''])
  t.match(stderr, /^latchkey: GITHUB_SCANNING_KEYS_FILE must name a file with [^\n]*P-256[^\n]*\n$/)
  t.notMatch(stderr, /hunter2/)

  const mustName = /^GITHUB_SCANNING_KEYS_FILE must name a file with [^\n]*$/
  for (const [file, message] of [
    [join(folder, 'hunter2-absent.json'), /^GITHUB_SCANNING_KEYS_FILE cannot be read \(ENOENT\)$/],
    [folder, mustName],
    ['/dev/zero', mustName],
  ] as const)
    await t.rejects(readGithubKeys(file), { message })

  t.equal((await runWith(envWith(bad), 'users', 'list')).code, 0, 'commands do not need it')
  const doctor = await runWith(envWith(bad), 'doctor')
  t.match(doctor, { code: 1, stdout: /^wrong +secret scanning +GITHUB_SCANNING_KEYS_FILE must .*\n {8}\S/m })
})

t.test('beyond loopback the signature is enough for a report, and for nothing else', async (t) => {
  const file = join(folder, 'keys.json')
  await writeFile(file, published(makeSigner(), signer))
  const env = { ...envWith(file), OPS_HOST: '0.0.0.0', OPS_TOKEN: 'a-token-of-adas-own' }
  t.match((await runWith(env, 'doctor')).stdout, /^ok +secret scanning +public keys of GitHub: 2$/m)
  const { opsUrl } = await serveLatchkey(t, env)
  const post = async (path: string, body: string) => {
    const { status } = await fetch(opsUrl + path, { method: 'POST', body, headers: signedBy(signer, body) })
    return status
  }
  t.equal(await post('/admin/keys/scan/github', '[]'), 200)
  t.equal(await post('/admin/keys/scan', '{"text":""}'), 401)
  t.equal(await post('/admin/keys/scan/github/', '[]'), 401)
})
