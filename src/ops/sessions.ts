/**
 * Sessions of the dashboard: a cookie in the place of an operator token. Its value is a name, an
 * expiry and a MAC under a key derived from the operator's token. So every instance accepts it
 * without storing anything, and removing or replacing the token ends its sessions.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { parseCookie, stringifySetCookie } from 'cookie'

export interface OperatorToken {
  readonly name: string
  readonly token: string
}

export interface Sessions {
  /** The Set-Cookie header that begins a session. `isSecure`: the browser came over https. */
  begin(name: string, isSecure: boolean): string
  /** The Set-Cookie header that makes the browser forget its session. */
  end(): string
  /** Whose session a Cookie header has. null: none, an expired one, or one that we did not make. */
  ownerOf(cookies: string | undefined): string | null
}

/** A working day. */
const sessionMaxS = 12 * 3600
export const cookieName = 'latchkey_session'

/** `now` in Unix milliseconds. */
export function createSessions(tokens: readonly OperatorToken[], now: () => number = Date.now): Sessions {
  const keys = new Map(
    tokens.map(({ name, token }) => [name, createHmac('sha256', token).update(cookieName).digest()]),
  )
  const macOf = (key: Buffer, name: string, expiresS: string) =>
    createHmac('sha256', key).update(`${name} ${expiresS}`).digest()
  const cookie = (value: string, maxAge: number, secure: boolean) =>
    stringifySetCookie(cookieName, value, { httpOnly: true, sameSite: 'strict', path: '/', maxAge, secure })

  return {
    begin(name, isSecure) {
      const expiresS = String(Math.floor(now() / 1000) + sessionMaxS)
      const mac = macOf(keys.get(name)!, name, expiresS).toString('base64url')
      return cookie(`${name}.${expiresS}.${mac}`, sessionMaxS, isSecure)
    },
    end: () => cookie('', 0, false),
    ownerOf(cookies) {
      const value = cookies === undefined ? undefined : parseCookie(cookies)[cookieName]
      const [, name = '', expiresS = '', mac = ''] =
        /^(.+)\.([0-9]{10})\.([A-Za-z0-9_-]{43})$/.exec(value ?? '') ?? []
      const key = keys.get(name)
      if (key === undefined || Number(expiresS) * 1000 <= now()) return null
      return timingSafeEqual(macOf(key, name, expiresS), Buffer.from(mac, 'base64url')) ? name : null
    },
  }
}
