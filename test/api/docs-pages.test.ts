// What an error's docs_url leads to: a page of the service's own, open to everybody.
import t from 'tap'
import { startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { errors, expectError, isRated } from './expect-error.ts'

const instance = await startInstance(t, await useServices(t))

for (const [code, [status]] of Object.entries(errors)) {
  t.test(`the page of ${code} opens without a key and names it`, async (t) => {
    const answer = await instance.ask('GET', `/docs/errors/${code}`)
    t.equal(answer.status, 200)
    t.match(answer.headers.get('content-type'), /^text\/html; *charset=utf-8/i)
    t.match(answer.text, /^<!doctype html>/i)
    t.match(answer.text, code)
    t.match(answer.text, String(status))
    t.match(answer.headers.get('x-request-id'), /^req_/)
    t.notOk(isRated(answer), 'nobody is counted')
  })
}

t.test('the docs_url of an error that was met opens', async (t) => {
  const { error } = (await instance.ask('GET', '/v1/keys')).body
  const { origin, pathname } = new URL(error.docs_url)
  t.equal(origin, 'http://latchkey.test', 'under BASE_URL')
  t.equal((await instance.ask('GET', pathname)).status, 200)
})

t.test('docs_url follows BASE_URL, with a path too', async (t) => {
  const services = await useServices(t)
  const elsewhere = await startInstance(t, services, { BASE_URL: 'https://keys.example/base' })
  const { error } = (await elsewhere.ask('GET', '/v1/keys')).body
  t.equal(error.docs_url, 'https://keys.example/base/docs/errors/unauthorized')
})

const unknown = [
  'nope',
  'Unauthorized',
  '__proto__',
  'constructor',
  'toString',
  '%3Cscript%3E',
  '%zz',
  '%00',
  '',
]
for (const code of [...unknown, 'a'.repeat(5000), 'unauthorized/more']) {
  t.test(`the page of ${JSON.stringify(code.slice(0, 30))} is 404 without a key`, async (t) => {
    const answer = await instance.ask('GET', `/docs/errors/${code}`)
    t.equal(answer.status, 404)
    const { error } = answer.body
    expectError(t, answer, error.code === 'not_found' ? 'not_found' : 'route_not_found', null)
    t.notMatch(answer.text, '<script>')
  })
}
