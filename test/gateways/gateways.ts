/** The gateways of examples/, as they are printed there but for their addresses. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type LoadBalancer, type ProxyProgram, startProxy } from '../services/load-balancer.ts'
import { freePort } from '../services/ports.ts'

export interface Behind {
  /** Of three instances: the public listener and the ops listener. */
  instances: readonly { port: number; opsPort: number }[]
  servicePort: number
}

type Addresses = [printed: string, actual: string][]

interface Example {
  /** Names of the files, the configuration first. */
  files: [string, ...string[]]
  /** Where the gateway listens. */
  listen: [printed: string, actual: (port: number) => string]
  /** What surrounds the example. */
  frame?: (text: string) => string
  args(folder: string): string[]
}

const examples: Record<ProxyProgram, Example> = {
  nginx: {
    files: ['nginx.conf'],
    listen: ['listen 80;', (port) => `listen 127.0.0.1:${port};`],
    frame: (text) => `
${process.getuid?.() === 0 ? 'user root;' : ''} daemon off; worker_processes 1; pid nginx.pid; error_log stderr error;
events {}
http {
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  ${text}
}`,
    args: (folder) => ['-e', 'stderr', '-p', folder, '-c', 'nginx.conf'],
  },
  haproxy: {
    files: ['haproxy.cfg', 'latchkey.lua'],
    listen: ['bind :80\n', (port) => `bind 127.0.0.1:${port}\n`],
    args: (folder) => ['-db', '-f', join(folder, 'haproxy.cfg')],
  },
  caddy: {
    files: ['Caddyfile'],
    listen: [':80 {', (port) => `:${port} {\n\tbind 127.0.0.1`],
    frame: (text) => `{\n\tadmin off\n}\n${text}`,
    args: (folder) => ['run', '--adapter', 'caddyfile', '--config', join(folder, 'Caddyfile')],
  },
}

/** Null, with a skipped assertion, where the program is not installed. */
export async function startGateway(
  t: Test,
  name: ProxyProgram,
  { instances, servicePort }: Behind,
): Promise<LoadBalancer | null> {
  const { files, listen, frame = (text: string) => text, args } = examples[name]
  const port = await freePort()
  const internalPort = await freePort()
  const addresses: Addresses = [
    [listen[0], listen[1](port)],
    ['127.0.0.1:8080', `127.0.0.1:${servicePort}`],
    ['127.0.0.1:3080', `127.0.0.1:${internalPort}`],
    ...instances.flatMap(
      ({ port, opsPort }, i): Addresses => [
        [`127.0.0.1:${3000 + i}`, `127.0.0.1:${port}`],
        [` port ${9464 + i}\n`, ` port ${opsPort}\n`],
      ],
    ),
  ]
  const texts: Record<string, string> = {}
  for (const file of files) {
    const printed = await readFile(join(import.meta.dirname, '../../examples', name, file), 'utf8')
    const actual = addresses.reduce((text, [from, to]) => text.replaceAll(from, to), printed)
    texts[file] = file === files[0] ? frame(actual) : actual
  }
  return startProxy(t, name, { port, files: texts, args })
}
