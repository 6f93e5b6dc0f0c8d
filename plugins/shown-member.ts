/** A member's name that a client has sent, as an error shows it. */

const lengthMax = 100

/** Without secrets, bounded, and without halves of surrogate pairs, which strict parsers refuse. */
export const shownMember = (name: string, redact: (text: string) => string): string =>
  redact(name)
    .slice(0, lengthMax)
    .replace(/\p{Surrogate}/gu, '\ufffd')
