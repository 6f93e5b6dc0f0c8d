/** The client of the admin API, which is on the ops listener. */
import type { components, operations } from './admin-api.ts'
import { pages } from './pages.ts'
import { type CallOptions, type ClientOptions, createSend, has } from './send.ts'

type Schemas = components['schemas']
type Query<Name extends keyof operations> = NonNullable<operations[Name]['parameters']['query']>

export interface AdminClientOptions extends ClientOptions {
  /** A token from OPS_TOKEN. */
  token: string
}
export type AdminClient = ReturnType<typeof createAdminClient>

/** Throws a TypeError if `baseUrl` is no plain http or https URL, or `token` cannot be in a header. */
export function createAdminClient({ token, ...options }: AdminClientOptions) {
  const send = createSend(token, options)
  const at =
    (collection: string) =>
    (id: string, ...more: string[]) => ['admin', collection, id, ...more]
  const user = at('users')
  const key = at('keys')
  return {
    users: {
      create: (body: Schemas['CreateUserBody'], options?: CallOptions) =>
        send<Schemas['User']>({ method: 'POST', path: ['admin', 'users'], body, ...options }),
      list: (query?: Query<'listUsers'>, options?: CallOptions) =>
        pages<Schemas['User']>(send, { method: 'GET', path: ['admin', 'users'], query, ...options }),
      get: (id: string, options?: CallOptions) =>
        send<Schemas['User']>({ method: 'GET', path: user(id), ...options }),
      update: (id: string, body: Schemas['PatchUserBody'], options?: CallOptions) =>
        send<Schemas['User']>({ method: 'PATCH', path: user(id), body, ...options }),
      delete: (id: string, options?: CallOptions) =>
        send<Schemas['User']>({ method: 'DELETE', path: user(id), ...options }),
      revokeKeys: (id: string, options?: CallOptions) =>
        send<Schemas['RevokedKeys']>({
          isOurs: has('revoked'),
          method: 'POST',
          path: user(id, 'revoke-keys'),
          ...options,
        }),
    },
    keys: {
      create: (body: Schemas['AdminCreateKeyBody'], options?: CallOptions) =>
        send<Schemas['AdminCreatedKey']>({ method: 'POST', path: ['admin', 'keys'], body, ...options }),
      list: (query?: Query<'listKeys'>, options?: CallOptions) =>
        pages<Schemas['AdminKey']>(send, { method: 'GET', path: ['admin', 'keys'], query, ...options }),
      get: (id: string, options?: CallOptions) =>
        send<Schemas['AdminKey']>({ method: 'GET', path: key(id), ...options }),
      update: (id: string, body: Schemas['PatchKeyBody'], options?: CallOptions) =>
        send<Schemas['AdminKey']>({ method: 'PATCH', path: key(id), body, ...options }),
      revoke: (id: string, options?: CallOptions) =>
        send<Schemas['AdminKey']>({ method: 'DELETE', path: key(id), ...options }),
      rotate: (id: string, body: Schemas['RotateKeyBody'] = {}, options?: CallOptions) =>
        send<Schemas['AdminCreatedKey']>({ method: 'POST', path: key(id, 'rotate'), body, ...options }),
      usage: (id: string, query?: Query<'getKeyUsage'>, options?: CallOptions) =>
        send<Schemas['Usage']>({
          isOurs: has('step'),
          method: 'GET',
          path: key(id, 'usage'),
          query,
          ...options,
        }),
      /** Finds leaked keys in a text. */
      scan: (body: Schemas['ScanBody'], options?: CallOptions) =>
        send<Schemas['ScanResult']>({
          isOurs: has('unknown'),
          method: 'POST',
          path: ['admin', 'keys', 'scan'],
          body,
          ...options,
        }),
    },
    counters: (query?: Query<'listCounters'>, options?: CallOptions) =>
      send<Schemas['Counters']>({
        isOurs: has('minute'),
        method: 'GET',
        path: ['admin', 'counters'],
        query,
        ...options,
      }),
    instances: (options?: CallOptions) =>
      send<Schemas['InstanceList']>({
        isOurs: has('instances'),
        method: 'GET',
        path: ['admin', 'instances'],
        ...options,
      }),
    lookup: (query: string, options?: CallOptions) =>
      send<Schemas['Lookup']>({
        isOurs: has('type'),
        method: 'POST',
        path: ['admin', 'lookup'],
        body: { query },
        ...options,
      }),
    audit: (query?: Query<'listAuditEntries'>, options?: CallOptions) =>
      pages<Schemas['AuditEntry']>(send, { method: 'GET', path: ['admin', 'audit'], query, ...options }),
  }
}
