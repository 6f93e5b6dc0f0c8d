/** Exchanges an operator token for a session. The token stays in the form. */
import { request, textOf } from './api.js'
import { pageNow } from './session.js'

const form = document.querySelector('form')
const token = document.querySelector('#token')
const fault = document.querySelector('#fault')
const notStored =
  'The token is right, but this browser did not store the session. Allow cookies for this address. If this host name also has a session over https, log out there first.'

token.focus()
// Set by the page that led here.
fault.textContent = sessionStorage.getItem('note')
sessionStorage.removeItem('note')
form.addEventListener('submit', async (event) => {
  event.preventDefault()
  fault.textContent = ''
  try {
    await request('POST', '/login', { token: token.value.trim() })
    // A browser drops the cookie if it stores none, or has one from https that http must not replace.
    if ((await pageNow()) === 'login') {
      fault.textContent = notStored
      return
    }
    new BroadcastChannel('session').postMessage('login')
    location.replace('/')
  } catch (error) {
    fault.textContent = textOf(error)
    token.select()
  }
})

// The cookie is SameSite=Strict: a browser that follows a link from another site does not send it,
// but does from here.
if ((await pageNow()) === 'dashboard') location.replace('/')
