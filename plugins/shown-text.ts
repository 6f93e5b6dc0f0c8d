/** What a client has sent, as errors and the audit log show it. */

const lengthMax = 100
/** Looking for secrets takes time for each character, and a body may have millions. */
const redactedMax = 4096

/** Replaces halves of surrogate pairs, which strict parsers of JSON and Postgres refuse. */
export const wellFormed = (text: string): string => text.replace(/\p{Surrogate}/gu, '\ufffd')

/** The name of a member: without secrets, bounded and well-formed. */
export const shownMember = (name: string, redact: (text: string) => string): string =>
  wellFormed(redact(name.slice(0, redactedMax)).slice(0, lengthMax))
