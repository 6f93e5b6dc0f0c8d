/** What an operator does in an incident. Each change says what it did, and shows the new state. */
import { request, textOf } from './api.js'
import { bdi, button, byId, el, say } from './dom.js'
import { count, visible } from './format.js'
import { keepPage } from './session.js'

const rateLimitMax = 1_000_000_000
const graces = [
  ['0', 'the old key stops at once'],
  ['3600', 'the old key works for an hour'],
  ['86400', 'the old key works for a day'],
]

/** Refusals of a change because of another one. */
const outdated = ['key_not_active', 'key_already_rotated']

/**
 * Runs a change and says how it went. Then shows the new state, unless the operator looks up
 * something else meanwhile.
 */
function actions({ id, name }, { isShowing, find, tell, warn, hush }) {
  const status = el('p', { role: 'status' })
  const again = (done, next = id) => (isShowing(id) ? find(next, done) : tell(done))

  const act = (...change) => keepPage(() => run(...change))

  async function run(what, change, after = (done) => again(done)) {
    const title = `${what} “${visible(name)}”: `
    hush()
    status.className = ''
    say(status, 'Waiting until every instance knows…')
    try {
      const result = await change()
      await after(`${title}done. `, result)
    } catch (error) {
      const text = textOf(error)
      // The login takes the place of this page.
      if (error.isSessionOver)
        sessionStorage.setItem('note', 'The session had ended: the last change was not made.')
      // Somebody else has revoked or rotated it meanwhile: show that.
      if (outdated.includes(error.code) && isShowing(id)) return again(title + text)
      if (!isShowing(id) || !status.isConnected) return warn(title + text)
      status.className = 'fault'
      say(status, text)
    }
  }
  return { status, again, act }
}

export function keyActions({ key, user, state }, page) {
  if (state !== 'active') return null
  const { status, again, act } = actions(key, page)
  const url = `/admin/keys/${key.id}`

  const limit = el('input', {
    type: 'number',
    min: 1,
    max: rateLimitMax,
    required: true,
    value: key.rate_limit_rpm,
  })
  const changeLimit = el(
    'form',
    { method: 'dialog', className: 'action' },
    el('label', {}, 'Requests a minute ', limit),
    el('button', { type: 'submit', textContent: 'Change limit' }),
  )
  changeLimit.addEventListener('submit', (event) => {
    event.preventDefault()
    act('Change limit of', () => request('PATCH', url, { rate_limit_rpm: limit.valueAsNumber }))
  })

  const grace = el('select', {}, ...graces.map(([value, text]) => el('option', { value, textContent: text })))
  const rotate = el(
    'form',
    { method: 'dialog', className: 'action' },
    el('label', {}, 'New key; ', grace),
    el('button', { type: 'submit', textContent: 'Rotate' }),
  )
  let isRotating = false
  const stay = (event) => event.preventDefault()
  rotate.addEventListener('submit', (event) => {
    event.preventDefault()
    // The second click of a double click would be a fault, as a key is rotated at most once.
    if (isRotating) return
    const body = { expires_in: Number(grace.value) }
    const run = async () => {
      isRotating = true
      // From now on there may be a new key, which nobody could see again.
      addEventListener('beforeunload', stay)
      await act(
        'Rotate',
        async () => {
          try {
            return await request('POST', `${url}/rotate`, body)
          } catch (error) {
            removeEventListener('beforeunload', stay)
            throw error
          }
        },
        async (done, successor) => {
          showOnce(successor, stay)
          await again(done, successor.id)
        },
      )
      isRotating = false
    }
    if (body.expires_in > 0) return run()
    return confirm({
      title: ['Rotate “', bdi(key.name), '” of ', bdi(user.name), '?'],
      text: 'Every request with the old key is refused from then on. This cannot be undone.',
      verb: 'Rotate',
      run,
    })
  })

  const revoke = () =>
    confirm({
      title: ['Revoke “', bdi(key.name), '” of ', bdi(user.name), '?'],
      text: 'Every request with this key is refused from then on. This cannot be undone.',
      verb: 'Revoke',
      run: () => act('Revoke', () => request('DELETE', url)),
    })
  return el('div', { className: 'actions' }, changeLimit, rotate, button('Revoke…', revoke, 'danger'), status)
}

export function revokeKeysAction(user, page) {
  if (user.deleted_at !== null) return null
  const { status, again, act } = actions(user, page)
  const revoke = () =>
    confirm({
      title: ['Revoke all keys of “', bdi(user.name), '”?'],
      text: 'Every request with one of them is refused from then on. This cannot be undone.',
      typed: user.id,
      verb: 'Revoke all keys',
      run: () =>
        act(
          'Revoke all keys of',
          () => request('POST', `/admin/users/${user.id}/revoke-keys`),
          (done, { revoked }) =>
            again(`${done}${count(revoked)} ${revoked === 1 ? 'key was' : 'keys were'} revoked. `),
        ),
    })
  return el(
    'div',
    { className: 'actions' },
    button('Revoke all keys of this user…', revoke, 'danger'),
    status,
  )
}

/** Asks before what cannot be undone. `typed`: what must be typed first. */
function confirm({ title, text, typed, verb, run }) {
  const go = el('button', {
    type: 'submit',
    className: 'danger',
    textContent: verb,
    disabled: typed !== undefined,
  })
  const input = el('input', { autocomplete: 'off', spellcheck: false, required: true })
  input.addEventListener('input', () => {
    go.disabled = input.value.trim() !== typed
  })
  const form = el(
    'form',
    { method: 'dialog' },
    el('h2', {}, ...title),
    el('p', { textContent: text }),
    typed === undefined
      ? null
      : el('label', {}, el('span', {}, 'Type ', el('code', { textContent: typed }), ' to confirm'), input),
    el(
      'div',
      { className: 'buttons' },
      button('Cancel', () => dialog.close()),
      go,
    ),
  )
  form.addEventListener('submit', run)
  const dialog = openDialog(form)
}

/** The only time that anybody sees a new key. `stay` is the listener that asks before the page is left. */
function showOnce({ name, plain_key }, stay) {
  // A key of the longest prefix has 55 characters: two lines of a phone, or three.
  const key = el('textarea', {
    value: plain_key,
    readOnly: true,
    rows: 3,
    className: 'key',
    'aria-label': 'The new key',
  })
  const copy = button('Copy', () => {
    key.select()
    // `navigator.clipboard` exists only over https and on this machine.
    copy.textContent = document.execCommand('copy') ? 'Copied' : 'Not copied'
  })
  const close = button('Close', () => dialog.close())
  const dialog = openDialog(
    el(
      'div',
      {},
      el('h2', {}, 'The new key of “', bdi(name), '”'),
      el('p', { textContent: 'It is shown only now. Hand it over, then close this.' }),
      key,
      el('div', { className: 'buttons' }, copy, close),
    ),
  )
  // Escape closes nothing. In Chromium a second Escape skips `cancel`; `closedBy` is not everywhere yet.
  dialog.closedBy = 'none'
  dialog.addEventListener('cancel', stay)
  dialog.addEventListener('close', () => {
    removeEventListener('beforeunload', stay)
    // The button that had the focus may have gone.
    byId(byId('found').inert ? 'query' : 'found').focus({ preventScroll: true })
  })
}

function openDialog(content) {
  const dialog = el('dialog', { 'aria-label': content.querySelector('h2').textContent }, content)
  dialog.addEventListener('close', () => dialog.remove())
  document.body.append(dialog)
  dialog.showModal()
  return dialog
}
