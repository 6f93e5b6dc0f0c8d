/**
 * Who uses the server, kept by the server: every Latchkey holds a shared advisory lock on one connection for as long as it
 * uses it, and the one that serves another, exclusive one. Whoever is killed loses them with the connection. They live in the
 * database `postgres`, so they cannot meet the locks that the product takes in its own.
 */
import { setTimeout as pause } from 'node:timers/promises'
import postgres from 'postgres'
import { isAlive } from './processes.ts'
import { isOnItsWay, within } from './server-answers.ts'

export type Role = 'serve' | 'command'

export interface Use {
  /** Gives it up. True: nobody else uses the server, and nobody gets in until `end`, so it is to be stopped. */
  leave(): Promise<boolean>
  end(): Promise<void>
}

export type Outcome =
  | { ok: true; use: Use }
  /** The server is on its way up or down: look again. */
  | { ok: false; reason: 'going' }
  | { ok: false; reason: 'served'; by: number | null; use: Use }

const inUse = 1
const serving = 2
const lookAgainMs = 50
// How long a backend may take to see that its client was killed.
const killedMsMax = 2_000
const answerMsMax = 5_000

/** `onGone` is told once if the server goes away by itself while it is used. */
export async function useServer(server: {
  url: string
  role: Role
  isUp: () => boolean
  onGone: () => void
}): Promise<Outcome> {
  const { role, isUp, onGone } = server
  let held = false
  let regaining = false
  let losses = 0
  const sql = postgres(server.url, {
    database: 'postgres',
    max: 1,
    // The locks last as long as the connection: by default it would be renewed within the hour.
    max_lifetime: null,
    idle_timeout: 0,
    connect_timeout: answerMsMax / 1000,
    fetch_types: false,
    connection: { application_name: `latchkey ${role} ${process.pid}` },
    onnotice: () => {},
    onclose: () => {
      losses++
      void regain()
    },
  })

  const use: Use = {
    async leave() {
      held = false
      const giveUpAtMs = Date.now() + answerMsMax
      while (isUp() && Date.now() < giveUpAtMs) {
        try {
          return await within(answerMsMax, leaveNow())
        } catch {
          await pause(lookAgainMs)
        }
      }
      return false
    },
    async end() {
      held = false
      await sql.end({ timeout: 1 }).catch(() => {})
    },
  }

  try {
    const outcome = await within(answerMsMax + killedMsMax, take())
    if (outcome.ok) held = true
    else if (outcome.reason === 'going') await use.end()
    return outcome
  } catch (error) {
    // At once: after a lost connection postgres.js may wait for an end that never comes.
    await sql.end({ timeout: 0 }).catch(() => {})
    if (isOnItsWay(error)) return { ok: false, reason: 'going' }
    throw error
  }

  async function take(): Promise<Outcome> {
    const before = losses
    const [shared] = await sql`select pg_try_advisory_lock_shared(${inUse}::bigint) as granted`
    if (!shared?.granted) return { ok: false, reason: 'going' }
    if (role === 'serve') {
      const by = await takeServing()
      if (by !== 'me') return { ok: false, reason: 'served', by, use }
    }
    // What was locked on an earlier connection went with it.
    return losses === before ? { ok: true, use } : { ok: false, reason: 'going' }
  }

  /** Or the process that has it. */
  async function takeServing(): Promise<number | null | 'me'> {
    for (const giveUpAtMs = Date.now() + killedMsMax; ; await pause(lookAgainMs)) {
      const [exclusive] = await sql`select pg_try_advisory_lock(${serving}::bigint) as granted`
      if (exclusive?.granted) return 'me'
      const by = await whoServes()
      if ((by !== null && isAlive(by)) || Date.now() > giveUpAtMs) return by
    }
  }

  /** The process that serves. */
  async function whoServes(): Promise<number | null> {
    const [holder] = await sql`
      select substring(application_name from '\\d+$')::int as pid
      from pg_locks join pg_stat_activity using (pid)
      where locktype = 'advisory' and objid = ${serving}::bigint::oid and mode = 'ExclusiveLock' and granted`
    return holder?.pid ?? null
  }

  /** First off the list, then the question: of two that leave together the later one finds nobody. */
  async function leaveNow(): Promise<boolean> {
    await sql`select pg_advisory_unlock_all()`
    const [alone] = await sql`select pg_try_advisory_lock(${inUse}::bigint) as granted`
    return alone?.granted === true
  }

  /** After one backend's crash Postgres ends all connections and goes on; the locks are to be had again then. */
  async function regain(): Promise<void> {
    if (!held || regaining) return
    regaining = true
    while (held) {
      if (!isUp()) {
        held = false
        onGone()
        break
      }
      try {
        const outcome = await within(answerMsMax + killedMsMax, take())
        if (outcome.ok) break
      } catch {
        // Not there yet, or not there any more.
      }
      // Nothing here keeps the process from ending.
      await pause(lookAgainMs, undefined, { ref: false })
    }
    regaining = false
  }
}
