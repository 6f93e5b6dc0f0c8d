// Absent, mistyped and a stranger's: the same bytes and the same headers (spec 7.2, rules 2 and 3).
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { useServices } from '../services/index.ts'
import { expectError, expectRated } from './expect-error.ts'
import { type RawAnswer, sendRaw } from './raw-http.ts'

const instance = await startInstance(t, await useServices(t))
const caller = await makeCaller(instance)
const stranger = await makeCaller(instance)
const revoked = await makeCaller(instance)
await instance.ask('DELETE', `/v1/keys/${revoked.id}`, { token: revoked.token })

const absent = `apk_${'0'.repeat(caller.id.length - 4)}`
const misses: Record<string, string> = {
  "a stranger's": stranger.id,
  "a stranger's revoked": revoked.id,
  "a mistyped prefix of the caller's own": caller.id.replace('apk_', 'akp_'),
  'no prefix': caller.id.slice(4),
  "another case of the caller's own": caller.id.toUpperCase(),
  "the caller's own and more": `${caller.id}0`,
  "the start of the caller's own": caller.id.slice(0, -1),
  "a user's": caller.userId,
  "an audit entry's": 'aud_0000000000',
  'a malformed percent-escape': '%zz',
  'a malformed percent-escape at its end': `${caller.id}%`,
  'an overlong UTF-8 escape': '%c0%af',
  'an escaped NUL': '%00',
  "the caller's own with an escaped NUL": `${caller.id}%00`,
  'an escaped slash': '%2f',
  'an escaped newline': '%0d%0a',
  'a quote': "'%20or%20'1'='1",
  'an emoji': '%F0%9F%94%91',
  '10,000 characters': `apk_${'a'.repeat(9996)}`,
  '300 characters': `apk_${'a'.repeat(296)}`,
  "a name of an object's member": '__proto__',
}

/** What counting changes from request to request is not part of the comparison. */
const uniform = (answer: RawAnswer) =>
  answer.uniform.replace(/^(x-ratelimit-(?:remaining|reset)): .*$/gim, '$1: …')

const authorization = `Authorization: Bearer ${caller.token}`
const json = 'Content-Type: application/json'
const asked: Record<string, (id: string) => Promise<RawAnswer>> = {
  GET: (id) => sendRaw(instance.port, 'GET', `/v1/keys/${id}`, [authorization]),
  PATCH: (id) => sendRaw(instance.port, 'PATCH', `/v1/keys/${id}`, [authorization, json], '{"name":"taken"}'),
  DELETE: (id) => sendRaw(instance.port, 'DELETE', `/v1/keys/${id}`, [authorization]),
  starting_after: (id) => sendRaw(instance.port, 'GET', `/v1/keys?starting_after=${id}`, [authorization]),
}

for (const [how, ask] of Object.entries(asked)) {
  t.test(`an absent id is the 404 of ${how}`, async (t) => {
    const answer = await ask(absent)
    expectError(t, answer, 'not_found', how === 'starting_after' ? 'starting_after' : 'id')
    expectRated(t, answer)
  })
  for (const [what, id] of Object.entries(misses)) {
    t.test(`for ${how}, ${what} is byte for byte the 404 of an absent id`, async (t) => {
      t.equal(uniform(await ask(id)), uniform(await ask(absent)))
    })
  }
}

t.test('the 404s of GET, PATCH and DELETE are one', async (t) => {
  const answers = [await asked.GET!(absent), await asked.PATCH!(absent), await asked.DELETE!(absent)]
  t.equal(new Set(answers.map(uniform)).size, 1)
})

t.test("a bad body does not tell a stranger's key from an absent one", async (t) => {
  for (const body of ['{}', '{"name":""}', '{"nope":1}', '{"name":', '[]']) {
    const patch = (id: string) =>
      sendRaw(instance.port, 'PATCH', `/v1/keys/${id}`, [authorization, json], body)
    t.equal(uniform(await patch(stranger.id)), uniform(await patch(absent)), body)
  }
})

t.test("a stranger's id is still a 404 after its owner used, changed and revoked it", async (t) => {
  const owner = await makeCaller(instance)
  const before = uniform(await asked.GET!(owner.id))
  await instance.ask('PATCH', `/v1/keys/${owner.id}`, { token: owner.token, json: { name: 'changed' } })
  t.equal(uniform(await asked.GET!(owner.id)), before)
  await instance.ask('DELETE', `/v1/keys/${owner.id}`, { token: owner.token })
  t.equal(uniform(await asked.GET!(owner.id)), before)
})
