/** Which web page a request comes from, and whether it names this machine. */
import { isIPv4 } from 'node:net'
import type { FastifyRequest } from 'fastify'

export const isLoopback = (address: string) =>
  address === '::1' || (isIPv4(address) && address.startsWith('127.'))

/**
 * By DNS rebinding, a web page can reach this machine under its own host name. The browser then
 * sends that name.
 */
export function namesLoopback(host = ''): boolean {
  const name = /^(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:\d+)?$/.exec(host.toLowerCase())?.[1] ?? ''
  return name === 'localhost' || name.endsWith('.localhost') || isLoopback(name.replace(/^\[(.*)\]$/, '$1'))
}

export const isSafe = ({ method }: FastifyRequest) => ['GET', 'HEAD', 'OPTIONS'].includes(method)

/**
 * A browser says which page a request comes from: by Origin if the request changes something, and
 * by Sec-Fetch-Site always. A link may lead here from anywhere, but not into a frame of another site's
 * page. Clients that are not browsers send neither.
 */
export function isFromForeignPage(request: FastifyRequest): boolean {
  const { origin, host = '', ...headers } = request.headers
  const site = headers['sec-fetch-site']
  const [mode, destination = 'document'] = [headers['sec-fetch-mode'], headers['sec-fetch-dest']]
  const isLink = isSafe(request) && mode === 'navigate' && destination === 'document'
  if (site !== undefined && site !== 'same-origin' && site !== 'none' && !isLink) return true
  if (origin === undefined || isSafe(request)) return false
  if (!URL.canParse(origin)) return true
  const page = new URL(origin)
  // A proxy may add the scheme's default port, which Origin leaves out.
  const here = `${page.protocol}//${host}`
  return !URL.canParse(here) || new URL(here).host !== page.host
}
