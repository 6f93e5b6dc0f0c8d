// The secret key: its form, its checksum, what is shown and stored of it, and that it leaves every text that is kept.
import { createHmac } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { keyHasher } from '../../src/rules/key-hasher.ts'
import { tokenFormat } from '../../src/rules/token.ts'

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const lk = tokenFormat('lk')
const prefix = fc.stringMatching(/^[A-Za-z][0-9A-Za-z]{1,15}$/)
const token = prefix.map((prefix) => ({ prefix, token: tokenFormat(prefix).mint() }))

t.test('a token is the prefix, an underscore, 32 characters of chance and 6 of checksum', async (t) => {
  fc.assert(
    fc.property(token, ({ prefix, token }) => {
      const secret = token.slice(prefix.length + 1)
      return token.startsWith(`${prefix}_`) && /^[0-9A-Za-z]{38}$/.test(secret)
    }),
  )
  t.match(lk.mint(), /^lk_[0-9A-Za-z]{38}$/)
})

t.test('every token minted is well formed under its prefix, and under no other', async (t) => {
  fc.assert(
    fc.property(token, prefix, ({ prefix, token }, other) => {
      return (
        tokenFormat(prefix).isWellFormed(token) &&
        (other === prefix || !tokenFormat(other).isWellFormed(token))
      )
    }),
  )
  t.pass('for every prefix tried')
})

t.test('a change of any one character breaks the checksum', async (t) => {
  const minted = lk.mint()
  const wrong: string[] = []
  for (let at = 0; at < minted.length; at++) {
    for (const character of base62) {
      const changed = minted.slice(0, at) + character + minted.slice(at + 1)
      if (changed !== minted && lk.isWellFormed(changed)) wrong.push(changed)
    }
  }
  t.strictSame(wrong, [])
  fc.assert(
    fc.property(
      token,
      fc.nat(),
      fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }),
      (one, n, character) => {
        const at = n % one.token.length
        const changed = one.token.slice(0, at) + character + one.token.slice(at + 1)
        return changed === one.token || !tokenFormat(one.prefix).isWellFormed(changed)
      },
    ),
  )
})

t.test('neighbours that changed places, one too many and one too few break it too', async (t) => {
  fc.assert(
    fc.property(token, fc.nat(), fc.constantFrom(...base62), ({ prefix, token }, n, character) => {
      const at = n % (token.length - 1)
      const swapped = token.slice(0, at) + token[at + 1] + token[at] + token.slice(at + 2)
      const shorter = token.slice(0, at) + token.slice(at + 1)
      const longer = token.slice(0, at) + character + token.slice(at)
      return [swapped, shorter, longer].every(
        (text) => text === token || !tokenFormat(prefix).isWellFormed(text),
      )
    }),
  )
  t.pass('wherever it was tried')
})

t.test('what is no token at all is not well formed', async (t) => {
  for (const text of ['', 'lk', 'lk_', `lk_${'0'.repeat(38)}`, `${lk.mint()}\n`, ` ${lk.mint()}`]) {
    t.notOk(lk.isWellFormed(text), JSON.stringify(text))
  }
})

t.test('no token is minted twice, and every character is drawn', async (t) => {
  const tokens = Array.from({ length: 5000 }, () => lk.mint())
  t.equal(new Set(tokens).size, 5000)
  const counts = new Map<string, number>()
  for (const one of tokens) for (const c of one.slice(3, 35)) counts.set(c, (counts.get(c) ?? 0) + 1)
  t.equal(counts.size, 62)
  // 160,000 draws: 2,581 of each, deviation 50; seven of them either way.
  const [least, most] = [Math.min(...counts.values()), Math.max(...counts.values())]
  t.ok(least > 2230 && most < 2930, `drawn alike: from ${least} to ${most} times`)
})

t.test('the first ten characters of a token may be shown', async (t) => {
  const minted = lk.mint()
  t.equal(lk.displayPrefixOf(minted), minted.slice(0, 10))
  const long = tokenFormat('abcdefghijklmnop').mint()
  t.ok(
    tokenFormat('abcdefghijklmnop').displayPrefixOf(long).length > 'abcdefghijklmnop_'.length,
    'also of the key itself',
  )
  fc.assert(
    fc.property(token, ({ prefix, token }) => {
      const shown = tokenFormat(prefix).displayPrefixOf(token)
      return token.startsWith(shown) && shown.length >= 10 && shown.length - prefix.length - 1 <= 7
    }),
  )
})

t.test('what is stored is an HMAC-SHA256 under the secret', async (t) => {
  const minted = lk.mint()
  const hash = keyHasher('secret one').hash(minted)
  t.strictSame(hash, createHmac('sha256', 'secret one').update(minted).digest())
  t.equal(hash.length, 32)
  t.notSame(hash, keyHasher('secret two').hash(minted), 'another secret, another environment')
})

t.test('a token leaves every text, wherever in it and however often it stands', async (t) => {
  fc.assert(
    fc.property(
      token,
      fc.array(fc.string({ unit: 'binary' }), { minLength: 2 }),
      ({ prefix, token }, around) => {
        const kept = tokenFormat(prefix).redact(around.join(token))
        return !kept.includes(token.slice(prefix.length + 1))
      },
    ),
  )
  const minted = lk.mint()
  t.equal(lk.redact(`/v1/keys/${minted}?a=${minted}`), '/v1/keys/lk_[redacted]?a=lk_[redacted]')
  t.equal(lk.redact(`x${minted}tail/b`), 'xlk_[redacted]/b', 'also with letters about it')
})

t.test('half a token leaves the text too', async (t) => {
  const minted = lk.mint()
  for (let length = 10; length <= minted.length; length++) {
    t.equal(lk.redact(`/${minted.slice(0, length)}`), '/lk_[redacted]')
  }
})

t.test('a text without a token is kept as it is', async (t) => {
  const id = '/v1/keys/apk_0mfz6l0qk0000001xyz'
  for (const text of ['', '/', id, 'lk', 'lk_', '/silk_road', 'lk_[redacted]']) {
    t.equal(lk.redact(text), text)
  }
})

t.test('a token leaves a text also where some of its characters are percent-encoded', async (t) => {
  const minted = lk.mint()
  const hex = (character: string) => `%${character.charCodeAt(0).toString(16)}`
  for (const at of [0, 1, 2, 3, 20, minted.length - 1]) {
    for (const code of [hex(minted[at]!), hex(minted[at]!).toUpperCase()]) {
      const encoded = minted.slice(0, at) + code + minted.slice(at + 1)
      t.equal(lk.redact(`/v1/keys/${encoded}/x`), '/v1/keys/lk_[redacted]/x')
    }
  }
})
