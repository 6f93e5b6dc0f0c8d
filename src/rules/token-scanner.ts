/**
 * Finds tokens of our shape in any amount of text, by prefix and checksum: more than a gigabyte a
 * second, in the memory of one chunk. A token that is cut by the border of two chunks is found too.
 * One that is percent-encoded, or whose letters are not single bytes (UTF-16), is not.
 */
import type { TokenFormat } from './token.ts'

const isLetterOrDigit = Uint8Array.from({ length: 256 }, (_, byte) =>
  Number(/[0-9A-Za-z]/.test(String.fromCharCode(byte))),
)

/**
 * Returns a function that takes the chunks of one text in their order, and returns the tokens that
 * end in each.
 */
export function tokenScanner({ prefix, tokenLength, isWellFormed }: TokenFormat) {
  const start = Buffer.from(`${prefix}_`)
  /** The end of the text so far: a token may have begun there. */
  let rest: Buffer = Buffer.alloc(0)

  return function scan(chunk: Buffer): string[] {
    const found: string[] = []
    // Contains every token that crosses the border, and none that lies within the chunk.
    const border = Buffer.concat([rest, chunk.subarray(0, tokenLength - 1)])
    addTokensIn(border, found)
    addTokensIn(chunk, found)
    const end = chunk.length < tokenLength ? border : chunk
    // A copy, so that it does not keep the whole chunk.
    rest = Buffer.from(end.subarray(Math.max(0, end.length - tokenLength + 1)))
    return found
  }

  function addTokensIn(text: Buffer, found: string[]) {
    for (let at = text.indexOf(start); at >= 0; at = text.indexOf(start, at + 1)) {
      if (!isRunAt(text, at + start.length)) continue
      const token = text.toString('latin1', at, at + tokenLength)
      if (isWellFormed(token)) found.push(token)
    }
  }

  /** Rejects most candidates without decoding their bytes, which would take much longer. */
  function isRunAt(text: Buffer, from: number): boolean {
    const end = from + tokenLength - start.length
    let to = from
    while (to < end && isLetterOrDigit[text[to]!]) to++
    return to === end
  }
}

/**
 * Returns a function that takes the chunks of one text in their order, and says whether it has turned
 * out to be UTF-16: by its byte order mark, or by the start of a token.
 */
export function utf16Finder({ prefix }: TokenFormat) {
  // In either byte order.
  const start = Buffer.from(`${prefix}_`, 'utf16le').subarray(0, -1)
  const restLength = start.length - 1
  let rest: Buffer = Buffer.alloc(0)
  let before = 0

  return function isUtf16(chunk: Buffer): boolean {
    const border = Buffer.concat([rest, chunk.subarray(0, restLength)])
    // Windows writes a byte order mark.
    const hasMark = before < 2 && ['fffe', 'feff'].includes(border.toString('hex', 0, 2))
    before += chunk.length
    const end = chunk.length < restLength ? border : chunk
    rest = Buffer.from(end.subarray(Math.max(0, end.length - restLength)))
    return hasMark || border.includes(start) || chunk.includes(start)
  }
}
