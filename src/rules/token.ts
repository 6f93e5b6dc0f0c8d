/**
 * The secret key: `<KEY_PREFIX>_`, 32 base62 characters from the system's CSPRNG (190 bits), and 6
 * base62 characters of CRC-32 over everything before them. With the checksum, a scanner for leaked
 * secrets can tell a key from noise offline.
 */
import { randomBytes } from 'node:crypto'
import { crc32 } from 'node:zlib'

/** The format of one deployment's tokens. */
export interface TokenFormat {
  /** KEY_PREFIX. */
  readonly prefix: string
  /** Characters in every token. */
  readonly tokenLength: number
  /** Characters in the part that may be shown. */
  readonly displayPrefixLength: number
  /** A new secret. */
  mint(): string
  /** Whether a token begins with the prefix, and has the length and the letters of one. */
  hasShape(token: string): boolean
  /** Whether a token has the shape and a valid checksum. It may never have been minted. */
  isWellFormed(token: string): boolean
  /**
   * The first well-formed token in a text, which may lack its prefix there, or have percent-encoded
   * characters.
   */
  firstIn(text: string): string | null
  isIn(text: string): boolean
  /**
   * The part that may be shown: 10 characters, or more if the prefix is long, so that at least 4
   * belong to the key itself.
   */
  displayPrefixOf(token: string): string
  /**
   * Removes everything that looks like a token from a text that will be stored, such as a path.
   * Also finds tokens with percent-encoded characters, encoded once or, by proxies in front,
   * several times (`%255f`), whole tokens without their prefix, and the other secrets.
   */
  redact(text: string): string
  /** Whether a text is only the beginning of a display prefix: too short to find a key by. */
  isPartialPrefix(text: string): boolean
}

const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const randomLength = 32
const checksumLength = 6
const shownLength = 10
/** Also what proxies have encoded again (`%255f`). */
const encoded = /%(?:25)*([0-9A-Fa-f]{2})/g

const restLength = randomLength + checksumLength
/** Whole runs only: one that began at each of a million letters would take seconds. */
const longRun = new RegExp(`(?<![0-9A-Za-z])[0-9A-Za-z]{${restLength},}`, 'g')
const oneEncoded = new RegExp(`^${encoded.source}$`)

/** In a text made for it, each pass may uncover just one more. */
const passes = 3

/** Decodes letters, digits and underscores only. */
function withPlainLetters(text: string): string {
  let plain = text
  for (let i = 0; i < passes; i++)
    plain = plain.replaceAll(encoded, (code, hex) => {
      const character = String.fromCharCode(Number.parseInt(hex, 16))
      return /\w/.test(character) ? character : code
    })
  return plain
}

/** `secrets`: what else is redacted, such as operator tokens; visible ASCII characters. */
export function tokenFormat(prefix: string, secrets: readonly string[] = []): TokenFormat {
  const start = `${prefix}_`
  const length = start.length + randomLength + checksumLength
  const shown = Math.max(shownLength, start.length + 4)
  const anyPart = new RegExp(`${orEncoded(start)}(?:[0-9A-Za-z_]|%(?:25)*[0-9A-Fa-f]{2}){6,}`, 'g')
  // One may begin with another.
  const others = secrets
    .toSorted((a, b) => b.length - a.length)
    .map((secret) => new RegExp(orEncoded(secret), 'g'))

  const hasShape = (token: string) =>
    token.startsWith(start) && token.length === length && /^[0-9A-Za-z]+$/.test(token.slice(start.length))

  const isWellFormed = (token: string) =>
    hasShape(token) && checksum(token.slice(0, -checksumLength)) === token.slice(-checksumLength)

  const isRest = (text: string) => isWellFormed(start + text)

  /** The end of a run, if it is a token without its prefix. That may follow an encoded character (`key%3D`). */
  function restIn(run: string, at: number, text: string): string | null {
    const before = run.slice(0, -restLength)
    if (before !== '' && !oneEncoded.test(text.slice(at - 1, at) + before)) return null
    const rest = run.slice(-restLength)
    return isRest(rest) ? rest : null
  }

  function firstPlain(text: string): string | null {
    for (let at = text.indexOf(start); at >= 0; at = text.indexOf(start, at + 1)) {
      const token = text.slice(at, at + length)
      if (isWellFormed(token)) return token
    }
    for (const { 0: run, index } of text.matchAll(longRun)) {
      const rest = restIn(run, index, text)
      if (rest !== null) return start + rest
    }
    return null
  }

  const redactPlain = (text: string) =>
    others
      .reduce((rest, secret) => rest.replaceAll(secret, '[redacted]'), text)
      .replaceAll(anyPart, `${start}[redacted]`)
      .replaceAll(longRun, (run: string, at: number, whole: string) =>
        restIn(run, at, whole) === null ? run : `${run.slice(0, -restLength)}[redacted]`,
      )

  /** What is found only once it is decoded is stored decoded. */
  function redact(text: string): string {
    const redacted = redactPlain(text)
    const plain = withPlainLetters(redacted)
    return firstPlain(plain) === null ? redacted : redactPlain(plain)
  }

  const firstIn = (text: string) => firstPlain(text) ?? firstPlain(withPlainLetters(text))

  return {
    prefix,
    tokenLength: length,
    displayPrefixLength: shown,
    hasShape,
    isWellFormed,
    mint() {
      const body = start + randomBase62(randomLength)
      return body + checksum(body)
    },
    firstIn,
    isIn: (text) => firstIn(text) !== null,
    displayPrefixOf: (token) => token.slice(0, shown),
    isPartialPrefix: (text) => text.startsWith(start) && text.length < shown,
    redact,
  }
}

/**
 * Uniform: 248 is a multiple of 62. Bytes from 248 up would favour the first letters, so they are
 * dropped.
 */
function randomBase62(length: number): string {
  let text = ''
  while (text.length < length) {
    for (const byte of randomBytes(length * 2)) {
      if (byte < 248 && text.length < length) text += alphabet[byte % 62]
    }
  }
  return text
}

function checksum(body: string): string {
  let n = crc32(body)
  let text = ''
  for (let i = 0; i < checksumLength; i++) {
    text = alphabet[n % 62] + text
    n = Math.floor(n / 62)
  }
  return text
}

/** A pattern that finds an ASCII text, whichever of its characters are percent-encoded. */
const orEncoded = (text: string): string =>
  Buffer.from(text)
    .toString('hex')
    .replaceAll(/../g, (hex) => {
      const digits = hex.replaceAll(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`)
      return `(?:\\x${hex}|%(?:25)*${digits})`
    })

const ofAnyPrefix = new RegExp(
  `[A-Za-z][0-9A-Za-z]{1,15}_[0-9A-Za-z]{${randomLength + checksumLength}}(?![0-9A-Za-z])`,
  'g',
)

/** Removes the tokens of any prefix, for use before the configuration is read. */
export const redactAnyToken = (text: string): string => text.replaceAll(ofAnyPrefix, '[redacted key]')
