/**
 * The search box. What was typed may be a whole key: it is sent in a request's body, and is in no
 * address, history or storage.
 */
import { request } from './api.js'
import { byId } from './dom.js'
import { showFound } from './found.js'

/** `find` looks something up and shows it; `findRefusals` shows the newest 401s for a reason. */
export function createSearch() {
  const query = byId('query')
  const fault = byId('search-fault')
  const panel = byId('found')

  const find = (text) =>
    show(async () => {
      const found = await request('POST', '/admin/lookup', { query: text })
      // A whole key does not stay on the screen.
      query.value = found.type === 'key' ? found.key.id : text
      return found
    })

  const findRefusals = (reason, since) =>
    show(async () => {
      const { data } = await request('GET', `/admin/audit?limit=20&reason=${reason}&since=${since}`)
      return { type: 'refusals', reason, entries: data }
    })

  async function show(look) {
    fault.textContent = ''
    try {
      await showFound(panel, await look(), { find, close })
      panel.hidden = false
      panel.focus({ preventScroll: true })
      panel.scrollIntoView({ block: 'nearest' })
    } catch (error) {
      close()
      fault.textContent = `${error.message} ${error.suggestion ?? ''}`
      if (error.status === 401) location.reload()
    }
  }

  function close() {
    panel.hidden = true
    panel.replaceChildren()
  }

  byId('search').addEventListener('submit', (event) => {
    event.preventDefault()
    find(query.value.trim())
  })
  panel.addEventListener('keydown', ({ key, target }) => {
    if (key !== 'Escape' || target.closest('dialog')) return
    close()
    query.focus()
  })
  return { find, findRefusals }
}
