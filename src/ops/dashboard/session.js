/** Whether this browser has a session. Without one, or with another, the page must be loaded again. */

const timeoutMs = 15_000

/**
 * The page at `/` is the login while there is no session: 'login', 'dashboard', or null if it does
 * not load.
 */
export async function pageNow() {
  const page = await fetch('/', { signal: AbortSignal.timeout(timeoutMs) }).then(
    (response) => response.text(),
    () => '',
  )
  if (page === '') return null
  return page.includes('/dashboard/login.js') ? 'login' : 'dashboard'
}

let changes = 0
let isDue = false

/** Runs a change. The page stays meanwhile: it may have to show a new key, or say that nothing was changed. */
export async function keepPage(change) {
  changes++
  await change()
  changes--
  if (isDue) loadAgain()
}

/** Not before a dialog is closed: it may show a new key. */
export function loadAgain() {
  isDue = true
  const dialog = document.querySelector('dialog')
  if (dialog) dialog.addEventListener('close', loadAgain)
  else if (changes === 0) location.reload()
}
