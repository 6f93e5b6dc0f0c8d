/** What a search has found: a key, several keys, a user, a request or refusals, with the audit trail. */
import { keyActions, revokeKeysAction } from './actions.js'
import { request, textOf } from './api.js'
import { nowS } from './clock.js'
import { bdi, button, el, table } from './dom.js'
import { count, moment, percent, shortTimeOf, visible } from './format.js'
import { createUsageChart } from './usage.js'

const states = { active: 'good', revoked: 'bad', expired: 'bad', owner_deleted: 'bad', deleted: 'bad' }
const listMax = 20

/**
 * `page`: `find` looks something else up, `close` empties the panel, `isShowing` says whether it
 * holds the key or user with this id, `tell` and `warn` show a message or a fault outside of it,
 * `hush` removes both.
 */
export function showFound(panel, found, page) {
  const { key, user } = found
  const children = {
    key: () => [
      facts(keyFacts(found, page)),
      counters(found.counters),
      el('div', { className: 'usage' }),
      keyActions(found, page),
      later(trail('key_id', key.id, page)),
    ],
    keys: () => [table('Keys', keyHeads, keyRows(found.keys, page))],
    user: () => [
      facts(userFacts(user)),
      revokeKeysAction(user, page),
      later(keysOf(user, page)),
      later(trail('user_id', user.id, page)),
    ],
    request: () => [
      facts([
        ['Key', key && button(visible(key.name), () => page.find(key.id), 'link')],
        ['Owner', user && button(visible(user.name), () => page.find(user.id), 'link')],
      ]),
      found.has_more && el('h3', { textContent: `The newest ${found.entries.length} entries` }),
      entries('Audit entries', found.entries, page),
    ],
    refusals: () => [entries('Audit entries', found.entries, page)],
  }[found.type]()
  panel.replaceChildren(heading(found, page), ...children.filter(Boolean))
  panel.hidden = false
  panel.focus({ preventScroll: true })
  // The heading, because `nearest` would show the end of a panel that is taller than the window.
  panel.firstChild.scrollIntoView({ block: 'nearest' })
  const usage = panel.querySelector('.usage')
  if (usage) createUsageChart(usage, key.id)
}

function heading({ type, state, key, keys, user, entries, reason }, { close }) {
  const text = {
    key: () => ['Key “', bdi(key.name), '”'],
    keys: () => [`${keys.length} keys begin like this`],
    user: () => ['User “', bdi(user.name), '”'],
    request: () => [`Request ${entries[0].request_id}`],
    refusals: () => [`The newest 401s: ${reason}`],
  }[type]()
  return el(
    'div',
    { className: 'title' },
    el('h2', {}, ...text, ' ', state && badge(state)),
    button('Close', close),
  )
}

const badge = (state) =>
  el('span', { className: `state ${states[state]}`, textContent: state.replace('_', ' ') })

const facts = (pairs) =>
  el(
    'dl',
    {},
    ...pairs
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value]) => el('div', {}, el('dt', { textContent: name }), el('dd', {}, value))),
  )

const code = (text) => el('code', { textContent: visible(text) })

const keyFacts = ({ key, user }, { find }) => [
  ['Id', code(key.id)],
  ['Begins with', code(key.key_prefix)],
  ['Owner', button(visible(user.name), () => find(user.id), 'link')],
  ['Limit', `${count(key.rate_limit_rpm)} a minute`],
  ['Last used', moment(key.last_used_at) ?? 'never'],
  ['Created', moment(key.created_at)],
  ['Expires', moment(key.expires_at)],
  ['Revoked', moment(key.revoked_at)],
]

const userFacts = (user) => [
  ['Id', code(user.id)],
  ['External id', user.external_id && code(user.external_id)],
  ['Created', moment(user.created_at)],
  ['Deleted', moment(user.deleted_at)],
]

function counters(both) {
  if (both === undefined) return null
  const { current, last, source } = both
  const text = ({ used, limit, limited, lost }) => {
    const over = limited > 0 ? `, ${count(limited)} over the limit` : ''
    return `${lost ? 'at least ' : ''}${count(used)} of ${count(limit)} (${percent(used, limit)})${over}`
  }
  // By their time: this is not read again, and may be looked at for a while.
  return facts([
    [`Minute from ${shortTimeOf(current.minute)}, when found`, text(current)],
    [`Minute from ${shortTimeOf(last.minute)}`, text(last)],
    ['Counted by', { redis: 'all instances', local: 'this instance only', memory: 'this process' }[source]],
  ])
}

const keyHeads = ['Key', 'State', 'Begins with', 'Limit', 'Last used', 'Created', 'Expires', 'Revoked']

const keyRows = (keys, { find }, isOwnerDeleted = false) =>
  keys.map((key) => [
    button(visible(key.name), () => find(key.id), 'link'),
    badge(stateOf(key, isOwnerDeleted)),
    code(key.key_prefix),
    count(key.rate_limit_rpm),
    moment(key.last_used_at),
    moment(key.created_at),
    moment(key.expires_at),
    moment(key.revoked_at),
  ])

/** As in src/rules/key-state.ts. */
function stateOf({ revoked_at, expires_at }, isOwnerDeleted) {
  if (revoked_at !== null) return 'revoked'
  if (expires_at !== null && expires_at <= nowS()) return 'expired'
  return isOwnerDeleted ? 'owner_deleted' : 'active'
}

/** Filled in when it is read. The operator's actions do not wait for it, and stay if it fails. */
function later(part) {
  const place = el('div', {}, el('p', { textContent: 'Loading…' }))
  const failed = (error) => el('p', { className: 'fault', textContent: textOf(error) })
  part.catch(failed).then((child) => place.replaceChildren(child))
  return place
}

async function keysOf(user, page) {
  const read = (after = '') => request('GET', `/admin/keys?limit=${listMax}&user_id=${user.id}${after}`)
  const { data: keys, has_more } = await read()
  if (keys.length === 0) return el('p', { textContent: 'This user has no key.' })
  const title = el('h3')
  const list = table('Keys', keyHeads, [])
  const fault = el('p', { className: 'fault', role: 'alert' })
  const more = button('Show more', async () => {
    if (more.ariaBusy === 'true') return
    more.ariaBusy = 'true'
    fault.textContent = ''
    try {
      const next = await read(`&starting_after=${keys.at(-1).id}`)
      keys.push(...next.data)
      show(next.has_more)
    } catch (error) {
      fault.textContent = textOf(error)
    }
    more.ariaBusy = 'false'
  })
  function show(hasMore) {
    title.textContent = hasMore ? `The newest ${keys.length} keys` : 'Keys'
    list.show(keyRows(keys, page, user.deleted_at !== null))
    if (!hasMore && document.activeElement === more) list.focus({ preventScroll: true })
    more.hidden = !hasMore
  }
  show(has_more)
  return el('div', {}, title, list, more, fault)
}

/** What ends a key, or all keys of a user. */
const endings = ['key.rotated', 'key.revoked', 'user.keys_revoked', 'user.deleted']

async function trail(filter, id, page) {
  const read = (query) => request('GET', `/admin/audit?${filter}=${id}&${query}`)
  const { data, has_more } = await read(`limit=${listMax}`)
  if (data.length === 0) return el('p', { textContent: 'The audit log has no entry.' })
  const title = has_more ? `The newest ${listMax} audit entries` : 'Audit trail'
  // Refusals of a key that is still used soon fill the list: who ended it is shown all the same.
  const ends = has_more ? await Promise.all(endings.map((event) => read(`limit=1&event=${event}`))) : []
  const earlier = ends.flatMap((end) => end.data).filter((end) => !data.some((entry) => entry.id === end.id))
  earlier.sort((a, b) => (a.occurred_at < b.occurred_at ? 1 : -1))
  return el(
    'div',
    {},
    el('h3', { textContent: title }),
    entries('Audit entries', data, page, filter),
    ...(earlier.length > 0
      ? [el('h3', { textContent: 'Earlier' }), entries('Earlier audit entries', earlier, page, filter)]
      : []),
  )
}

/** Without a column of the keys where all entries are of one key. */
function entries(label, data, { find }, filter) {
  const link = (id) => button(id, () => find(id), 'link id')
  const keyColumn = (cell) => (filter === 'key_id' ? [] : [cell])
  return table(
    label,
    [...['Time', 'Event', 'Reason', 'Details'], ...keyColumn('Key'), 'By', 'Request', 'From', 'Request id'],
    data.map((entry) => [
      moment(Date.parse(entry.occurred_at) / 1000),
      code(entry.event),
      entry.reason && code(entry.reason),
      entry.details && detailsOf(entry.details, link),
      ...keyColumn(entry.key_id && link(entry.key_id)),
      entry.actor && visible(entry.actor),
      entry.method && code(`${entry.method} ${entry.path}`),
      entry.ip,
      link(entry.request_id),
    ]),
  )
}

const isId = /^(apk|usr|req)_[0-9a-z]+$/

/** As `name: value`. An id can be followed, and a time is read as one. */
function detailsOf(details, link) {
  const shown = ([name, value]) => {
    if (isId.test(value)) return link(value)
    if (name.endsWith('_at') && typeof value === 'number') return moment(value)
    return visible(typeof value === 'string' ? value : JSON.stringify(value))
  }
  const pairs = Object.entries(details).map((pair) => el('div', {}, `${visible(pair[0])}: `, shown(pair)))
  return el('div', { className: 'details' }, ...pairs)
}
