// The changes that can be made to a key: the request for each, and how to tell by an answer whether it is acted upon.
import { operator as actor } from '../../src/commands/command.ts'
import { type Answer, type Instance, makeKey, makeUser } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { patiently, type ThreeInstances } from './three-instances.ts'

export interface Change {
  readonly name: string
  /** Asks one instance for it, and tells the status. */
  make(url: string): Promise<number>
  /** Asks one instance for what shows it. */
  look(url: string): Promise<Answer>
  /** Whether that answer was given by the old state. */
  isOld(answer: Answer): boolean
}

export interface People {
  userId: string
  manager: { token: string }
  key: { id: string; token: string }
}

/** A user with a key to change and one to change it by. */
export function makePeople(operator: Instance, wanted: { rateLimitRpm?: number } = {}): Promise<People> {
  return patiently(async () => {
    const { id: userId } = await makeUser(operator)
    const [manager, key] = await Promise.all(
      [{}, wanted].map((more) => makeKey(operator, { userId, ...more })),
    )
    return { userId, manager: manager!, key: key! }
  })
}

const verify = (url: string, token: string) => ask(`GET ${url}/v1/verify`, { token })

/** Lets every instance have the key in its cache. */
export async function warm({ urls }: ThreeInstances, token: string): Promise<void> {
  for (const { status } of await Promise.all(urls.map((url) => verify(url, token))))
    if (status !== 200) throw new Error(`a new key was answered ${status}`)
}

const isNoRefusal = ({ status }: Answer) => status !== 401

const nowS = () => Math.floor(Date.now() / 1000)
let made = 0

/** By default to values that the key never had. */
export function changesOf({ manager, key }: People) {
  const { token } = key
  const path = `/v1/keys/${key.id}`
  const patch = (json: object) => async (url: string) =>
    (await ask(`PATCH ${url}${path}`, { token: manager.token, json })).status
  const look = (url: string) => verify(url, token)

  return {
    limit: (rateLimitRpm = 1_000_000 + ++made): Change => ({
      name: 'limit',
      make: patch({ rate_limit_rpm: rateLimitRpm }),
      look,
      isOld: ({ headers, body }) =>
        headers.get('x-ratelimit-limit') !== String(rateLimitRpm) || body.rate_limit_rpm !== rateLimitRpm,
    }),
    expiry: (expiresAt = nowS() + 10_000 + ++made): Change => ({
      name: 'expiry',
      make: patch({ expires_at: expiresAt }),
      look,
      isOld: ({ status, body }) => status !== 200 || body.expires_at !== expiresAt,
    }),
    name: (name = `name ${++made}`): Change => ({
      name: 'name',
      make: patch({ name }),
      look: (url) => ask(`GET ${url}${path}`, { token }),
      isOld: ({ body }) => body.name !== name,
    }),
    revocation: (): Change => ({
      name: 'revocation',
      make: async (url) => (await ask(`DELETE ${url}${path}`, { token: manager.token })).status,
      look,
      isOld: isNoRefusal,
    }),
  }
}

/** Of the user, as seen by one of the user's keys. */
export const deletion = (token: string, remove: () => Promise<unknown>): Change => ({
  name: 'deletion of the user',
  make: () => remove().then(() => 200),
  look: (url) => verify(url, token),
  isOld: isNoRefusal,
})

/** What `latchkey users delete` does, without a process of its own. */
export async function removeUser({ service: { stores } }: Instance, userId: string): Promise<void> {
  await stores.users.remove(userId, actor())
}
