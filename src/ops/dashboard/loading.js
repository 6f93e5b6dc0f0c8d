/**
 * If a module of the page does not arrive, none of them runs. Then this says so, and loads the page
 * again. It imports nothing, and runs before they do.
 */
const retryMs = 5000
const timeoutMs = 15_000

document.querySelector('script + script').addEventListener('error', () => {
  const place = document.querySelector('#connection, #fault')
  place.classList.add('bad')
  place.textContent = 'The page has not loaded. Trying again…'
  setTimeout(loadAgain, retryMs)
})

/** While the service is down, the browser would show a page of its own, which tries nothing. */
async function loadAgain() {
  const isUp = await fetch('/', { signal: AbortSignal.timeout(timeoutMs) }).then(
    ({ ok }) => ok,
    () => false,
  )
  if (isUp) location.reload()
  else setTimeout(loadAgain, retryMs)
}
