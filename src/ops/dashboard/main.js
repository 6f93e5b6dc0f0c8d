/** The page: one stream of events feeds its parts. */
import { request } from './api.js'
import { createBusiest, createReasons } from './bars.js'
import { createTrafficCharts } from './charts.js'
import { nowS, setNow } from './clock.js'
import { byId } from './dom.js'
import { timeOf } from './format.js'
import { createSearch } from './search.js'
import { loadAgain, pageNow } from './session.js'
import { showInstances, showServers, showUnknown } from './states.js'

const retryMs = 3000
/** Some event comes every second or two. After this time without one, the connection is dead. */
const silentMaxMs = 15_000
/** The server ends each stream after 15 minutes. A shorter interruption than this is not reported. */
const briefMs = 1000
const connection = byId('connection')

let here
/** When the last event came. */
let heardS
let lost

const { find, findRefusals } = createSearch()
const traffic = createTrafficCharts({
  requests: byId('requests'),
  refused: byId('refused'),
  latency: byId('latency'),
})
const showBusiest = createBusiest(find)

const views = {
  hello({ operator, instance, can_log_out: canLogOut, now }) {
    setNow(now)
    here = instance
    byId('operator').textContent = `Operator: ${operator}`
    byId('logout').hidden = !canLogOut
    showConnection(true)
  },
  history: traffic.begin,
  traffic(sample) {
    if (!sample) return
    setNow(sample.at)
    traffic.add(sample)
  },
  servers: (servers) => servers && showServers(servers),
  counters: (view) => view && showBusiest('current', view),
  last_minute: (view) => view && showBusiest('last', view),
  refusals: createReasons(findRefusals),
  instances: (view) => view && showInstances(view, here),
}

function showConnection(isLive) {
  clearTimeout(lost)
  lost = undefined
  connection.className = `state ${isLive ? 'good' : 'bad'}`
  connection.textContent = isLive ? 'Live' : 'Not connected'
  document.body.classList.toggle('stale', !isLive)
  if (!isLive) showUnknown(heardS && timeOf(heardS))
}

function connect() {
  const events = new EventSource('/admin/events')
  let silence
  function listen() {
    clearTimeout(silence)
    silence = setTimeout(() => {
      showConnection(false)
      events.close()
      connect()
    }, silentMaxMs)
  }
  for (const [name, show] of Object.entries(views)) {
    events.addEventListener(name, ({ data }) => {
      listen()
      show(JSON.parse(data))
      heardS = nowS()
    })
  }
  events.addEventListener('error', async () => {
    if (events.readyState !== EventSource.CLOSED) {
      lost ??= setTimeout(showConnection, briefMs, false)
      return
    }
    showConnection(false)
    clearTimeout(silence)
    // Without a session every attempt would be a refusal.
    if ((await pageNow()) === 'login') loadAgain()
    else setTimeout(connect, retryMs)
  })
  listen()
}

// All tabs share the session: without this, the others would go on showing data, or another operator.
const tabs = new BroadcastChannel('session')
tabs.addEventListener('message', ({ data }) => (data === 'login' ? loadAgain() : location.reload()))
byId('logout').addEventListener('click', async () => {
  // Whatever the answer, what is shown must go: the session may be over already.
  await request('POST', '/logout').catch(() => {})
  tabs.postMessage('logout')
  location.reload()
})
connect()
