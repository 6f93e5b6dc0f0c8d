/** Both listeners without the servers behind: their documents and routes. No request is sent to them. */
import type { FastifyInstance, RouteOptions } from 'fastify'
import { createApp } from '../../src/http/app.ts'
import { createOps } from '../../src/ops/listener.ts'
import { tokenFormat } from '../../src/rules/token.ts'

export async function listeners() {
  const rateLimits = { defaultRateLimitRpm: 1000, maxRateLimitRpm: 1_000_000_000 }
  const config = { baseUrl: 'http://latchkey.test', port: 0, trustProxy: false, ...rateLimits }
  const stores = { tokenFormat: tokenFormat('lk') }
  const app = createApp({ config, ...stores } as never)
  const opsWith = (githubScanningKeysFile: string | null) =>
    createOps({
      config: { opsTokens: [], metricsToken: null, githubScanningKeysFile, ...rateLimits },
      service: { stores } as never,
      docsBase: app.docsBase,
      state: () => 'ready',
    })
  return {
    public: await ready(app),
    admin: await ready(opsWith('no-file-is-read')),
    withoutGithub: await ready(opsWith(null)),
  }
}

async function ready(app: FastifyInstance) {
  const routes: RouteOptions[] = []
  app.addHook('onRoute', (route) => void routes.push(route))
  await app.ready()
  return { document: app.openapi(), routes }
}
