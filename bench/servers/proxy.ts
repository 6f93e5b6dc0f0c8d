/** A load balancer in front of several instances: nginx or HAProxy, whichever is on PATH. */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { freePort } from './free-port.ts'
import { stopProcess } from './stop-process.ts'

export interface Proxy {
  name: string
  url: string
  stop(): Promise<void>
}

/** Connections to the instances are kept, as one would in production. */
const kinds = [
  {
    name: 'nginx',
    args: (file: string, folder: string) => ['-e', 'stderr', '-p', folder, '-c', file],
    config: (port: number, hosts: string[]) => `
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  keepalive_requests 100000000;
  upstream latchkey {
    ${hosts.map((host) => `server ${host};`).join(' ')}
    keepalive 64;
    keepalive_requests 100000000;
  }
  server {
    listen 127.0.0.1:${port};
    location / { proxy_pass http://latchkey; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
}
`,
  },
  {
    name: 'haproxy',
    args: (file: string) => ['-db', '-f', file],
    config: (port: number, hosts: string[]) => `
global
  nbthread 1
defaults
  mode http
  timeout connect 1s
  timeout client 75s
  timeout server 30s
frontend public
  bind 127.0.0.1:${port}
  default_backend latchkey
backend latchkey
  http-reuse always
${hosts.map((host, i) => `  server latchkey${i} ${host}`).join('\n')}
`,
  },
]

const startMsMax = 5000

/** Null where there is none. */
export function chooseProxy(): ((folder: string, urls: string[]) => Promise<Proxy>) | null {
  const kind = kinds.find(({ name }) => spawnSync(name, ['-v']).status === 0)
  return kind === undefined ? null : (folder, urls) => startProxy(kind, folder, urls)
}

async function startProxy(kind: (typeof kinds)[number], folder: string, urls: string[]): Promise<Proxy> {
  const port = await freePort()
  const own = await mkdtemp(join(folder, `${kind.name}-`))
  const file = join(own, 'config')
  await writeFile(
    file,
    kind.config(
      port,
      urls.map((url) => new URL(url).host),
    ),
  )
  const child = spawn(kind.name, kind.args(file, own), { stdio: ['ignore', 'ignore', 'inherit'] })
  await accepts(port, () => child.exitCode === null)
  return { name: kind.name, url: `http://127.0.0.1:${port}`, stop: () => stopProcess(child) }
}

async function accepts(port: number, runs: () => boolean): Promise<void> {
  for (const untilMs = performance.now() + startMsMax; performance.now() < untilMs; await pause(20)) {
    if (!runs()) throw new Error('the proxy ended at once')
    const open = await new Promise((resolve) => {
      const socket = connect(port, '127.0.0.1')
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
      socket.once('connect', () => socket.destroy())
    })
    if (open) return
  }
  throw new Error('the proxy does not listen')
}
