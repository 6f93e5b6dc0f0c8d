/** Leaked keys in a text, for CI and for people who have found one. */
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { ScanBody, ScanResult, scanTextMax } from '../../../schemas/scan.ts'
import { actorOf } from '../../http/routes/actor.ts'
import { tokenScanner } from '../../rules/token-scanner.ts'
import { collectLeaks, type LeakedKeysOptions } from './leaked-keys.ts'

/** A UTF-16 unit takes at most 6 bytes in JSON. A longer text is refused as too large. */
const bodyMaxBytes = 6 * scanTextMax + 1024

export const scanRoute: FastifyPluginAsyncTypebox<LeakedKeysOptions> = async (app, options) => {
  app.post(
    '/admin/keys/scan',
    {
      bodyLimit: bodyMaxBytes,
      schema: {
        operationId: 'scanForKeys',
        summary: 'Find leaked keys in a text',
        description:
          'Says which keys of this service the text contains, by prefix and checksum, and revokes them if `revoke` is true. Answers once every instance refuses them. The text is neither stored nor logged.',
        tags: ['Keys'],
        body: ScanBody,
        response: { 200: ScanResult },
      },
    },
    async (request) => {
      const { text, revoke = false } = request.body
      const leaks = collectLeaks(options, revoke ? actorOf(request, options.tokenFormat) : null)
      await leaks.add(tokenScanner(options.tokenFormat)(Buffer.from(text)))
      if (leaks.faults.length > 0) throw leaks.faults[0]
      return leaks.result()
    },
  )
}
