// What a secret would look like if it had been left somewhere, and looking for it in whatever was left.

/** Long enough that it is nowhere by chance, short enough that a text cut off in its middle still has one. */
const pieceLength = 12

/** All that gives a secret away, as bytes, by what it is. */
export type Forms = ReadonlyMap<string, Buffer>

/** Of a text: its pieces as they are, and as they are written in hex, base64, percent-escapes and two-byte characters. */
export function formsOf(secret: string): Forms {
  const forms = new Map<string, Buffer>()
  const pieces = Math.floor(secret.length / pieceLength)
  for (let i = 0; i < pieces; i++) {
    const piece = secret.slice(i * pieceLength, (i + 1) * pieceLength)
    const add = (form: string, text: string) =>
      forms.set(`piece ${i + 1} ${form}`, Buffer.from(text, 'latin1'))
    const hex = Buffer.from(piece).toString('hex')
    add('as it is', piece)
    add('in hex', hex)
    add('in hex, upper case', hex.toUpperCase())
    add('percent-encoded', hex.replace(/../g, '%$&'))
    add('percent-encoded, upper case', hex.toUpperCase().replace(/../g, '%$&'))
    add('in UTF-16', Buffer.from(piece, 'utf16le').toString('latin1'))
    // What comes before decides how the bytes fall into threes.
    for (const offset of [0, 1, 2]) add(`in base64 at ${offset}`, insideBase64(piece, offset))
  }
  return forms
}

/** Of a key what follows its public beginning. */
export const formsOfKey = (token: string): Forms => formsOf(token.slice(10))

/** The characters that are the piece's alone, whatever surrounds it. */
function insideBase64(piece: string, offset: number): string {
  const whole = Buffer.from('\0'.repeat(offset) + piece).toString('base64')
  const first = Math.ceil((offset * 8) / 6)
  const last = Math.floor(((offset + piece.length) * 8) / 6)
  return whole.slice(first, last)
}

/** What is searched: the bytes, and what their percent-escapes stand for; two deep, as proxies make them. */
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

/** The neighbourhood of every escape, in order: to unescape all of a database would take longer than all else. */
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

function unescaped(bytes: Buffer): Buffer {
  const text = bytes.toString('latin1')
  const plain = text.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)))
  return Buffer.from(plain, 'latin1')
}
