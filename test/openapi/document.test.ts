// The API documents: whole, and clean by the rules that others check them by.
import { createConfig, lintFromString } from '@redocly/openapi-core'
import t from 'tap'
import { CreateKeyBody, withMaxRateLimit } from '../../schemas/key.ts'
import type { Response } from '../../src/openapi/document-types.ts'
import { listeners } from './documents.ts'

const ofOperators = ['createUser', 'updateUser', 'createKey', 'updateKey', 'scanForKeys']
const wantMembers: Record<string, string[]> = {
  public: ['createKey', 'updateKey'],
  admin: [...ofOperators, 'revokeReportedKeys', 'lookup'],
  withoutGithub: [...ofOperators, 'lookup'],
}

for (const [name, { document, routes }] of Object.entries(await listeners())) {
  t.test(`every route of the ${name} listener is described, or says that it is no operation`, async (t) => {
    const parts = ['operationId', 'summary', 'tags', 'response'] as const
    for (const { method, url, schema } of routes) {
      if (method === 'HEAD' || schema?.hide) continue
      const missing = parts.filter((part) => schema?.[part] === undefined)
      t.same(missing, [], `${method} ${url} lacks these in its schema; pages set \`hide: true\``)
    }
    t.ok(Object.keys(document.paths).length >= 4)
  })

  t.test(`the ${name} document lists missing_parameter where one may be missing`, async (t) => {
    const listing = Object.values(document.paths)
      .flatMap((operations) => Object.values(operations))
      .filter((operation) => JSON.stringify(operation).includes('/errors/missing_parameter'))
      .map(({ operationId }) => operationId)
    t.strictSame(listing, wantMembers[name])
  })

  t.test(`the ${name} document is clean by Redocly's recommended rules`, async (t) => {
    // An operator reaches the ops listener at localhost.
    const rules = name === 'public' ? {} : ({ 'no-server-example.com': 'off' } as const)
    const config = await createConfig({ extends: ['recommended'], rules })
    const problems = await lintFromString({
      source: JSON.stringify(document),
      absoluteRef: 'openapi.json',
      config,
    })
    t.same(
      problems.map(({ ruleId, message, location }) => `${ruleId}: ${message} ${location[0]?.pointer}`),
      [],
    )
  })
}

t.test('the example of an error names what it is about', async (t) => {
  const { paths, components } = (await listeners()).public!.document
  const params = (response: unknown) =>
    Object.entries((response as Response).content!['application/json']!.examples!).map(
      ([code, { value }]) => [code, (value as { error: { param: string } }).error.param],
    )
  t.strictSame(Object.fromEntries(params(paths['/v1/keys']!.post!.responses[400])), {
    invalid_json: '',
    missing_parameter: 'name',
    unknown_parameter: 'colour',
    invalid_parameter: 'name',
    bad_request: '',
  })
  t.strictSame(params(components.responses.Unauthorized), [['unauthorized', 'authorization']])
})

t.test('the example of a limit is within that of the operator', async (t) => {
  for (const [maximum, example] of [
    [50, 50],
    [1000, 60],
  ] as const)
    t.match(withMaxRateLimit(CreateKeyBody, maximum).properties.rate_limit_rpm, {
      maximum,
      examples: [example],
    })
})
