/** Comparing what was answered with what was wanted, where some of what was wanted is known by its form or bounds only. */
import { isDeepStrictEqual } from 'node:util'

export interface Form {
  readonly form: string
  readonly fits: (value: unknown) => boolean
}

export const like = (pattern: RegExp): Form => ({
  form: String(pattern),
  fits: (value) => typeof value === 'string' && pattern.test(value),
})
export const wholeBetween = (from: number, to: number): Form => ({
  form: `${from} to ${to}`,
  fits: (value) => Number.isInteger(value) && Number(value) >= from && Number(value) <= to,
})
export const orNull = ({ form, fits }: Form): Form => ({
  form: `${form} or null`,
  fits: (value) => value === null || fits(value),
})

const isForm = (value: unknown): value is Form => isObject(value) && typeof value.fits === 'function'
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Where the two differ first, in words; null if nowhere. A member that was not wanted is a difference. */
export function differenceOf(wanted: unknown, given: unknown, at: string): string | null {
  if (isForm(wanted) ? wanted.fits(given) : isDeepStrictEqual(wanted, given)) return null
  if (Array.isArray(wanted) && Array.isArray(given) && wanted.length === given.length)
    return first(wanted.map((_, i) => differenceOf(wanted[i], given[i], `${at}[${i}]`)))
  if (isObject(wanted) && !isForm(wanted) && isObject(given)) {
    const names = new Set([...Object.keys(wanted), ...Object.keys(given)])
    return first([...names].map((name) => differenceOf(wanted[name], given[name], `${at}.${name}`)))
  }
  return `${at} is ${show(given)} instead of ${show(wanted)}`
}

const first = (differences: (string | null)[]) => differences.find((one) => one !== null) ?? null
const show = (value: unknown) => JSON.stringify(value, (_, one) => (isForm(one) ? one.form : one)) ?? 'absent'
