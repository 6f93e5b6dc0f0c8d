/**
 * Lets only GitHub's secret scanning use the routes of a scope: a request must carry its signature,
 * ECDSA on P-256 with SHA-256 over the bytes of the body. The body is not parsed before that.
 *
 * Every refusal is recorded before the 401 is sent, within a budget for each address. The budget
 * is not the operators', and a valid signature passes when it is spent: nobody guesses a signature,
 * and behind a proxy GitHub, the operators and anyone else share one address.
 */
import { type KeyObject, verify } from 'node:crypto'
import { finished, Readable } from 'node:stream'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { ApiError, payloadTooLarge, unavailable } from '../../plugins/api-error.ts'
import { createRefusalBudget } from '../guard/refusal-budget.ts'
import { readGithubKeys } from './github-keys.ts'
import {
  challenge,
  type RecordOperatorRefusal,
  refusalsPerAddressRpm,
  tooManyRefusals,
} from './operator-auth.ts'

export interface GithubSignatureOptions {
  /** Read for each request: GitHub replaces its keys now and then, and requests are rare. */
  keysFile: string
  record: RecordOperatorRefusal
  /** Unix milliseconds. */
  now?: (() => number) | undefined
}

/**
 * Maximum number of unverified bodies in memory, each of up to a megabyte. One more fails the oldest,
 * so that bodies that never end cannot keep GitHub's reports out.
 */
const unverifiedMax = 32

export default fp<GithubSignatureOptions>(
  async (app, { keysFile, record, now = Date.now }) => {
    const budget = createRefusalBudget({ perMinute: refusalsPerAddressRpm, now })
    /** Oldest first. */
    const unverified = new Set<Readable>()

    app.addHook('preParsing', async (request, _reply, payload) => {
      const { 'github-public-key-identifier': identifier, 'github-public-key-signature': signature } =
        request.headers
      if (typeof identifier !== 'string' || typeof signature !== 'string')
        throw await refusal('missing_signature', request)
      const key = (await keys()).get(identifier)
      if (key === undefined) throw await refusal('unknown_signer', request)
      const body = await read(payload, request.routeOptions.bodyLimit!)
      if (!verify('sha256', body, key, Buffer.from(signature, 'base64')))
        throw await refusal('wrong_signature', request)
      return Readable.from(body, { objectMode: false })
    })

    async function read(payload: Readable, max: number): Promise<Buffer> {
      const [oldest] = unverified
      if (unverified.size >= unverifiedMax) {
        unverified.delete(oldest!)
        oldest!.emit('error', unavailable(new Error('too many unverified reports at once')))
      }
      unverified.add(payload)
      return bytesOf(payload, max).finally(() => unverified.delete(payload))
    }

    const keys = (): Promise<Map<string, KeyObject>> =>
      readGithubKeys(keysFile).catch((cause) => {
        throw unavailable(cause)
      })

    async function refusal(reason: Parameters<RecordOperatorRefusal>[0], request: FastifyRequest) {
      const waitS = budget.take(request.ip)
      if (waitS > 0) return tooManyRefusals(waitS, 'signature')
      return record(reason, request).then(unsigned, unavailable)
    }
  },
  { name: 'github-signature', dependencies: ['errors'] },
)

const unsigned = () =>
  new ApiError('operator_unauthorized', {
    param: 'github-public-key-signature',
    message: 'The signature is missing or invalid.',
    suggestion:
      'Only GitHub can send this request. If it did, put its current public keys into GITHUB_SCANNING_KEYS_FILE, and see that proxies leave the body as it is.',
    headers: challenge,
  })

/** The bytes as they arrived. */
function bytesOf(payload: Readable, max: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let length = 0
    payload.on('data', (chunk: Buffer) => {
      length += chunk.length
      if (length <= max) return void chunks.push(chunk)
      chunks.length = 0
      reject(payloadTooLarge(max))
    })
    // The client may be gone already: then no event of the stream follows.
    finished(payload, (cause) => {
      if (!cause) return resolve(Buffer.concat(chunks))
      // More may arrive if only the read has failed.
      chunks.length = 0
      length = Number.POSITIVE_INFINITY
      reject(cause instanceof ApiError ? cause : new ApiError('bad_request', { cause }))
    })
  })
}
