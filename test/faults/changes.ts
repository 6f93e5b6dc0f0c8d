// A change of a key on one instance: how to tell by an answer whether it is in force, and how long
// anyone acts on the old state.
import { setTimeout as pause } from 'node:timers/promises'
import { type Answer, deleteUser } from '../instance.ts'
import { ask } from '../process/ask.ts'
import { soaking } from '../soak.ts'
import { type Answered, countedOf, tally } from './answers.ts'
import { type Fleet, type FleetKey, makeKeys, verify, warm } from './fleet.ts'

export interface Change {
  readonly name: string
  /** Asks one instance for the change; gives the status. */
  make(url: string): Promise<number>
  /** Asks one instance for what shows it. */
  look(url: string): Promise<Answer>
  /** Whether the old state decided that answer. */
  isOld(answer: Answer): boolean
}

/** A user with a key to change and one to change it with. */
export interface Person {
  userId: string
  manager: FleetKey
  key: FleetKey
}

export async function makePerson(fleet: Fleet, wanted: Parameters<typeof makeKeys>[2] = {}): Promise<Person> {
  const [key] = await makeKeys(fleet, 1, wanted)
  const { userId } = key!
  const [manager] = await makeKeys(fleet, 1, { userId })
  return { userId, manager: manager!, key: key! }
}

/** As many people as wanted, whose keys every instance has just read. */
export async function makePeople(fleet: Fleet, count: number): Promise<Person[]> {
  const people = await Promise.all(Array.from({ length: count }, () => makePerson(fleet)))
  await warm(fleet, ...people.map(({ key }) => key))
  return people
}

const nowS = () => Math.floor(Date.now() / 1000)
let made = 0

/** By default to values that the key never had. */
export function changesOf({ manager, key }: Pick<Person, 'manager' | 'key'>) {
  const path = `/v1/keys/${key.id}`
  const request = async (method: string, url: string, json?: object) =>
    (await ask(`${method} ${url}${path}`, { token: manager.token, ...(json && { json }) })).status
  const look = (url: string) => verify(url, key.token)
  return {
    limit: (limit = 1_000_000 + ++made): Change => ({
      name: 'limit',
      make: (url) => request('PATCH', url, { rate_limit_rpm: limit }),
      look,
      isOld: ({ status, headers, body }) =>
        headers.get('x-ratelimit-limit') !== String(limit) ||
        (status === 200 && body.rate_limit_rpm !== limit),
    }),
    expiry: (expiresAt = nowS() + 10_000 + ++made): Change => ({
      name: 'expiry',
      make: (url) => request('PATCH', url, { expires_at: expiresAt }),
      look,
      isOld: ({ status, body }) => status !== 200 || body.expires_at !== expiresAt,
    }),
    name: (name = `name ${++made}`): Change => ({
      name: 'name',
      make: (url) => request('PATCH', url, { name }),
      look: (url) => ask(`GET ${url}${path}`, { token: key.token }),
      isOld: ({ body }) => body.name !== name,
    }),
    revocation: (): Change => ({
      name: 'revocation',
      make: (url) => request('DELETE', url),
      look,
      isOld: ({ status }) => status !== 401,
    }),
  }
}

/** Of the key's owner: by default in this process, as `latchkey users delete` does it. */
export const deletion = (
  { office }: Pick<Fleet, 'office'>,
  { token, userId }: FleetKey,
  remove: () => Promise<unknown> = () => deleteUser(office, userId),
): Change => ({
  name: 'deletion of the user',
  make: () => remove().then(() => 200),
  look: (url) => verify(url, token),
  isOld: ({ status }) => status !== 401,
})

/** A change to each person's key, the kinds by turns. */
export const changesTo = (fleet: Fleet, people: readonly Person[]): Change[] =>
  people.map((person, i) => {
    const { limit, expiry, revocation } = changesOf(person)
    return [limit, expiry, revocation, () => deletion(fleet, person.key)][i % 4]!()
  })

export interface Watch {
  /** What the change waits for. */
  start?: () => Promise<unknown>
  /** What each instance waits for after the answer before it is first asked. */
  rest?: () => Promise<unknown>
  everyMs?: number
  /** How long to go on after the answer, */
  forMs?: number
  /** and after this. */
  during?: Promise<unknown>
  /** Ask already from before the change. */
  busy?: boolean
  /** How many requests at once each instance has. */
  lanes?: number
}

export interface Watched {
  name: string
  status: number
  /** When the change was sent and answered, performance.now(). */
  sentMs: number
  doneMs: number
  /** Every answer that decided something, before and after. */
  answers: (Answered & { old: boolean })[]
  /** Requests sent after the change was answered, */
  asked: number
  /** those of them that were answered 503, and repeated, */
  undecided: number
  /** and all 503s, before it too. */
  unavailable: number
}

/**
 * Makes the change on the instance with this number, modulo their count, and looks on all of them.
 */
export async function watchChange(
  { urls }: Fleet,
  at: number,
  { name, make, look, isOld }: Change,
  { start, rest, everyMs = 100, forMs = 0, during, busy = false, lanes = 1 }: Watch = {},
): Promise<Watched> {
  let isOver = during === undefined
  void during?.finally(() => {
    isOver = true
  })
  const watched: Watched = {
    ...{ name, status: 0, sentMs: 0, doneMs: Number.POSITIVE_INFINITY },
    ...{ answers: [], asked: 0, undecided: 0, unavailable: 0 },
  }
  async function once(target: number): Promise<void> {
    const sentMs = performance.now()
    const answer = await look(urls[target]!)
    const isAfter = sentMs >= watched.doneMs
    if (isAfter) watched.asked++
    if (answer.status === 503) {
      watched.unavailable++
      if (!isAfter) return
      watched.undecided++
      return once(target)
    }
    const tookMs = performance.now() - sentMs
    watched.answers.push({ ...countedOf(answer), target, sentMs, tookMs, old: isOld(answer) })
  }
  async function before(target: number) {
    while (busy && watched.doneMs === Number.POSITIVE_INFINITY) {
      await once(target)
      await pause(everyMs)
    }
  }
  async function after(target: number) {
    await rest?.()
    await once(target)
    while (!isOver || performance.now() < watched.doneMs + forMs) {
      await pause(everyMs)
      await once(target)
    }
  }
  const targets = Array.from({ length: lanes }, () => [...urls.keys()]).flat()
  const askedBefore = Promise.all(targets.map(before))
  await start?.()
  watched.sentMs = performance.now()
  watched.status = await make(urls[at % urls.length]!)
  watched.doneMs = performance.now()
  await Promise.all(targets.map(after))
  await askedBefore
  return watched
}

/** Looks for a change that was made before. */
export const lookAgain = (fleet: Fleet, change: Change) =>
  watchChange(fleet, 0, { ...change, make: async () => 200 })

/** The answers to requests sent after the change was answered that the old state decided. */
const lateAnswers = ({ answers, doneMs }: Watched) =>
  answers.filter(({ old, sentMs }) => old && sentMs >= doneMs)

/**
 * 503s in a hundred requests, where Postgres misses its deadline. In the soak, more would hide what
 * is tested.
 */
const undecidedMax = 0.01

/**
 * What went wrong, each kind with how often: nothing if all was answered 200 and no old state was
 * acted on.
 */
export function wrongWith(watched: readonly Watched[]): Record<string, number> {
  const faults = watched.flatMap((one) => {
    const { name, status } = one
    const isLate = lateAnswers(one).length > 0
    return [
      ...(status === 200 ? [] : [`${name}: answered ${status}`]),
      ...(isLate ? [`${name}: the old state was acted on`] : []),
    ]
  })
  const { requests, undecided } = figuresOf(watched)
  const tooMany = soaking && undecided > Math.max(5, requests * undecidedMax)
  return { ...tally(faults), ...(tooMany && { 'answered 503': undecided }) }
}

export const slowestMs = (watched: readonly Watched[]) =>
  Math.max(...watched.map(({ sentMs, doneMs }) => doneMs - sentMs))

/** For docs/reliability.md. */
export function figuresOf(watched: readonly Watched[]) {
  const sum = (of: (one: Watched) => number) => watched.reduce((total, one) => total + of(one), 0)
  return {
    changes: watched.length,
    requests: sum(({ asked }) => asked),
    old: sum((one) => lateAnswers(one).length),
    undecided: sum(({ undecided }) => undecided),
    slowestS: slowestMs(watched) / 1000,
  }
}

/**
 * Every kind of change in turn to one key, and at last the deletion of its owner. `remove`: how the
 * owner is deleted.
 */
export async function changeEverything(
  fleet: Fleet,
  n: number,
  remove?: (userId: string) => Promise<unknown>,
) {
  const person = await makePerson(fleet)
  const [spare] = await makeKeys(fleet, 1, { userId: person.userId })
  await warm(fleet, person.key, person.manager, spare!)
  const { limit, expiry, name, revocation } = changesOf(person)
  const watched: Watched[] = []
  for (const [i, change] of [limit(), expiry(), name(), revocation()].entries())
    watched.push(await watchChange(fleet, n + i, change))
  await warm(fleet, person.manager)
  const leaving = remove && (() => remove(person.userId))
  watched.push(await watchChange(fleet, 0, deletion(fleet, spare!, leaving)))
  const again = await lookAgain(fleet, deletion(fleet, person.manager))
  return { watched, again }
}

/** Several at a time. */
export async function inLanes(
  count: number,
  lanes: number,
  work: (n: number) => Promise<unknown>,
): Promise<void> {
  let next = 0
  const lane = async () => {
    while (next < count) await work(next++)
  }
  await Promise.all(Array.from({ length: lanes }, lane))
}
