/** The text of a file that holds a secret. */

/**
 * Without outer white space; null if it is not UTF-8. Decoded all the same, UTF-16 or binary data
 * would be another secret, and every key unknown.
 */
export function secretText(content: Buffer): string | null {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(content)
    // Of ASCII in UTF-16, every second byte is one.
    return text.includes('\0') ? null : text.trim()
  } catch {
    return null
  }
}
