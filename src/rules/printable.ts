/**
 * Text that is safe on a terminal. Strangers choose names, paths and headers: control characters
 * (C1 included) would move the cursor, bidi overrides would reorder a line, and U+2028 would break
 * it. The joiners U+200C and U+200D stay: emoji and some scripts need them.
 */
const unsafe = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu

/** One line: line breaks are escaped too. */
export const printable = (text: string): string =>
  text.replaceAll(unsafe, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`)

/** JSON.stringify leaves most of these raw. The result is still JSON for the same value. */
export const printableJson = (value: unknown): string =>
  JSON.stringify(value).replaceAll(unsafe, (character) => character.split('').map(unicodeEscape).join(''))

const unicodeEscape = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
