/** Exchanges an operator token for a session. The token stays in the form. */
import { request, textOf } from './api.js'

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
