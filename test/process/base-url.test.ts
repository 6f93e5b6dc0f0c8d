// Without BASE_URL a docs_url leads to the port that was really bound, whoever made the error.
import t from 'tap'
import { sendBytes } from '../api/raw-http.ts'
import { useServices } from '../services/index.ts'
import { ask } from './ask.ts'
import { externalEnv, serveLatchkey } from './latchkey.ts'

t.test('with PORT=0 every docs_url names the port that was bound, and opens', async (t) => {
  const service = await serveLatchkey(t, externalEnv(await useServices(t)))
  const { url, opsUrl, port } = service
  const errors = {
    unauthorized: (await ask(`GET ${url}/v1/keys`)).body.error,
    bad_request: (await sendBytes(port, 'nonsense\r\n\r\n')).body.error,
    route_not_found: (await ask(`GET ${opsUrl}/nothing`)).body.error,
  }
  for (const [code, { docs_url }] of Object.entries(errors)) {
    t.equal(docs_url, `http://localhost:${port}/docs/errors/${code}`)
    t.equal((await ask(`GET ${docs_url.replace('localhost', '127.0.0.1')}`)).status, 200)
  }
})

t.test('a BASE_URL that was given is used, on both listeners', async (t) => {
  const env = { BASE_URL: 'https://keys.example/base' }
  const { url, opsUrl } = await serveLatchkey(t, externalEnv(await useServices(t), env))
  const base = 'https://keys.example/base/docs/errors'
  t.equal((await ask(`GET ${url}/v1/keys`)).body.error.docs_url, `${base}/unauthorized`)
  t.equal((await ask(`GET ${opsUrl}/nothing`)).body.error.docs_url, `${base}/route_not_found`)
})
