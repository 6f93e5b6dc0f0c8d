/**
 * The secret key: `<KEY_PREFIX>_`, 32 base62 characters from the system's CSPRNG (190 bits) and 6 base62 characters
 * of CRC-32 over all before them, by which a scanner of leaked secrets tells a key from noise without asking us.
 */
import { createHmac, randomBytes } from 'node:crypto'
import { crc32 } from 'node:zlib'

const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const randomLength = 32
const checksumLength = 6
const shownLength = 10

/** A new secret. */
export function mintToken(prefix: string): string {
  const body = `${prefix}_${randomBase62(randomLength)}`
  return body + checksum(body)
}

/** Uniform: bytes from 248 up would favour the first letters, and are drawn again. */
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

/** Whether a token has the form and checksum of one of ours. Says nothing about whether it was ever minted. */
export function isWellFormedToken(token: string, prefix: string): boolean {
  const body = token.slice(0, -checksumLength)
  return (
    token.startsWith(`${prefix}_`) &&
    token.length === prefix.length + 1 + randomLength + checksumLength &&
    /^[0-9A-Za-z]+$/.test(token.slice(prefix.length + 1)) &&
    checksum(body) === token.slice(-checksumLength)
  )
}

/** Whether one of our keys stands in a text. */
export function holdsToken(text: string, prefix: string): boolean {
  const length = prefix.length + 1 + randomLength + checksumLength
  for (let at = text.indexOf(`${prefix}_`); at >= 0; at = text.indexOf(`${prefix}_`, at + 1))
    if (isWellFormedToken(text.slice(at, at + length), prefix)) return true
  return false
}

/** The part that may be shown: 10 characters; more under a long prefix, so that at least 4 are the key's own. */
export const displayPrefixOf = (token: string, prefix: string) =>
  token.slice(0, Math.max(shownLength, prefix.length + 5))

/** What is stored: HMAC-SHA256 under HASH_SECRET, so that a copy of the table alone cannot even be guessed at. */
export const hashToken = (token: string, hashSecret: string): Buffer =>
  createHmac('sha256', hashSecret).update(token).digest()

/** Tells one HASH_SECRET from another without telling it: the HMAC of a constant under it, its first 8 bytes in hex. */
export const hashSecretId = (hashSecret: string): string =>
  createHmac('sha256', hashSecret).update('latchkey hash secret id').digest('hex').slice(0, 16)

/**
 * Takes everything that looks like one of our keys out of a text that is to be kept, such as a path; also where some of its
 * characters are percent-encoded, once or, by a proxy in front, again and again (`%255f`).
 */
export function redactTokens(text: string, prefix: string): string {
  let pattern = patterns.get(prefix)
  if (pattern === undefined) {
    const begin = [...`${prefix}_`].map(orEncoded).join('')
    pattern = new RegExp(`${begin}(?:[0-9A-Za-z_]|%(?:25)*[0-9A-Fa-f]{2}){6,}`, 'g')
    patterns.set(prefix, pattern)
  }
  return text.replaceAll(pattern, `${prefix}_[redacted]`)
}

const patterns = new Map<string, RegExp>()

const ofAnyPrefix = new RegExp(
  `[A-Za-z][0-9A-Za-z]{1,15}_[0-9A-Za-z]{${randomLength + checksumLength}}(?![0-9A-Za-z])`,
  'g',
)

/** The same where it is not known what the prefix is: before the configuration has been read. */
export const redactKeys = (text: string): string => text.replaceAll(ofAnyPrefix, '[redacted key]')

function orEncoded(character: string): string {
  const hex = character.charCodeAt(0).toString(16)
  return `(?:${character}|%(?:25)*${hex.replaceAll(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`)})`
}
