/** Why a server is not counting: the kind of error, and its message without credentials. */
import { opensslReason } from '../rules/openssl.ts'
import { type Outage, Unavailable } from '../stores.ts'

type Cause = Outage['cause']

/**
 * Error codes of Node's sockets and of OpenSSL. The codes for certificates follow no common
 * pattern.
 */
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

/**
 * The error of a script repeats that of the command that failed in it: verbatim in Redis 7, inside
 * a sentence in earlier versions.
 */
const messages: [RegExp, Cause][] = [
  [/\bWRONGPASS\b|\bNOAUTH\b|invalid password/, 'wrong_password'],
  [/\bNOPERM\b|no permissions|can't run this command/, 'no_permission'],
  [/\bREADONLY\b/, 'read_only'],
  [/\bOOM\b/, 'out_of_memory'],
  [/\bCLUSTERDOWN\b/, 'cluster_down'],
  [/\bLOADING\b/, 'loading'],
  // A TLS alert record, parsed as a reply.
  [/^Unknown RESP type 21 /, 'tls'],
  [/before secure TLS connection/, 'tls'],
  [/^timeout$/i, 'timeout'],
  [/not connected|Connection is closed|max retries per request|enableOfflineQueue/, 'disconnected'],
]

const find = (kinds: [RegExp, Cause][], text: string) => kinds.find(([kind]) => kind.test(text))?.[1]

function causeOf(error: Error): Cause {
  if (error instanceof Unavailable) return 'timeout'
  const { code } = error as { code?: unknown }
  return find(messages, error.message) ?? find(codes, String(code)) ?? 'other'
}

export function outageOf(error: Error): Outage {
  const { code } = error as { code?: unknown }
  const refusal = opensslReason(error.message)
  if (refusal !== undefined) return { cause: causeOf(error), reason: `TLS: ${refusal}` }
  // A server that does not know AUTH repeats the password in its error: "unknown command 'AUTH',
  // with args beginning with: …"
  const reason = error.message
    .replace(/,? with args beginning with.*/s, '')
    // Redis 7 adds which script failed, and in which line of it.
    .replace(/ script: [0-9a-f]{40}, on @user_script:\d+\.?$/, '')
    // A TLS alert, as above: whether it arrives or the connection ends first is chance.
    .replace(/^Unknown RESP type 21 .*$/s, 'the server speaks TLS')
    .replace(/^Unknown RESP type .*$/s, 'the server is not a Redis')
    // ioredis names its options, which are not the operator's.
    .replace(/^.*(enableOfflineQueue|maxRetriesPerRequest).*$/, 'not connected')
    .trim()
  return { cause: causeOf(error), reason: reason || String(code) }
}

/** Whether the error says only that there is no connection. Any other error says more. */
export const isVague = (error: Error) => causeOf(error) === 'disconnected'

/** Whether the error is a server's reply. Any other error means that there was no reply. */
export const isAnswer = (error: Error) => error.name === 'ReplyError'
