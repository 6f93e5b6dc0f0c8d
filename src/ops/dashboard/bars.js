/** Lists of bars: the busiest keys, and the reasons of refusals. */
import { nowS } from './clock.js'
import { button, byId, el, showList } from './dom.js'
import { count, duration, percent, timeOf, visible } from './format.js'

/** One key: who it is, a bar of used/limit, and the numbers beside it. */
function keyRow(onPick) {
  return ({ id }) => {
    const name = button('', () => onPick(id), 'link')
    const owner = el('span', { className: 'owner' })
    const fill = el('span', { className: 'fill' })
    const numbers = el('span', { className: 'numbers' })
    const share = el('span', { className: 'share' })
    const row = el(
      'li',
      {},
      el('span', { className: 'who' }, name, owner),
      el('span', { className: 'bar', 'aria-hidden': 'true' }, fill),
      numbers,
      share,
    )
    row.show = ({ id, name: keyName, user_name, used, limit, limited, of }) => {
      name.textContent = name.title = visible(keyName ?? id)
      name.classList.toggle('id', keyName === null)
      owner.textContent = owner.title = visible(user_name ?? '')
      fill.style.width = `${Math.min(100, (100 * used) / (limit ?? of))}%`
      row.className = limited > 0 ? 'over' : limit !== null && used >= 0.8 * limit ? 'near' : ''
      numbers.textContent = limit === null ? count(used) : `${count(used)} / ${count(limit)}`
      share.textContent = limit === null ? '' : percent(used, limit)
      share.title = limited > 0 ? `${count(limited)} requests over the limit` : ''
    }
    return row
  }
}

/** `onPick` gets the id of a key. */
export function createBusiest(onPick) {
  const create = keyRow(onPick)
  const views = {}

  function show(which) {
    const view = views[which]
    const sort = document.querySelector('input[name=sort]:checked').value
    if (!view) return
    const keys = view[sort]
    const of = Math.max(...keys.map(({ used }) => used))
    const none = which === 'current' ? 'No request yet in this minute.' : 'No request in that minute.'
    showList(
      byId(which),
      keys.map((key) => ({ ...key, of })),
      { idOf: ({ id }) => id, create, none },
    )
    byId(`${which}-note`).textContent = noteOf(which, view)
  }

  for (const input of document.querySelectorAll('input[name=sort]')) {
    input.addEventListener('change', () => ['current', 'last'].forEach(show))
  }
  return (which, view) => {
    views[which] = view
    show(which)
  }
}

/** A pass that takes longer is worth a note: meanwhile, other keys may have become busy. */
const recentS = 5

function noteOf(which, { minute, resets_at, as_of, complete, scanned, source, lost }) {
  const time = which === 'last' ? `from ${timeOf(minute)}` : `ends ${timeOf(resets_at)}`
  const isOld = which === 'current' && nowS() - as_of > recentS
  const read = complete ? '' : `${count(scanned)} counters read so far, `
  const asOf = isOld || !complete ? ` · ${read}as of ${timeOf(as_of)}` : ''
  const short = lost ? ' · counts were lost: each is at least that high' : ''
  const local = source === 'local' ? ' · keys that Redis does not count: this instance only' : ''
  return `${time}${asOf}${short}${local}`
}

const meanings = {
  missing_header: 'no Authorization header',
  wrong_scheme: 'not “Bearer” and a token',
  wrong_prefix: 'not a key of this service',
  unknown_key: 'no such key',
  revoked: 'revoked key',
  expired: 'expired key',
  owner_deleted: 'key of a deleted user',
}

/** `onPick` gets a reason, and since when the refusals are shown. */
export function createReasons(onPick) {
  let hour = null

  function create({ reason }) {
    const fill = el('span', { className: 'fill' })
    const numbers = el('span', { className: 'numbers' })
    const who = el(
      'span',
      { className: 'who' },
      button(reason, () => onPick(reason, hour.since), 'link id'),
      el('span', { className: 'owner', textContent: meanings[reason] ?? '', title: meanings[reason] ?? '' }),
    )
    const bar = el('span', { className: 'bar', 'aria-hidden': 'true' }, fill)
    const row = el('li', { className: 'reason' }, who, bar, numbers)
    row.show = ({ refused, of }) => {
      fill.style.width = `${(100 * refused) / of}%`
      numbers.textContent = count(refused)
    }
    return row
  }

  return (next) => {
    const note = byId('reasons-note')
    if (next === null) {
      note.textContent = 'unknown while Postgres does not answer'
      // The last ones may be hours old.
      byId('reasons').replaceChildren()
      return
    }
    hour = next
    const reasons = Object.entries(hour.reasons).sort(([, a], [, b]) => b - a)
    const of = reasons[0]?.[1]
    note.textContent = `in the last ${duration(nowS() - hour.since + 30)}`
    const items = reasons.map(([reason, refused]) => ({ reason, refused, of }))
    showList(byId('reasons'), items, {
      idOf: ({ reason }) => reason,
      create,
      none: 'Nothing was refused.',
    })
  }
}
