/**
 * Leaked keys that GitHub has found in public places: revoked at once, because anyone may have seen
 * them. The response repeats no token, only its hash.
 */
import { createHash } from 'node:crypto'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import type { Static } from '@sinclair/typebox'
import { GithubScanBody, GithubScanResult } from '../../../schemas/github-scan.ts'
import { actorOf } from '../../http/routes/actor.ts'
import { tokenScanner } from '../../rules/token-scanner.ts'
import { collectLeaks, type LeakedKeysOptions } from './leaked-keys.ts'

/** Thousands of matches. Anybody who reaches the listener can make it read this much. */
const bodyMaxBytes = 1_048_576
const urlMax = 512

export const githubScanRoute: FastifyPluginAsyncTypebox<LeakedKeysOptions> = async (app, options) => {
  const { tokenFormat } = options

  app.post(
    '/admin/keys/scan/github',
    {
      bodyLimit: bodyMaxBytes,
      config: { credential: 'signature' },
      schema: {
        operationId: 'revokeReportedKeys',
        summary: 'Revoke keys that GitHub has found',
        description:
          "For GitHub's secret scanning, whose signature must verify under a key in GITHUB_SCANNING_KEYS_FILE. Without that setting, the route does not exist. Revokes the keys, and answers once every instance refuses them.",
        tags: ['Keys'],
        body: GithubScanBody,
        response: { 200: GithubScanResult },
      },
    },
    async (request) => {
      const actor = { ...actorOf(request, tokenFormat), operator: 'partner:github' as const }
      // GitHub's pattern may match more than the key.
      const matches = request.body.map((match) => ({
        ...match,
        tokens: tokenScanner(tokenFormat)(Buffer.from(match.token)),
      }))
      const placeIn = new Map<string, Place | undefined>()
      for (const { tokens, ...match } of matches)
        for (const token of tokens) if (!placeIn.has(token)) placeIn.set(token, placeOf(match))
      const leaks = collectLeaks(options, actor, { detailsOf: (token) => placeIn.get(token) })
      const known = await leaks.add([...placeIn.keys()])
      if (leaks.faults.length > 0) throw leaks.faults[0]
      return matches.map(({ token, type, tokens }) => ({
        token_hash: createHash('sha256').update(token).digest('hex'),
        token_type: type,
        label: tokens.some((one) => known.has(one))
          ? ('true_positive' as const)
          : ('false_positive' as const),
      }))
    },
  )

  /** Where a key was found, as it may be stored. */
  function placeOf({ source, url }: Static<typeof GithubScanBody>[0]): Place | undefined {
    const place = {
      ...(source && /^[A-Za-z_]{1,64}$/.test(source) && { source }),
      ...(url && URL.canParse(url) && { url: tokenFormat.redact(new URL(url).href).slice(0, urlMax) }),
    }
    return Object.keys(place).length > 0 ? place : undefined
  }
}

type Place = Record<string, string>
