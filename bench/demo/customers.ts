/** Who calls the service of the demo: users and keys, made through the admin API as a backend would. */

/** Sends with one Authorization header. */
export interface Client {
  name: string
  authorization: string | null
  /** Requests a second, on average. */
  perS: number
  /** From the ranges kept for examples (RFC 5737). */
  address: string
}

interface Wanted {
  user: string
  key: string
  limitRpm: number
  perS: number
  /** What happens to it before the traffic begins. */
  fate?: 'revoked' | 'owner deleted'
}

const wanted: Wanted[] = [
  { user: 'Northwind Logistics', key: 'tracking', limitRpm: 1200, perS: 19.8 },
  { user: 'Northwind Logistics', key: 'staging', limitRpm: 300, perS: 0.7 },
  { user: 'Acme Robotics', key: 'fleet telemetry', limitRpm: 6000, perS: 62 },
  { user: 'Acme Robotics', key: 'ci', limitRpm: 120, perS: 0.4 },
  { user: 'Blue Harbor Bank', key: 'payments', limitRpm: 3000, perS: 21 },
  { user: 'Fjord Analytics', key: 'nightly export', limitRpm: 300, perS: 9 },
  { user: 'Mistral Weather', key: 'mobile app', limitRpm: 3000, perS: 34 },
  { user: 'Mistral Weather', key: 'web', limitRpm: 1000, perS: 6 },
  { user: 'Tiny Startup', key: 'prototype', limitRpm: 60, perS: 0.9 },
  { user: 'Kestrel Media', key: 'cms', limitRpm: 1000, perS: 3.5 },
  { user: 'Kestrel Media', key: 'cms before March', limitRpm: 1000, perS: 0.7, fate: 'revoked' },
  { user: 'Ada Example', key: 'notebook', limitRpm: 1000, perS: 0.2, fate: 'owner deleted' },
]

/** The key for the person who runs the demo. */
export interface OwnKey {
  id: string
  token: string
}

interface Customers {
  clients: Client[]
  yours: OwnKey
}

export async function makeCustomers(opsUrl: string): Promise<Customers> {
  const users = new Map<string, string>()
  const clients: Client[] = []

  async function userId(name: string): Promise<string> {
    const known = users.get(name)
    if (known !== undefined) return known
    const externalId = name.toLowerCase().replaceAll(' ', '-')
    const { id } = await ask(opsUrl, 'POST', '/admin/users', { name, external_id: externalId })
    users.set(name, id!)
    return id!
  }
  async function makeKey(user: string, name: string, limitRpm: number) {
    const body = { user_id: await userId(user), name, rate_limit_rpm: limitRpm }
    return ask(opsUrl, 'POST', '/admin/keys', body)
  }

  for (const { user, key, limitRpm, perS, fate } of wanted) {
    const made = await makeKey(user, key, limitRpm)
    if (fate === 'revoked') await ask(opsUrl, 'DELETE', `/admin/keys/${made.id}`)
    if (fate === 'owner deleted') await ask(opsUrl, 'DELETE', `/admin/users/${made.user_id}`)
    clients.push(
      client(`${user}: ${key}`, `Bearer ${made.plain_key}`, perS, `198.51.100.${clients.length + 1}`),
    )
  }
  const { id, plain_key } = await makeKey('You', 'demo', 60)
  return { clients: [...clients, ...strangers], yours: { id: id!, token: plain_key! } }
}

const client = (name: string, authorization: string | null, perS: number, address: string): Client => ({
  name,
  authorization,
  perS,
  address,
})

const strangers: Client[] = [
  // Of our shape, and not one of ours.
  client('a guesser', 'Bearer lk_000000000000000000000000000000000000', 1.3, '203.0.113.7'),
  client("another service's key", 'Bearer sk_live_000000000000', 0.3, '203.0.113.20'),
  client('a browser', null, 0.4, '203.0.113.64'),
  client('basic auth', 'Basic ZGVtbzpkZW1v', 0.2, '203.0.113.65'),
]

async function ask(
  opsUrl: string,
  method: string,
  path: string,
  body?: object,
): Promise<Record<string, string>> {
  const response = await fetch(opsUrl + path, {
    method,
    ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  })
  if (!response.ok) throw new Error(`${method} ${path} got ${response.status}: ${await response.text()}`)
  return (await response.json()) as Record<string, string>
}
