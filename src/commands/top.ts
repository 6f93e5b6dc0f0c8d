/** latchkey top: the busiest keys of this minute, from the Redis counters. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Counters } from '../../schemas/counters.ts'
import { countersBody } from '../ops/admin/counters-body.ts'
import { createBoard } from '../ops/board.ts'
import { printable } from '../rules/printable.ts'
import { type KeyStore, type RankBy, Unavailable } from '../stores.ts'
import { command, moment, operator, table, withStores } from './command.ts'
import { sort, topRows } from './options.ts'
import { orStopped, untilStopped } from './until-stopped.ts'

const redrawMs = 1000
/** Prints what has been read by then: with very many keys, a scan takes longer. */
const onceMsMax = 10_000
const againMs = 100
/** After this, a live table goes on without names and limits. */
const namesMs = 1000
const ctrlC = '\x03'

interface Options {
  sort?: RankBy
  limit: number
  json?: true
}

export const top = command<Options>('top', {
  summary: 'show the busiest keys of this minute; live on a terminal, else once',
  example: 'top --sort share',
  options: [sort, topRows],
  async run({ config, options: { sort = 'used', limit, json } }) {
    if (config.redis === null)
      throw new Error(
        'top needs REDIS_URL: without it each process counts in its own memory. The admin API has the counts of one process at GET /admin/counters',
      )
    return withStores(config, async (stores) => {
      // A dumb terminal, such as that of an editor, shows escape sequences as text.
      const isLive = !json && process.stdout.isTTY && process.env.TERM !== 'dumb'
      const board = createBoard({ ...stores, keys: isLive ? soon(stores.keys) : stores.keys })
      const read = async () => countersBody(await board.read('current', operator()), sort, limit)
      try {
        if (!isLive) {
          const counters = await once(read)
          return { json: counters, lines: linesOf(counters) }
        }
        await live(read)
        return undefined
      } finally {
        board.close()
      }
    })
  },
})

const soon = ({ rank }: Pick<KeyStore, 'rank'>): Pick<KeyStore, 'rank'> => ({
  rank(...args) {
    const late = pause(namesMs, undefined, { ref: false }).then(() => {
      throw new Unavailable(`no names in ${namesMs} ms`)
    })
    return Promise.race([rank(...args), late])
  },
})

async function once(read: () => Promise<Counters>): Promise<Counters> {
  const untilMs = performance.now() + onceMsMax
  for (;;) {
    const counters = await read()
    if (counters.complete || counters.fault !== null || performance.now() > untilMs) return counters
    await pause(againMs)
  }
}

/** Uses the alternate screen, so that the terminal looks untouched afterwards. */
async function live(read: () => Promise<Counters>): Promise<void> {
  const { stdin, stdout } = process
  const quit = new AbortController()
  const stopped = AbortSignal.any([untilStopped(), quit.signal])
  if (stdin.isTTY) {
    // So that `q` needs no Enter. It also makes Ctrl-C a character.
    stdin.setRawMode(true).on('data', (typed) => {
      if ([...String(typed)].some((key) => ['q', 'Q', ctrlC].includes(key))) quit.abort()
    })
  }
  // Without line wrap: wide characters take two columns each.
  stdout.write('\x1b[?1049h\x1b[?7l\x1b[?25l')
  try {
    await orStopped(redraw(read, stopped), stopped)
  } finally {
    stdout.write('\x1b[?25h\x1b[?7h\x1b[?1049l')
    if (stdin.isTTY) stdin.setRawMode(false).pause()
  }
}

async function redraw(read: () => Promise<Counters>, stopped: AbortSignal): Promise<void> {
  const { stdout } = process
  for (;;) {
    const counters = await read()
    if (stopped.aborted) return
    // A terminal that does not know its size has 0 rows.
    const { rows, columns } = { rows: stdout.rows || 24, columns: stdout.columns || 80 }
    const lines = linesOf(counters).slice(0, rows - 1)
    const fitting = lines.map((line) => [...printable(line)].slice(0, columns).join(''))
    stdout.write(`\x1b[H${fitting.map((line) => `${line}\x1b[K`).join('\n')}\x1b[J`)
    await pause(redrawMs, undefined, { signal: stopped }).catch(() => {})
  }
}

const head = ['used', 'limit', 'share', 'limited', 'key', 'prefix', 'owner', 'name']

function linesOf({ minute, as_of, source, complete, scanned, fault, named, keys }: Counters): string[] {
  const rows = keys.map((key) => [
    String(key.used),
    String(key.limit ?? '-'),
    key.limit === null ? '-' : `${Math.round((key.used / key.limit) * 100)} %`,
    String(key.limited ?? '-'),
    key.id,
    key.key_prefix ?? '-',
    key.user_name ?? '-',
    key.name ?? '-',
  ])
  const notes = [
    ...(complete ? [] : ['not all are read yet']),
    ...(source === 'redis'
      ? []
      : [`${fault ?? 'down'}: the keys of a Redis server are missing here, since it cannot be read`]),
    ...(named ? [] : ['Postgres is down: no names and limits']),
  ]
  const about = `minute ${moment(minute)}  as of ${moment(as_of)}  ${scanned} ${scanned === 1 ? 'key' : 'keys'}`
  // A line for each note: at 80 columns, a longer one would be cut off.
  return [about, ...(notes.length > 0 ? notes : ['']), ...table(head, rows)]
}
