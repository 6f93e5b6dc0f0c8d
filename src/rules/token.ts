/**
 * The secret key: `<KEY_PREFIX>_`, 32 base62 characters from the system's CSPRNG (190 bits), and 6 base62 characters of
 * CRC-32 over everything before them. With the checksum, a scanner for leaked secrets can tell a key from noise offline.
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

/** Uniform: 248 is a multiple of 62. Bytes from 248 up would favour the first letters, so they are dropped. */
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

/** Whether a token has our format and a valid checksum. It may never have been minted. */
export function isWellFormedToken(token: string, prefix: string): boolean {
  const body = token.slice(0, -checksumLength)
  return (
    token.startsWith(`${prefix}_`) &&
    token.length === prefix.length + 1 + randomLength + checksumLength &&
    /^[0-9A-Za-z]+$/.test(token.slice(prefix.length + 1)) &&
    checksum(body) === token.slice(-checksumLength)
  )
}

/** Whether a text contains one of our keys. */
export function holdsToken(text: string, prefix: string): boolean {
  const length = prefix.length + 1 + randomLength + checksumLength
  for (let at = text.indexOf(`${prefix}_`); at >= 0; at = text.indexOf(`${prefix}_`, at + 1))
    if (isWellFormedToken(text.slice(at, at + length), prefix)) return true
  return false
}

/** The part that may be shown: 10 characters, or more if the prefix is long, so that at least 4 belong to the key itself. */
export const displayPrefixOf = (token: string, prefix: string) =>
  token.slice(0, Math.max(shownLength, prefix.length + 5))

/** What the database stores: HMAC-SHA256 under HASH_SECRET. Without the secret, a copy of the table cannot even be tested against guesses. */
export const hashToken = (token: string, hashSecret: string): Buffer =>
  createHmac('sha256', hashSecret).update(token).digest()

/** Identifies a HASH_SECRET without revealing it: the first 8 bytes, in hex, of the HMAC of a constant under it. */
export const hashSecretId = (hashSecret: string): string =>
  createHmac('sha256', hashSecret).update('latchkey hash secret id').digest('hex').slice(0, 16)

/**
 * Removes everything that looks like one of our keys from a text that will be stored, such as a path. Also finds keys with
 * percent-encoded characters, encoded once or, by proxies in front, several times (`%255f`).
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

/** The same for any prefix, for use before the configuration is read. */
export const redactKeys = (text: string): string => text.replaceAll(ofAnyPrefix, '[redacted key]')

function orEncoded(character: string): string {
  const hex = character.charCodeAt(0).toString(16)
  return `(?:${character}|%(?:25)*${hex.replaceAll(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`)})`
}
