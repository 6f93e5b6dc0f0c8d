// Finding leaked tokens in text: all of them, wherever the text is cut, and nothing else.
import { randomInt } from 'node:crypto'
import t from 'tap'
import { tokenFormat } from '../../src/rules/token.ts'
import { tokenScanner, utf16Finder } from '../../src/rules/token-scanner.ts'

const format = tokenFormat('lk')
const { mint } = format
const scanned = (chunks: Buffer[]) => {
  const scan = tokenScanner(format)
  return chunks.flatMap((chunk) => scan(chunk))
}
const inOne = (text: string) => scanned([Buffer.from(text)])

t.test('a token is found whatever is around it, as often as it is there', async (t) => {
  const [one, two] = [mint(), mint()]
  t.same(inOne(one), [one])
  t.same(inOne(`KEY=${one}\n{"key":"${two}"}${one}`), [one, two, one])
  t.same(inOne(`xlk_${one}lk_lk_${two}A é\0`), [one, two])
})

t.test('what only looks like a token is not found', async (t) => {
  const token = mint()
  const wrong = token.slice(0, -1) + (token.endsWith('0') ? '1' : '0')
  for (const text of ['', 'lk_', wrong, token.slice(0, -1), token.replace('lk_', 'sk_'), token.toLowerCase()])
    t.same(inOne(text), [], text)
})

t.test('UTF-16 is recognised wherever the text is cut', async (t) => {
  const recognised = (text: Buffer, size: number) => {
    const isUtf16 = utf16Finder(format)
    const chunks = []
    for (let at = 0; at < text.length; at += size) chunks.push(text.subarray(at, at + size))
    return chunks.map((chunk) => isUtf16(chunk)).includes(true)
  }
  const texts = ['\ufeffno token', `a log line\n${mint()}`].map((text) => Buffer.from(text, 'utf16le'))
  for (const text of [...texts, ...texts.map((little) => Buffer.from(little).swap16())])
    for (const size of [1, 2, 3, 4, 5, 6, 7, 1000]) t.ok(recognised(text, size), `in chunks of ${size}`)
  const inUtf8 = Buffer.concat([Buffer.from(mint()), Buffer.from([0xff, 0xfe]), Buffer.from(mint())])
  for (const size of [1, 3, 41, 1000]) t.notOk(recognised(inUtf8, size), 'a mark inside is none')
})

t.test('no border of two chunks hides a token, or shows it twice', async (t) => {
  const tokens = Array.from({ length: 40 }, mint)
  const text = Buffer.from(tokens.map((token) => `${'é'.repeat(randomInt(9))}${token}`).join('\n'))
  for (const max of [1, 2, 3, 40, 41, 42, 1000]) {
    for (const min of [max, 1]) {
      const chunks = []
      for (let at = 0, size = 0; at < text.length; at += size) {
        size = randomInt(min, max + 1)
        chunks.push(text.subarray(at, at + size))
      }
      t.same(scanned(chunks), tokens, `chunks of ${min} to ${max}`)
    }
  }
})
