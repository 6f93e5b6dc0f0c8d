// What an error of Redis, of a socket or of TLS is called.
import { ReplyError } from 'ioredis'
import t from 'tap'
import { isAnswer, isVague, outageOf } from '../../src/redis/outage.ts'
import { type Outage, Unavailable } from '../../src/stores.ts'

const withCode = (code: string, message = 'x') => Object.assign(new Error(message), { code })
const causes: [error: Error, cause: Outage['cause']][] = [
  [new Unavailable('no answer in 100 ms'), 'timeout'],
  [new Error('timeout'), 'timeout'],
  [withCode('ETIMEDOUT', 'connect ETIMEDOUT'), 'timeout'],
  [new Error('ERR the script ran into a timeout'), 'other'],
  [new Error('WRONGPASS invalid username-password pair or user is disabled.'), 'wrong_password'],
  [new Error('NOAUTH Authentication required.'), 'wrong_password'],
  [new Error('ERR invalid password'), 'wrong_password'],
  [new Error("NOPERM this user has no permissions to run the 'time' command"), 'no_permission'],
  [
    new Error('ERR ACL failure in script: User x has no permissions to run the mget command'),
    'no_permission',
  ],
  [new Error("-ERR The user executing the script can't run this command or subcommand"), 'no_permission'],
  [
    new Error('ERR Error running script: @user_script: 1: -READONLY You can not write against a replica.'),
    'read_only',
  ],
  [new Error("OOM command not allowed when used memory > 'maxmemory'."), 'out_of_memory'],
  [new Error('CLUSTERDOWN The cluster is down'), 'cluster_down'],
  [new Error('LOADING Redis is loading the dataset in memory'), 'loading'],
  [withCode('ECONNREFUSED', ''), 'refused'],
  [withCode('EHOSTUNREACH'), 'unreachable'],
  [withCode('ENETDOWN'), 'unreachable'],
  [withCode('ENOTFOUND', 'getaddrinfo'), 'unknown_host'],
  [withCode('EAI_AGAIN', 'getaddrinfo'), 'unknown_host'],
  [withCode('ERR_TLS_CERT_ALTNAME_INVALID'), 'certificate'],
  [withCode('UNABLE_TO_VERIFY_LEAF_SIGNATURE'), 'certificate'],
  [withCode('INVALID_PURPOSE'), 'certificate'],
  [withCode('ERR_SSL_WRONG_VERSION_NUMBER'), 'tls'],
  [withCode('EPROTO'), 'tls'],
  [new Error('Unknown RESP type 21 "\\u0015"'), 'tls'],
  [
    withCode('ECONNRESET', 'Client network socket disconnected before secure TLS connection was established'),
    'tls',
  ],
  [withCode('ECONNRESET'), 'disconnected'],
  [withCode('EPIPE'), 'disconnected'],
  [new Error('not connected'), 'disconnected'],
  [new Error('Connection is closed.'), 'disconnected'],
  [new Error("Stream isn't writeable and enableOfflineQueue options is false"), 'disconnected'],
  [new Error("Cluster isn't ready and enableOfflineQueue options is false"), 'disconnected'],
  [new Error('Reached the max retries per request limit (which is 0).'), 'disconnected'],
  [new Error('MISCONF Redis is configured to save RDB snapshots'), 'other'],
  [withCode('EMFILE'), 'other'],
]

for (const [error, cause] of causes) {
  const { code } = error as { code?: string }
  t.test(`${[code, error.message].filter(Boolean).join(' ')}: ${cause}`, async (t) => {
    t.equal(outageOf(error).cause, cause)
    t.equal(isVague(error), cause === 'disconnected')
  })
}

t.test(
  'the reason is the message, or else the code, without a password and which script failed',
  async (t) => {
    t.equal(outageOf(new Error(' LOADING Redis ')).reason, 'LOADING Redis')
    t.equal(outageOf(withCode('ECONNREFUSED', '')).reason, 'ECONNREFUSED')
    const unknown = "ERR unknown command 'AUTH', with args beginning with: 'secret'\n 'more' "
    t.equal(outageOf(new Error(unknown)).reason, "ERR unknown command 'AUTH'")
    const full = `OOM command not allowed when used memory > 'maxmemory'.`
    const failed = `${full} script: 9be9283860375dc0a789b44c11a2bb1dce6e480f, on @user_script:37.`
    t.equal(outageOf(new Error(failed)).reason, full)
  },
)

t.test('the reason names no option of ioredis', async (t) => {
  for (const message of [
    "Stream isn't writeable and enableOfflineQueue options is false",
    "Cluster isn't ready and enableOfflineQueue options is false",
    'Reached the max retries per request limit (which is 0). Refer to "maxRetriesPerRequest" option for details.',
  ])
    t.equal(outageOf(new Error(message)).reason, 'not connected')
})

t.test('the reason for a TLS alert in place of a reply does not ask to report it', async (t) => {
  const alert = 'Unknown RESP type 21 "\\u0015". Please report this.'
  t.equal(outageOf(new Error(alert)).reason, 'the server speaks TLS')
})

t.test('a server that is not a Redis is named as such', async (t) => {
  const { reason } = outageOf(new Error('Unknown RESP type 72 "H". Please report this.'))
  t.equal(reason, 'the server is not a Redis')
})

t.test('the reason for a TLS fault is in words', async (t) => {
  const line = '80CC:error:0A00010B:SSL routines:ssl3_get_record:wrong version number:../deps/s.c:350:\n'
  const { cause, reason } = outageOf(withCode('ERR_SSL_WRONG_VERSION_NUMBER', line))
  t.strictSame([cause, reason], ['tls', 'TLS: wrong version number'])
})

t.test('only a reply of a server is an answer', async (t) => {
  t.equal(isAnswer(new ReplyError('ERR x')), true)
  t.equal(isAnswer(withCode('ECONNRESET')), false)
})
