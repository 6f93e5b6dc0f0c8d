/**
 * The client of Latchkey's API, for any JavaScript platform. Its types come from the API document;
 * it depends on nothing but fetch.
 *
 *     const latchkey = createClient({ baseUrl: 'https://keys.example.com', key })
 *     for await (const { id, name } of latchkey.keys.list()) console.log(id, name)
 */
import type { components, operations } from './api.ts'
import { pages } from './pages.ts'
import { type CallOptions, type ClientOptions, createSend, has } from './send.ts'

export { type AdminClient, type AdminClientOptions, createAdminClient } from './admin.ts'
export { type ErrorCode, LatchkeyError } from './errors.ts'
export type { CallOptions, ClientOptions } from './send.ts'

type Schemas = components['schemas']
export type Key = Schemas['Key']
export type CreatedKey = Schemas['CreatedKey']
export type Usage = Schemas['Usage']
export type Verified = Schemas['Verified']

type ListQuery = NonNullable<operations['listKeys']['parameters']['query']>
type UsageQuery = NonNullable<operations['getKeyUsage']['parameters']['query']>

export type Client = ReturnType<typeof createClient>

/** Throws a TypeError if `baseUrl` is no plain http or https URL, or `key` cannot be in a header. */
export function createClient({ key, ...options }: ClientOptions & { key: string }) {
  const send = createSend(key, options)
  const pathOf = (id: string, ...more: string[]) => ['v1', 'keys', id, ...more]
  return {
    keys: {
      /** Never repeated after an unknown outcome, so it creates at most one key. */
      create: (body: Schemas['CreateKeyBody'], options?: CallOptions) =>
        send<CreatedKey>({ method: 'POST', path: ['v1', 'keys'], body, ...options }),
      /** All keys, newest first, page by page as they are read. `limit` is the size of a page. */
      list: (query?: ListQuery, options?: CallOptions) =>
        pages<Key>(send, { method: 'GET', path: ['v1', 'keys'], query, ...options }),
      get: (id: string, options?: CallOptions) => send<Key>({ method: 'GET', path: pathOf(id), ...options }),
      update: (id: string, body: Schemas['PatchKeyBody'], options?: CallOptions) =>
        send<Key>({ method: 'PATCH', path: pathOf(id), body, ...options }),
      revoke: (id: string, options?: CallOptions) =>
        send<Key>({ method: 'DELETE', path: pathOf(id), ...options }),
      /** Never repeated after an unknown outcome. */
      rotate: (id: string, body: Schemas['RotateKeyBody'] = {}, options?: CallOptions) =>
        send<CreatedKey>({ method: 'POST', path: pathOf(id, 'rotate'), body, ...options }),
      usage: (id: string, query?: UsageQuery, options?: CallOptions) =>
        send<Usage>({ isOurs: has('step'), method: 'GET', path: pathOf(id, 'usage'), query, ...options }),
    },
    /** Whose key this is. Counts as one request. */
    verify: (options?: CallOptions) =>
      send<Verified>({ isOurs: has('key_id'), method: 'GET', path: ['v1', 'verify'], ...options }),
  }
}
