/** The supported load balancers and their configurations. */

export interface Backend {
  /** Address and port of an instance. */
  host: string
  /** Port of its /readyz. Without one, it counts as ready while it accepts connections. */
  readyPort?: number
}

export interface ProxyRules {
  /** A header, in lower case. The proxy itself answers 403 to requests that have it. */
  refusedHeader?: string
  /** Pass bodies on as they arrive instead of when they are complete. HAProxy always does. */
  streamed?: boolean
}

export interface ProxyKind {
  name: 'nginx' | 'haproxy'
  /** Its arguments; `file` holds its configuration, and `folder` is its own. */
  args(file: string, folder: string): string[]
  config(port: number, backends: readonly Backend[], rules?: ProxyRules): string
}

const check = ({ readyPort }: Backend) =>
  readyPort === undefined ? '' : ` check port ${readyPort} inter 200ms fall 2 rise 1`

/** Both keep connections to the instances open, as in production. */
export const proxyKinds: readonly ProxyKind[] = [
  {
    name: 'nginx',
    args: (file, folder) => ['-e', 'stderr', '-p', folder, '-c', file],
    // It has no health checks: an instance that refuses a connection gets no requests for a second.
    config: (port, backends, { refusedHeader, streamed = false } = {}) => `
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 8192; }
worker_rlimit_nofile 16384;
http {
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  keepalive_requests 100000000;
  upstream latchkey {
    ${backends.map(({ host }) => `server ${host} max_fails=1 fail_timeout=1s;`).join(' ')}
    keepalive 64;
    keepalive_requests 100000000;
  }
  server {
    listen 127.0.0.1:${port};
    ${refusedHeader ? `if ($http_${refusedHeader.replaceAll('-', '_')}) { return 403; }` : ''}
    proxy_request_buffering ${streamed ? 'off' : 'on'};
    location / { proxy_pass http://latchkey; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
}
`,
  },
  {
    name: 'haproxy',
    args: (file) => ['-db', '-f', file],
    config: (port, backends, { refusedHeader } = {}) => `
global
  nbthread 1
defaults
  mode http
  timeout connect 1s
  timeout client 75s
  timeout server 30s
  timeout check 10s
frontend public
  bind 127.0.0.1:${port}
${refusedHeader ? `  http-request deny deny_status 403 if { req.hdr(${refusedHeader}) -m found }\n` : ''}  default_backend latchkey
backend latchkey
  http-reuse always
  option httpchk GET /readyz
  option redispatch
${backends.map((backend, i) => `  server latchkey${i} ${backend.host}${check(backend)}`).join('\n')}
`,
  },
]
