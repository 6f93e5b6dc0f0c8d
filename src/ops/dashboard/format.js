/** Numbers and moments as people read them. */

const whole = new Intl.NumberFormat('en')
const short = new Intl.NumberFormat('en', { maximumSignificantDigits: 3, notation: 'compact' })
const clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' })
const shortClock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'short' })
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' })
/** With the time zone, as the log and the command line have UTC. */
const dayAndClock = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'long' })

export const count = (value) => whole.format(value)
/** For rates and durations. */
export const figure = (value) => (value === null || value === undefined ? '–' : short.format(value))
export const percent = (used, limit) => `${whole.format(Math.round((100 * used) / limit))} %`
export const timeOf = (seconds) => clock.format(seconds * 1000)
export const shortTimeOf = (seconds) => shortClock.format(seconds * 1000)
export const dayOf = (seconds) => day.format(seconds * 1000)
export const moment = (seconds) => (seconds === null ? null : dayAndClock.format(seconds * 1000))

// As in src/rules/printable.ts: control characters and bidi overrides would change what is read.
const unsafe = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu

/** For names, and all other text from outside. */
export const visible = (text) =>
  text.replaceAll(unsafe, (character) => `\\u{${character.codePointAt(0).toString(16)}}`)

const units = [
  [86_400, 'd'],
  [3600, 'h'],
  [60, 'min'],
  [1, 's'],
]

export function duration(seconds) {
  const [size, unit] = units.find(([size]) => seconds >= size) ?? units.at(-1)
  return `${Math.floor(Math.max(seconds, 0) / size)} ${unit}`
}
