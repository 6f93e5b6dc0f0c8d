// The secret key: its format, its checksum, what is shown and stored of it, and how it is redacted.
import { createHmac } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { newId } from '../../src/rules/id.ts'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import { redactAnyToken, tokenFormat } from '../../src/rules/token.ts'

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const lk = tokenFormat('lk')
const prefix = fc.stringMatching(/^[A-Za-z][0-9A-Za-z]{1,15}$/)
const minted = prefix.map((prefix) => ({ prefix, token: tokenFormat(prefix).mint() }))
const token = lk.mint()

t.test(
  'a token is the prefix, an underscore and 38 characters, well formed under no other prefix',
  async () => {
    fc.assert(
      fc.property(minted, prefix, ({ prefix, token }, other) => {
        const hasFormat =
          token.startsWith(`${prefix}_`) && /^[0-9A-Za-z]{38}$/.test(token.slice(prefix.length + 1))
        const underOther = other !== prefix && tokenFormat(other).isWellFormed(token)
        return hasFormat && tokenFormat(prefix).isWellFormed(token) && !underOther
      }),
    )
  },
)

t.test('changing any one character breaks the checksum', async (t) => {
  for (let at = 0; at < token.length; at++) {
    for (const character of base62) {
      const changed = token.slice(0, at) + character + token.slice(at + 1)
      if (changed !== token && lk.isWellFormed(changed)) t.fail(`${changed} passes for ${token}`)
    }
  }
  const anyCharacter = fc.string({ unit: 'binary', minLength: 1, maxLength: 1 })
  fc.assert(
    fc.property(minted, fc.nat(), anyCharacter, ({ prefix, token }, n, character) => {
      const at = n % token.length
      const changed = token.slice(0, at) + character + token.slice(at + 1)
      return changed === token || !tokenFormat(prefix).isWellFormed(changed)
    }),
  )
})

t.test('the checksum is the CRC-32 of what stands before it, in base 62', async (t) => {
  // Computed by another program: other services and leak scanners check tokens by it too.
  for (const [prefix, body, checksum] of [
    ['lk', '0'.repeat(32), '0dawgh'],
    ['lk', 'Latchkey'.repeat(4), '0nVR2w'],
    ['live', 'z'.repeat(32), '1afoMk'],
  ] as const)
    t.ok(tokenFormat(prefix).isWellFormed(`${prefix}_${body}${checksum}`), checksum)
})

t.test('a token is found anywhere in a text, also behind what only begins like one', async (t) => {
  const broken = `${token.slice(0, -1)}${token.endsWith('0') ? '1' : '0'}`
  for (const text of [
    token,
    `at the end: ${token}`,
    `${token} and more`,
    `${token}tail`,
    `x${token}tail`,
    `lk_lk_${token}`,
    `${broken} ${token}`,
    token.slice(3),
    `without its prefix: ${token.slice(3)}.`,
    `?key=${token.replace('_', '%5F')}`,
    `${token.replace('_', '%255f')}&`,
  ])
    t.equal(lk.firstIn(text), token, text)
  const others = [broken, token.slice(0, -1), tokenFormat('xy').mint(), broken.slice(3), `x${token.slice(3)}`]
  for (const text of ['', 'lk_', ...others]) t.equal(lk.firstIn(text), null, text)
})

t.test('swapping neighbours, adding or dropping a character breaks it too', async () => {
  fc.assert(
    fc.property(minted, fc.nat(), fc.constantFrom(...base62), ({ prefix, token }, n, character) => {
      const at = n % (token.length - 1)
      const swapped = token.slice(0, at) + token[at + 1] + token[at] + token.slice(at + 2)
      const shorter = token.slice(0, at) + token.slice(at + 1)
      const longer = token.slice(0, at) + character + token.slice(at)
      return [swapped, shorter, longer].every(
        (text) => text === token || !tokenFormat(prefix).isWellFormed(text),
      )
    }),
  )
})

t.test('what is not a token is not well formed', async (t) => {
  for (const text of ['', 'lk', 'lk_', `lk_${'0'.repeat(38)}`, `${token}\n`, ` ${token}`]) {
    t.notOk(lk.isWellFormed(text), JSON.stringify(text))
  }
})

t.test('tokens are unique and every character is equally likely', async (t) => {
  const tokens = Array.from({ length: 5000 }, () => lk.mint())
  t.equal(new Set(tokens).size, 5000)
  const counts = new Map<string, number>()
  for (const one of tokens) for (const c of one.slice(3, 35)) counts.set(c, (counts.get(c) ?? 0) + 1)
  t.equal(counts.size, 62)
  // 160,000 draws: 2,581 of each on average, with a standard deviation of 50. The bounds are seven
  // of those away.
  const [least, most] = [Math.min(...counts.values()), Math.max(...counts.values())]
  t.ok(least > 2230 && most < 2930, `from ${least} to ${most} times`)
})

t.test('ten characters may be shown, or more after a long prefix', async (t) => {
  t.equal(lk.displayPrefixOf(token), token.slice(0, 10))
  const long = tokenFormat('abcdefghijklmnop')
  t.equal(long.displayPrefixOf(long.mint()).length, 21)
  fc.assert(
    fc.property(minted, ({ prefix, token }) => {
      const shown = tokenFormat(prefix).displayPrefixOf(token)
      return token.startsWith(shown) && shown.length >= 10 && shown.length - prefix.length - 1 <= 7
    }),
  )
})

t.test('what is stored is an HMAC-SHA256 under the secret', async (t) => {
  t.strictSame(keyHasher('one').hash(token), createHmac('sha256', 'one').update(token).digest())
  t.notSame(keyHasher('one').hash(token), keyHasher('two').hash(token))
})

t.test('every token in a text is redacted, and every piece of one', async (t) => {
  fc.assert(
    fc.property(
      minted,
      fc.array(fc.string({ unit: 'binary' }), { minLength: 2 }),
      ({ prefix, token }, around) =>
        !tokenFormat(prefix)
          .redact(around.join(token))
          .includes(token.slice(prefix.length + 1)),
    ),
  )
  t.equal(lk.redact(`/v1/keys/${token}?a=${token}`), '/v1/keys/lk_[redacted]?a=lk_[redacted]')
  t.equal(lk.redact(`x${token}tail/b`), 'xlk_[redacted]/b', 'between letters too')
  for (let length = 10; length <= token.length; length++) {
    t.equal(lk.redact(`/${token.slice(0, length)}`), '/lk_[redacted]')
  }
})

t.test('a whole token without its prefix is redacted too', async (t) => {
  const rest = token.slice(3)
  t.equal(lk.redact(`/v1/keys/${rest}?a=${rest}`), '/v1/keys/[redacted]?a=[redacted]')
  const broken = `${rest.slice(0, -1)}${rest.endsWith('0') ? '1' : '0'}`
  const longer = [`${rest}x`, `x${rest}`, `3D${rest}`, `%zz${rest}`]
  for (const other of [...longer, rest.slice(1), broken]) t.equal(lk.redact(other), other)
})

t.test('a token without its prefix is redacted behind and with percent-encoded characters', async (t) => {
  const rest = token.slice(3)
  const encode = (text: string) => Buffer.from(text).toString('hex').replace(/../g, '%$&')
  for (const before of ['key%3D', 'sk%5f', '%00', '%EF%BC%BF', '%253A', '%'])
    t.equal(lk.redact(`/${before}${rest}/%20`), `/${before}[redacted]/%20`)
  for (const hidden of [encode(rest), encode(rest[0]!) + rest.slice(1), encode(encode(rest))])
    t.equal(lk.redact(`/key%3D${hidden}/%20`), '/key%3D[redacted]/%20')
  const thrice = encode(encode(encode(token)))
  t.equal(lk.redact(thrice), 'lk_[redacted]')
  t.strictSame([lk.firstIn(thrice), lk.isIn(thrice), lk.isIn(encode(thrice))], [token, true, false])
  t.equal(lk.redact(encode(thrice)), encode(thrice), 'and no further')
  t.equal(lk.redact('/plain%20p%61th'), '/plain%20p%61th')
})

t.test('a long text takes no longer per character', async (t) => {
  // Each pass of decoding makes one more character; all characters before one may belong to an escape.
  const escapes = [`${'%'.repeat(20_000)}${'3'.repeat(20_000)}61`, '25'.repeat(30_000)]
  for (const text of [...escapes, 'a'.repeat(2_000_000), `${'a'.repeat(37)}-`.repeat(60_000)]) {
    const took = Array.from({ length: 3 }, () => {
      const startMs = performance.now()
      lk.redact(text + token.slice(3))
      return performance.now() - startMs
    })
    t.ok(Math.min(...took) < 500, `${took} ms`)
  }
})

t.test('a token with percent-encoded characters is redacted too', async (t) => {
  const hex = (character: string) => `%${character.charCodeAt(0).toString(16)}`
  for (const at of [0, 1, 2, 3, 20, token.length - 1]) {
    for (const code of [hex(token[at]!), hex(token[at]!).toUpperCase()]) {
      const encoded = token.slice(0, at) + code + token.slice(at + 1)
      t.equal(lk.redact(`/v1/keys/${encoded}/x`), '/v1/keys/lk_[redacted]/x')
    }
  }
})

t.test('other secrets are redacted too, also with percent-encoded characters', async (t) => {
  const [short, long] = ['0123.+*?(|$^)[]/~', '0123.+*?(|$^)[]/~and-more']
  const hex = Buffer.from(short).toString('hex')
  const { redact } = tokenFormat('lk', [short, long])
  for (const text of [short, long, hex.replace(/../g, '%$&'), hex.toUpperCase().replace(/../g, '%25$&')])
    t.equal(redact(`/admin/${text}/${text}`), '/admin/[redacted]/[redacted]')
  t.equal(redact(short.slice(1)), short.slice(1))
})

t.test('a text without a token is not changed', async (t) => {
  const id = '/v1/keys/apk_0mfz6l0qk0000001xyz'
  for (const text of ['', '/', id, 'lk', 'lk_', '/silk_road', 'lk_[redacted]']) {
    t.equal(lk.redact(text), text)
  }
})

t.test('before the prefix is known, what has the shape of a token is redacted', async (t) => {
  const other = tokenFormat('abcdefghijklmnop').mint()
  t.equal(redactAnyToken(`a ${token}, ${other}.`), 'a [redacted key], [redacted key].')
  for (const text of [`${token}x`, token.slice(0, -1), 'lk_', newId('apk_')])
    t.equal(redactAnyToken(text), text)
})

t.test('a text is too short a beginning if all of it would be shown', async (t) => {
  for (const length of [3, 4, 9]) t.equal(lk.isPartialPrefix(token.slice(0, length)), true)
  for (const text of [token.slice(0, 10), token, 'lk', '', 'xx_1']) t.equal(lk.isPartialPrefix(text), false)
})

t.test('a secret is named by 8 bytes that do not reveal it', async (t) => {
  const idOf = (secret: string) =>
    createHmac('sha256', secret).update('latchkey hash secret id').digest('hex').slice(0, 16)
  const [alone, both] = [keyHasher('one'), keyHasher('two', 'one')]
  t.strictSame([alone.secretId, alone.previousSecretId], [idOf('one'), null])
  t.strictSame([both.secretId, both.previousSecretId], [idOf('two'), idOf('one')])
})
