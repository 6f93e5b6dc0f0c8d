// What a request lacks or has too much of is named, with what to send instead.
import t from 'tap'
import { ajv } from '../../plugins/validation.ts'
import { envelopeOf, otherApp } from './other-app.ts'

const date = { type: 'integer', maximum: 4_102_444_799, suggestion: 'Send Unix seconds.' }
const body = {
  type: 'object',
  additionalProperties: false,
  required: ['name'],
  suggestion: 'Send an object.',
  properties: {
    name: { type: 'string', minLength: 2, maxLength: 3, pattern: '^a', suggestion: 'Send a name.' },
    size: { type: ['integer', 'null'], default: 7 },
    state: { enum: ['on', 'off'] },
    note: { type: 'string', minLength: 1 },
    expires_at: date,
    starts_at: date,
    inner: {
      type: 'object',
      additionalProperties: false,
      required: ['other'],
      properties: { other: { type: 'array', items: { type: 'boolean' } } },
    },
  },
}
const querystring = { type: 'object', properties: { limit: { type: 'string', pattern: '^[0-9]+$' } } }
const params = { type: 'object', properties: { id: { const: 'apk_1' } } }

const { app } = otherApp(t, { ajv: ajv as never })
app.post('/', { schema: { body } }, async (request) => request.body)
app.post('/none', { schema: { body: { type: 'object', additionalProperties: false } } }, async () => 'ok')
const thing = { type: 'object', minProperties: 1, required: ['token'], suggestion: 'Send a token.' }
app.put('/', { schema: { body: thing } }, async () => 'ok')
app.patch('/', { schema: { body: { type: 'object', minProperties: 1 } } }, async () => 'ok')
app.get('/', { schema: { querystring } }, async () => 'ok')
app.get('/:id', { schema: { params } }, async () => 'ok')

const post = (payload: unknown) => app.inject({ method: 'POST', url: '/', payload: payload as object })
const faultOf = async (answer: ReturnType<typeof post>) => {
  const { code, param, message, suggestion } = envelopeOf((await answer).body)
  return [code, param, message, suggestion]
}

t.test('what is sent stays as it is: nothing is converted, removed or added', async (t) => {
  for (const sent of [{ name: 'ab', size: null }, { name: 'ab' }])
    t.strictSame((await post(sent)).json(), sent)
  t.equal((await post({ name: 'ab', size: '7' })).statusCode, 400)
})

t.test('each fault is named by its path', async (t) => {
  for (const [sent, fault] of [
    [{}, ['missing_parameter', 'name', '`name` is required.', 'Send a name.']],
    [
      { name: 'ab', inner: {} },
      ['missing_parameter', 'inner.other', '`other` is required.', 'Send `other`.'],
    ],
    [{ name: 'a' }, ['invalid_parameter', 'name', '`name` must have at least 2 characters.', 'Send a name.']],
    [
      { name: 'abcd' },
      ['invalid_parameter', 'name', '`name` must have at most 3 characters.', 'Send a name.'],
    ],
    [
      { name: 'ba' },
      ['invalid_parameter', 'name', '`name` has a format that is not allowed.', 'Send a name.'],
    ],
    [{ name: 1, size: '' }, ['invalid_parameter', 'name', '`name` must be of type string.', 'Send a name.']],
    [[], ['invalid_parameter', '', 'The body must be of type object.', 'Send an object.']],
  ] as const)
    t.strictSame(await faultOf(post(sent)), fault)
  t.strictSame(await faultOf(app.inject({ method: 'PATCH', url: '/', payload: [] })), [
    'invalid_parameter',
    '',
    'The body must be of type object.',
    'Send a JSON object.',
  ])
  for (const [sent, param, message] of [
    [{ size: 1.5 }, 'size', '`size` must be of type integer or null.'],
    [{ state: 'in' }, 'state', '`state` must be one of on, off.'],
    [{ note: '' }, 'note', '`note` must have at least 1 character.'],
    [{ inner: { other: [true, 1] } }, 'inner.other.1', '`inner.other.1` must be of type boolean.'],
    [{ inner: { other: 1 } }, 'inner.other', '`inner.other` must be of type array.'],
  ] as const) {
    const found = await faultOf(post({ name: 'ab', ...sent }))
    t.strictSame(found, ['invalid_parameter', param, message, 'Correct the parameter named by `param`.'])
  }
})

t.test('an unknown member is shown with those that are known, up to 100 characters of it', async (t) => {
  const known = ['name', 'size', 'state', 'note', 'expires_at', 'starts_at', 'inner'].map(
    (name) => `\`${name}\``,
  )
  const x = 'x'.repeat(100)
  t.strictSame(await faultOf(post({ name: 'ab', [`${x}x`]: 1 })), [
    'unknown_parameter',
    x,
    `\`${x}\` is not a parameter of this operation.`,
    `Remove it, or use one of ${known.join(', ')}.`,
  ])
  const [, param] = await faultOf(post({ name: 'ab', inner: { other: [], more: 1 } }))
  t.equal(param, 'inner.more')
  const [, halved] = await faultOf(post({ name: 'ab', [`${x.slice(1)}😀`]: 1 }))
  t.equal(halved, `${x.slice(1)}\ufffd`, 'with no half of a pair, which strict parsers refuse')
  const none = app.inject({ method: 'POST', url: '/none', payload: { x: 1 } })
  t.match(await faultOf(none), ['unknown_parameter', 'x', /^`x` is not/, 'Remove it.'])
})

t.test('an expiry in milliseconds is recognised', async (t) => {
  for (const [sent, suggestion] of [
    [{ expires_at: 100_000_000_000 }, /milliseconds, of a time in the past\. Send a time in the future/],
    [{ expires_at: Date.now() - 1000 }, /in the past/],
    [{ expires_at: 4_000_000_000_999 }, /milliseconds\. Send Unix seconds, for example 4000000000\.$/],
    [{ expires_at: 4_102_444_799_999 }, /for example 4102444799\.$/],
    [{ expires_at: 4_102_444_800_000 }, /^Send Unix seconds\.$/],
    [{ expires_at: 99_999_999_999 }, /^Send Unix seconds\.$/],
    [{ expires_at: '100000000000' }, /^Send Unix seconds\.$/],
    [{ starts_at: 100_000_000_000 }, /^Send Unix seconds\.$/],
  ] as const)
    t.match((await faultOf(post({ name: 'ab', ...sent })))[3], suggestion)
  const [code, param, message] = await faultOf(post({ name: 'ab', expires_at: 1e12 }))
  t.strictSame(
    [code, param, message],
    ['invalid_parameter', 'expires_at', '`expires_at` is too far in the future.'],
  )
})

t.test('a request that changes nothing, a query and a path are refused as themselves', async (t) => {
  const patch = app.inject({ method: 'PATCH', url: '/', payload: {} })
  t.match(await faultOf(patch), ['missing_parameter', '', 'The request does not change anything.'])
  for (const payload of [{}, { size: 1 }]) {
    const put = app.inject({ method: 'PUT', url: '/', payload })
    t.equal((await faultOf(put))[3], 'Send a token.', 'with the suggestion of the whole')
  }
  const limit = (query: string) => faultOf(app.inject(`/?${query}`))
  t.match(await limit('limit=x'), ['invalid_parameter', 'limit', '`limit` has a format that is not allowed.'])
  t.match(await limit('limit=1&limit=2'), [
    'invalid_parameter',
    'limit',
    '`limit` must not be given more than once.',
  ])
  t.match(await faultOf(app.inject('/apk_2')), ['invalid_parameter', 'id', '`id` must be equal to constant.'])
})
