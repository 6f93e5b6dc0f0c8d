/** Whether this browser has a session. Without one, or with another, the page must be loaded again. */

const timeoutMs = 15_000

/** The page at `/` is the login while there is no session: 'login', 'dashboard', or null if it does not load. */
export async function pageNow() {
  const page = await fetch('/', { signal: AbortSignal.timeout(timeoutMs) }).then(
    (response) => response.text(),
    () => '',
  )
  if (page === '') return null
  return page.includes('/dashboard/login.js') ? 'login' : 'dashboard'
}

let rotations = 0
let isDue = false

/** Runs a rotation: it brings a new key, which nobody can show again, so the page stays meanwhile. */
export async function keepPage(rotation) {
  rotations++
  await rotation()
  rotations--
  if (isDue) loadAgain()
}

/** Not before a dialog is closed: it may show a new key. */
export function loadAgain() {
  isDue = true
  const dialog = document.querySelector('dialog')
  if (dialog) dialog.addEventListener('close', loadAgain)
  else if (rotations === 0) location.reload()
}
