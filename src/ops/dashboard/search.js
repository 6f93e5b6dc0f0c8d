/**
 * The search box. What was typed may be a whole key: it is sent in a request's body, and is in no
 * address, history or storage.
 */
import { request, textOf } from './api.js'
import { byId, say } from './dom.js'
import { showFound } from './found.js'

/** What a whole key ends with, also across a line break. Ids are shorter. */
const hasKey = (text) => /[0-9A-Za-z]{38}/.test(text.replaceAll(/\s/g, ''))

/** Most searches take less. A message that only flashes would move the page. */
const quickMs = 200

/**
 * `find` looks something up and shows it; `findRefusals` shows the newest 401s for a reason. `done`:
 * what a change has just done, to be said even if its result cannot be shown.
 */
export function createSearch() {
  const query = byId('query')
  const fault = byId('search-fault')
  const panel = byId('found')
  const status = byId('search-status')

  let searches = 0
  /** What changes have done since the last search began. */
  let news = ''
  /** The id of the key or user in the panel; none while something else is looked up. */
  let shownId
  const isShowing = (id) => id === shownId

  /** What the last search left in the box. Anything else was typed since, and stays. */
  let searched = ''
  function fill(text) {
    if (query.value === searched) query.value = searched = text
  }

  // A whole key does not stay on the screen.
  const find = (text, done) =>
    show(async (isLatest) => {
      try {
        const found = await request('POST', '/admin/lookup', { query: text })
        if (isLatest()) fill(found.type === 'key' ? found.key.id : text)
        return found
      } catch (error) {
        if (isLatest() && hasKey(text)) fill('')
        throw error
      }
    }, done)

  const findRefusals = (reason, since) =>
    show(async () => {
      const { data } = await request('GET', `/admin/audit?limit=20&reason=${reason}&since=${since}`)
      return { type: 'refusals', reason, entries: data }
    })

  /** If several run at once, only the last one is shown. Until then, what is shown takes no change. */
  async function show(look, done = '') {
    const search = ++searches
    const isLatest = () => search === searches
    shownId = undefined
    hush()
    news = done
    setBusy(true)
    setTimeout(showStatus, quickMs)
    try {
      const found = await look(isLatest)
      if (!isLatest()) return
      setBusy(false)
      showFound(panel, found, { find, close: closeByHand, isShowing, tell, warn, hush })
      showStatus()
      shownId = found[found.type]?.id
    } catch (error) {
      if (!isLatest()) return
      const text = `${news}${textOf(error)}`
      close()
      hush()
      warn(text)
    }
  }

  function setBusy(isBusy) {
    panel.inert = isBusy
    panel.setAttribute('aria-busy', isBusy)
  }

  function showStatus() {
    say(status, `${news}${panel.inert ? 'Searching…' : ''}`)
  }

  function tell(text) {
    news += text
    showStatus()
  }

  const warn = (text) => say(fault, text)

  /** What the last search or change said is over. */
  function hush() {
    news = ''
    fault.textContent = ''
    status.textContent = ''
  }

  function close() {
    shownId = undefined
    setBusy(false)
    panel.hidden = true
    panel.replaceChildren()
  }

  function closeByHand() {
    close()
    query.focus()
  }

  byId('search').addEventListener('submit', (event) => {
    event.preventDefault()
    searched = query.value
    find(searched)
  })
  panel.addEventListener('keydown', ({ key, target }) => {
    if (key !== 'Escape' || target.closest('dialog')) return
    closeByHand()
  })
  return { find, findRefusals }
}
