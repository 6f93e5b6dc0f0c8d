/** A member's name that a client has sent, as an error shows it. */

const lengthMax = 100
/** Looking for secrets takes 0.3 µs for each character, and a body may have millions. */
const redactedMax = 4096

/** Without secrets, bounded, and without halves of surrogate pairs, which strict parsers refuse. */
export const shownMember = (name: string, redact: (text: string) => string): string =>
  redact(name.slice(0, redactedMax))
    .slice(0, lengthMax)
    .replace(/\p{Surrogate}/gu, '\ufffd')
