/** Both listeners without the servers behind: their documents and routes. No request is sent to them. */
import type { FastifyInstance, RouteOptions } from 'fastify'
import { createApp } from '../../src/http/app.ts'
import { createOps } from '../../src/ops/listener.ts'
import { tokenFormat } from '../../src/rules/token.ts'

export async function listeners() {
  const config = { baseUrl: 'http://latchkey.test', port: 0, trustProxy: false, defaultRateLimitRpm: 1000 }
  const stores = { tokenFormat: tokenFormat('lk') }
  const app = createApp({ config, ...stores } as never)
  const opsWith = (githubKeysFile: string | null) =>
    createOps({
      service: { stores } as never,
      docsBase: app.docsBase,
      state: () => 'ready',
      tokens: [],
      metricsToken: null,
      githubKeysFile,
      defaultRateLimitRpm: 1000,
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
