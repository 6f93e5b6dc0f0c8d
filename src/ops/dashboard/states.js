/** How the service is: Redis, Postgres and the instances. */
import { byId, el, table } from './dom.js'
import { duration } from './format.js'

const redisStates = {
  shared: ['good', 'Redis counts'],
  local: ['bad', 'Redis is down'],
  memory: ['plain', 'Counting in memory'],
}

export function showServers({ redis, redis_cause: cause = 'unknown', postgres }) {
  const isDown = postgres !== 'ok'
  const states = [redisStates[redis], isDown ? ['bad', 'Postgres is down'] : ['good', 'Postgres answers']]
  showStates(states)
  byId('warning').textContent = [
    redis === 'local' &&
      `A Redis server does not count (${cause}). Each instance counts the keys of that server by itself: below, their counts are those of this instance.`,
    isDown &&
      'Postgres does not answer: the charts show this instance only, keys are shown by their ids, and nothing can be found or changed.',
  ]
    .filter(Boolean)
    .join(' ')
}

/** Without a connection. `time`: of what the page still shows. */
export function showUnknown(time) {
  showStates([['plain', 'State unknown']])
  byId('warning').textContent = time ? `Not connected: the charts and lists are as of ${time}.` : ''
}

const showStates = (states) =>
  byId('states').replaceChildren(
    ...states.map(([state, text]) => el('li', { className: `state ${state}`, textContent: text })),
  )

const heads = ['Instance', 'State', 'Version', 'Up for', 'Counts', 'Postgres']
const counting = { shared: 'in Redis', local: 'by itself', memory: 'in memory' }

/**
 * `here`: the id of the instance that this page comes from. The times are by the clock of Postgres: no
 * other clock must be compared with them.
 */
export function showInstances({ instances, complete }, here) {
  const rows = instances.map(({ id, version, started_at, seen_at, silent_s, alive, redis, postgres }) => [
    el(
      'div',
      {},
      el('code', { textContent: id }),
      id === here ? el('div', { className: 'note', textContent: 'this page' }) : null,
    ),
    alive
      ? el('span', { className: 'state good', textContent: 'alive' })
      : el('span', { className: 'state bad', textContent: `silent for ${duration(silent_s)}` }),
    version,
    duration(seen_at - started_at),
    counting[redis],
    postgres === 'ok' ? 'answers' : 'down',
  ])
  byId('instances-note').textContent = complete ? '' : 'Only this one is known while Postgres is down.'
  const shown = byId('instances').firstChild
  if (shown) shown.show(rows)
  else byId('instances').append(table('Table of instances', heads, rows))
}
