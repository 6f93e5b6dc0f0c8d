/** Elements built from text. Nothing here parses HTML, so no name or path can become markup. */

import { visible } from './format.js'

/** `props` are properties of the element, or attributes where the name has a hyphen. */
export function el(tag, props = {}, ...children) {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(props)) {
    if (name.includes('-')) element.setAttribute(name, value)
    else element[name] = value
  }
  element.append(...children.filter((child) => child !== null && child !== undefined))
  return element
}

/** A name within other text. Its direction changes nothing around it. */
export const bdi = (name) => el('bdi', { textContent: visible(name) })

/** Shows a message where the reader is: a click may have been far below it. */
export function say(element, text) {
  element.textContent = text
  if (text !== '') element.scrollIntoView({ block: 'nearest' })
}

export const byId = (id) => document.getElementById(id)

export const button = (text, onclick, className = '') =>
  el('button', { type: 'button', className, onclick, textContent: text })

/** A table that scrolls by itself where it is too wide, by keyboard too. `show` replaces its rows. */
export function table(label, heads, rows) {
  const head = el('tr', {}, ...heads.map((head) => el('th', { scope: 'col', textContent: head })))
  const body = el('tbody')
  const region = el(
    'div',
    { className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': label },
    el('table', {}, el('thead', {}, head), body),
  )
  region.show = (rows) => {
    const next = rows.map((cells) => el('tr', {}, ...cells.map((cell) => el('td', {}, cell ?? '–'))))
    next.forEach((row, i) => {
      const old = body.rows[i]
      // A row that shows the same stays: its text may be selected, or be read aloud.
      if (old === undefined) body.append(row)
      else if (!old.isEqualNode(row)) old.replaceWith(row)
    })
    for (const old of [...body.rows].slice(next.length)) old.remove()
  }
  region.show(rows)
  return region
}

/**
 * Makes a list show these items, and reuses the element of an item that stays, so that focus stays
 * where it is. Moves as few as it can: a button that is moved while it is pressed gets no click.
 * `create` returns an element with a function `show`.
 */
export function showList(list, items, { idOf, create, none }) {
  const before = new Map([...list.children].map((element) => [element.dataset.id, element]))
  const focused = document.activeElement
  const elements = items.map((item) => {
    const element = before.get(idOf(item)) ?? create(item)
    element.dataset.id = idOf(item)
    element.show(item)
    return element
  })
  if (items.length === 0) elements.push(el('li', { className: 'none', textContent: none }))
  for (const old of [...list.children]) if (!elements.includes(old)) old.remove()
  elements.forEach((element, i) => {
    const place = list.children[i] ?? null
    if (place !== element) list.insertBefore(element, place)
  })
  if (list.contains(focused)) focused.focus({ preventScroll: true })
}
