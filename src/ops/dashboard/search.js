/**
 * The search box. What was typed may be a whole key: it is sent in a request's body, and is in no
 * address, history or storage.
 */
import { request, textOf } from './api.js'
import { byId } from './dom.js'
import { showFound } from './found.js'

/**
 * `find` looks something up and shows it; `findRefusals` shows the newest 401s for a reason. `done`
 * says what has been done before, in case that nothing can be shown.
 */
export function createSearch() {
  const query = byId('query')
  const fault = byId('search-fault')
  const panel = byId('found')

  let searches = 0
  /** The id of the key or user in the panel; none while something else is looked up. */
  let shownId
  const isShowing = (id) => id === shownId

  const find = (text, done) =>
    show(async (isLatest) => {
      const found = await request('POST', '/admin/lookup', { query: text })
      // A whole key does not stay on the screen.
      if (isLatest()) query.value = found.type === 'key' ? found.key.id : text
      return found
    }, done)

  const findRefusals = (reason, since) =>
    show(async () => {
      const { data } = await request('GET', `/admin/audit?limit=20&reason=${reason}&since=${since}`)
      return { type: 'refusals', reason, entries: data }
    })

  /** Of several at once, the last one is shown. */
  async function show(look, done = '') {
    const search = ++searches
    const isLatest = () => search === searches
    shownId = undefined
    fault.textContent = ''
    try {
      const found = await look(isLatest)
      if (!isLatest()) return
      showFound(panel, found, { find, close, isShowing, warn })
      shownId = found[found.type]?.id
    } catch (error) {
      if (!isLatest()) return
      close()
      warn(`${done}${textOf(error)}`)
      if (error.status === 401) location.reload()
    }
  }

  function warn(text) {
    fault.textContent = text
  }

  function close() {
    shownId = undefined
    panel.hidden = true
    panel.replaceChildren()
  }

  byId('search').addEventListener('submit', (event) => {
    event.preventDefault()
    find(query.value)
  })
  panel.addEventListener('keydown', ({ key, target }) => {
    if (key !== 'Escape' || target.closest('dialog')) return
    close()
    query.focus()
  })
  return { find, findRefusals }
}
