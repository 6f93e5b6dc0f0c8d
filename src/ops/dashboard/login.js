/** Exchanges an operator token for a session. The token stays in the form. */
import { request, textOf } from './api.js'
import { pageNow } from './session.js'

const form = document.querySelector('form')
const token = document.querySelector('#token')
const fault = document.querySelector('#fault')

token.focus()
form.addEventListener('submit', async (event) => {
  event.preventDefault()
  fault.textContent = ''
  try {
    await request('POST', '/login', { token: token.value.trim() })
    location.replace('/')
  } catch (error) {
    fault.textContent = textOf(error)
    token.select()
  }
})

// The cookie is SameSite=Strict: a browser that follows a link from another site does not send it,
// but does from here.
if ((await pageNow()) === 'dashboard') location.replace('/')
