/** What a secret would look like if it had been left somewhere, and how to find it. */

/**
 * Too long to appear by chance, and short enough that a text cut off in its middle still has one.
 */
const pieceLength = 12

/** Everything that gives a secret away, as bytes, by what it is. */
export type Forms = ReadonlyMap<string, Buffer>

/** The pieces of a text: as they are, in hex, base64, percent-escapes and two-byte characters. */
export function formsOf(secret: string): Forms {
  const forms = new Map<string, Buffer>()
  for (let i = 0; i < Math.floor(secret.length / pieceLength); i++) {
    const piece = secret.slice(i * pieceLength, (i + 1) * pieceLength)
    const add = (form: string, text: string | Buffer) =>
      forms.set(`piece ${i + 1} ${form}`, Buffer.from(text))
    const hex = Buffer.from(piece).toString('hex')
    add('as it is', piece)
    add('in UTF-16', Buffer.from(piece, 'utf16le'))
    for (const [letters, digits] of [
      ['lower', hex],
      ['upper', hex.toUpperCase()],
    ] as const) {
      add(`in hex, ${letters} case`, digits)
      add(`percent-encoded, ${letters} case`, digits.replace(/../g, '%$&'))
    }
    // Base64 depends on how many bytes come before.
    for (const offset of [0, 1, 2]) add(`in base64 at ${offset}`, insideBase64(piece, offset))
  }
  return forms
}

/** Of a key what follows its public beginning. */
export const formsOfKey = (token: string): Forms => formsOf(token.slice(10))

/** The characters that depend on the piece alone, whatever surrounds it. */
function insideBase64(piece: string, offset: number): string {
  const whole = Buffer.from('\0'.repeat(offset) + piece).toString('base64')
  return whole.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + piece.length) * 8) / 6))
}

/**
 * What is searched: the bytes, and what their percent-escapes stand for, two deep, as proxies make
 * them.
 */
export function layersOf(remains: Buffer | string): Buffer[] {
  const bytes = typeof remains === 'string' ? Buffer.from(remains) : remains
  const once = unescaped(aroundEscapes(bytes))
  return [bytes, once, unescaped(once)]
}

/** Which forms are in there. */
export const found = (layers: Buffer[], forms: Forms): string[] =>
  [...forms].filter(([, form]) => layers.some((layer) => layer.includes(form))).map(([name]) => name)

const beforeEscape = 64
const afterEscape = 192
const isHex = (byte: number | undefined) => byte !== undefined && /[0-9a-f]/i.test(String.fromCharCode(byte))

/**
 * The bytes around every escape, in order. Unescaping a whole database would take longer than
 * everything else.
 */
function aroundEscapes(bytes: Buffer): Buffer {
  const parts: Buffer[] = []
  let end = 0
  for (let at = bytes.indexOf('%'); at >= 0; at = bytes.indexOf('%', Math.max(end, at + 1))) {
    if (!isHex(bytes[at + 1]) || !isHex(bytes[at + 2])) continue
    const begin = Math.max(at - beforeEscape, end)
    if (begin > end) parts.push(Buffer.from('\n'))
    end = at + afterEscape
    parts.push(bytes.subarray(begin, end))
  }
  return Buffer.concat(parts)
}

const unescaped = (bytes: Buffer) =>
  Buffer.from(
    bytes
      .toString('latin1')
      .replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16))),
    'latin1',
  )
