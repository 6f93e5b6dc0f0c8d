/** Why a server does not count: the kind of the fault, and its words without any credential. */
import { type Outage, Unavailable } from '../stores.ts'

type Cause = Outage['cause']

/** Codes of Node's sockets and of OpenSSL. Those of certificates have no common form. */
const codes: [RegExp, Cause][] = [
  [/^ECONNREFUSED$/, 'refused'],
  [/^(EHOST|ENET)(UNREACH|DOWN)$/, 'unreachable'],
  [/^(ENOTFOUND|EAI_\w+)$/, 'unknown_host'],
  [/^ETIMEDOUT$/, 'timeout'],
  [/^(ECONNRESET|EPIPE)$/, 'disconnected'],
  [
    /CERT|ISSUER|LEAF_SIGNATURE|SELF_SIGNED|CRL|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE)|PATH_LENGTH/,
    'certificate',
  ],
  [/^(ERR_SSL|ERR_TLS|EPROTO)/, 'tls'],
]

/** A script repeats the error of the command that failed in it: Redis 7 as it is, earlier versions inside a sentence. */
const messages: [RegExp, Cause][] = [
  [/\bWRONGPASS\b|\bNOAUTH\b|invalid password/, 'wrong_password'],
  [/\bNOPERM\b|no permissions|can't run this command/, 'no_permission'],
  [/\bREADONLY\b/, 'read_only'],
  [/\bOOM\b/, 'out_of_memory'],
  [/\bCLUSTERDOWN\b/, 'cluster_down'],
  [/\bLOADING\b/, 'loading'],
  // An alert record of TLS, read as an answer.
  [/^Unknown RESP type 21 /, 'tls'],
  [/before secure TLS connection/, 'tls'],
  [/^timeout$/i, 'timeout'],
  [/not connected|Connection is closed|isn't writeable|max retries per request/, 'disconnected'],
]

const find = (kinds: [RegExp, Cause][], text: string) => kinds.find(([kind]) => kind.test(text))?.[1]

function causeOf(error: Error): Cause {
  if (error instanceof Unavailable) return 'timeout'
  const { code } = error as { code?: unknown }
  return find(messages, error.message) ?? find(codes, String(code)) ?? 'other'
}

export function outageOf(error: Error): Outage {
  const { code } = error as { code?: unknown }
  // A server that does not know AUTH repeats the password: "unknown command 'AUTH', with args beginning with: …"
  const words = error.message.replace(/,? with args beginning with.*/s, '').trim()
  return { cause: causeOf(error), reason: words || String(code) }
}

/** Nothing is known but that there is no connection, so any other error says more. */
export const isVague = (error: Error) => causeOf(error) === 'disconnected'

/** Whether a server has answered so; any other error says only that no answer came. */
export const isAnswer = (error: Error) => error.name === 'ReplyError'
