// The service on a Redis Cluster, given by the URLs of its nodes: what holds on one Redis holds on three.
import slotOf from 'cluster-key-slot'
import t from 'tap'
import { expectError, expectRated } from '../api/expect-error.ts'
import { deleteUser, makeKey, makeUser } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { recordFigure, scaled } from '../soak.ts'
import {
  type Fleet,
  type FleetKey,
  makeKeys,
  reasonsOf,
  startFleet,
  undisturbed,
  verify,
} from './cluster-fleet.ts'
import { type Counted, countedOf, expectExact, faultsOf } from './windows.ts'

const fleet = await startFleet(t)
if (fleet) suite(fleet)

function suite(fleet: Fleet) {
  const { cluster, urls, office } = fleet
  const limits = [1, 2, 7, 50, 150, 500]
  const keysOfEach = scaled(5, 50)
  const floods = scaled(1, 12)
  const changeRounds = scaled(40, 2000)
  const atOnce = 100

  /** Every request in turn to another instance, so many at once; each key so often as it is named. */
  async function flood(tokens: string[]): Promise<Map<string, Counted[]>> {
    const answers = new Map<string, Counted[]>(tokens.map((token) => [token, []]))
    let sent = 0
    const sender = async () => {
      while (sent < tokens.length) {
        const token = tokens[sent]!
        const url = urls[sent++ % urls.length]!
        answers.get(token)!.push(countedOf(await verify(url, token)))
      }
    }
    await Promise.all(Array.from({ length: atOnce }, sender))
    return answers
  }

  /** A fifth more than the limit, and some; the keys by turns for as long as each has requests left. */
  function tokensFor(keys: FleetKey[]): string[] {
    const left = keys.map(({ token, rate_limit_rpm }) => ({
      token,
      times: Math.ceil(rate_limit_rpm * 1.2) + 5,
    }))
    const tokens: string[] = []
    for (let some = left; some.length > 0; some = some.filter(({ times }) => times > 0)) {
      for (const one of some) {
        tokens.push(one.token)
        one.times--
      }
    }
    return tokens
  }

  t.test('every key admits its limit, whichever node counts it, on three instances', async (t) => {
    let requests = 0
    let counted = 0
    let off = 0
    const nodes = new Set<number>()
    const faults: string[] = []
    for (let round = 0; round < floods; round++) {
      const { keys, answers } = await undisturbed(t, fleet, async () => {
        const keys: FleetKey[] = []
        for (const rateLimitRpm of limits) keys.push(...(await makeKeys(fleet, keysOfEach, { rateLimitRpm })))
        return { keys, answers: await flood(tokensFor(keys)) }
      })
      for (const key of keys) {
        const ofKey = answers.get(key.token)!
        requests += ofKey.length
        faults.push(...Object.keys(faultsOf(ofKey, [key.rate_limit_rpm])))
        counted++
        off += await expectExact(t, key, ofKey, fleet.countIn)
        nodes.add(await cluster.ownerOf(slotOf(key.id)))
      }
    }
    t.strictSame(faults, [], 'every answer is a 200 or a 429 with its headers')
    t.equal(nodes.size, 3, 'every node counted some of the keys')
    t.same(reasonsOf(fleet), [], 'no instance took a node for away')
    recordFigure(t, 'cluster-exact', { requests, keys: counted, off })
  })

  t.test('the request over the limit is the 429 that one Redis gives', async (t) => {
    const [key] = await makeKeys(fleet, 1, { rateLimitRpm: 1 })
    const refused = await verifyUntil(429, key!.token)
    expectError(t, refused, 'rate_limit_exceeded')
    expectRated(t, refused)
    const { resetS, retryAfterS } = countedOf(refused)
    const endS = Date.now() / 1000 + retryAfterS!
    t.ok(Math.abs(endS - resetS) < 2, 'whoever waits that long is past the reset, and not by much')
  })

  /** One request may open a new minute, and the next; not a third. */
  async function verifyUntil(status: number, token: string) {
    for (let tries = 1; ; tries++) {
      const answer = await verify(urls[tries % urls.length]!, token)
      if (answer.status === status || tries === 3) return answer
    }
  }

  t.test('a change of a key on one instance decides the next request on the others', async (t) => {
    const faults = new Map<string, number>()
    const wrong = (what: string) => void faults.set(what, (faults.get(what) ?? 0) + 1)
    let left = changeRounds
    let changes = 0
    let deletions = 0
    let slowestMs = 0

    async function change(method: string, path: string, token: string, json?: object) {
      const beganMs = performance.now()
      const { status } = await ask(`${method} ${urls[changes++ % urls.length]}${path}`, {
        token,
        ...(json && { json }),
      })
      slowestMs = Math.max(slowestMs, performance.now() - beganMs)
      if (status !== 200) wrong(`${method} answered ${status}`)
    }
    const onEach = (token: string) => Promise.all(urls.map((url) => verify(url, token)))

    async function round() {
      const user = await makeUser(office)
      const manager = await makeKey(office, { userId: user.id })
      const key = await makeKey(office, { userId: user.id, rateLimitRpm: 500 })
      const path = `/v1/keys/${key.id}`
      for (const { status } of await onEach(key.token)) if (status !== 200) wrong('not admitted at first')

      await change('PATCH', path, manager.token, { rate_limit_rpm: 77 })
      for (const { body, headers } of await onEach(key.token)) {
        if (headers.get('x-ratelimit-limit') !== '77' || body.rate_limit_rpm !== 77)
          wrong('the limit is the old one')
      }
      const expiresAt = Math.floor(Date.now() / 1000) + 1000
      await change('PATCH', path, manager.token, { expires_at: expiresAt })
      for (const { body } of await onEach(key.token)) {
        if (body.expires_at !== expiresAt) wrong('the expiry is the old one')
      }
      await change('DELETE', path, manager.token)
      for (const { status } of await onEach(key.token)) if (status !== 401) wrong('admitted although revoked')

      for (const { status } of await onEach(manager.token))
        if (status !== 200) wrong('another key is refused')
      await deleteUser(office, user.id)
      deletions++
      for (const { status } of await onEach(manager.token)) {
        if (status !== 401) wrong('admitted although its owner is deleted')
      }
    }
    const lane = async () => {
      while (left-- > 0) await round()
    }
    await Promise.all(Array.from({ length: 6 }, lane))
    t.same([...faults], [], `${changeRounds} rounds without a fault`)
    t.ok(slowestMs < 3000, `no change had to wait until copies grow too old: ${Math.round(slowestMs)} ms`)
    const wrongInAll = [...faults.values()].reduce((sum, times) => sum + times, 0)
    recordFigure(t, 'cluster-changes', { changes: changes + deletions, wrong: wrongInAll, slowestMs })
  })

  t.test('nothing is kept in the cluster without an expiry, nor beside the slot of its key', async (t) => {
    const [key, other] = await makeKeys(fleet, 2)
    for (const url of urls) await verify(url, key!.token)
    await ask(`PATCH ${urls[0]}/v1/keys/${key!.id}`, { token: other!.token, json: { name: 'renamed' } })
    const wrong = new Set<string>()
    const nodesOf = new Map<string, Set<number>>()
    const seen = { counters: 0, versions: 0 }
    for (const [node, names] of (await cluster.keys('*')).entries()) {
      for (const name of names) {
        const [, id, version] = /^rl:\{(apk_[a-z0-9]+)\}:(?:\d+|(v))$/.exec(name) ?? []
        if (id === undefined) {
          wrong.add(`${name} is neither a counter nor a version`)
          continue
        }
        seen[version ? 'versions' : 'counters']++
        nodesOf.set(id, (nodesOf.get(id) ?? new Set()).add(node))
        const ttlS = await cluster.redis[node]!.ttl(name)
        // Gone since it was listed.
        if (ttlS === -2) continue
        if (ttlS < 0 || ttlS > (version ? 600 : 120)) wrong.add(`${name} is kept for ${ttlS} s`)
      }
    }
    for (const [id, nodes] of nodesOf) if (nodes.size > 1) wrong.add(`${id} is on ${nodes.size} nodes`)
    t.same([...wrong], [])
    t.ok(
      seen.counters > 10 && seen.versions > 10,
      `${seen.counters} counters and ${seen.versions} versions seen`,
    )
    const ofKey = (await cluster.keys(`*${key!.id}*`)).flat()
    t.equal(ofKey.length >= 2, true, 'its counter and its version')
    t.same(new Set(ofKey.map((name) => slotOf(name))), new Set([slotOf(key!.id)]), 'share the slot of its id')
  })
}
