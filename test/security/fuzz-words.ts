/** Lists of words as text, for tables that would otherwise be a line for each. */
import fc from 'fast-check'

/** Separated by blanks. */
export const words = (text: string) => text.trim().split(/[ \n]+/)
export const latin1 = (text: string) => Buffer.from(text).toString('latin1')

/** One of them, as bytes: one character of Latin-1 each. */
export const oneOf = (...all: string[]) => fc.constantFrom(...all.map(latin1))

export const anyBytes = (maxLength: number) =>
  fc.uint8Array({ maxLength }).map((bytes) => Buffer.from(bytes).toString('latin1'))

type Weighted<T> = [weight: number, arbitrary: fc.Arbitrary<T>]
export const weighted = <T>(...all: Weighted<T>[]) =>
  fc.oneof(...all.map(([weight, arbitrary]) => ({ weight, arbitrary })))

/** As usual, or wild in that many cases of a hundred. Shrinks to the usual. */
export const mostly = <T>(usual: T, wild: fc.Arbitrary<T>, percent: number): fc.Arbitrary<T> =>
  fc.oneof(
    { withCrossShrink: true },
    { weight: 100 - percent, arbitrary: fc.constant(usual) },
    { weight: percent, arbitrary: wild },
  )
