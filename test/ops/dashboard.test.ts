// The dashboard in a real browser, on real servers: what an operator sees, finds and does.
import type { Locator, Page, Request, Route } from 'playwright-core'
import t, { type Test } from 'tap'
import { type Instance, makeKey, makeUser, startInstance, startOps } from '../instance.ts'
import { until } from '../process/until.ts'
import { startPrivateRedis, startTcpProxy } from '../services/index.ts'
import { ada, bob, startAdmin } from './admin.ts'
import { type Browser, barriersOf, startBrowser } from './browser.ts'

const { services, instance, sql, admin } = await startAdmin(t)
const browser = await startBrowser(t)
const local = await startInstance(t, services)
const { url, port } = await startOps(t, local)

const verify = (token: string, from: Instance = local) => from.ask('GET', '/v1/verify', { token })

/** Types it into the search box, and waits for what is found. */
async function find(page: Page, text: string) {
  await page.getByLabel('Find a key').fill(text)
  await page.keyboard.press('Enter')
  await page.locator('#found').waitFor()
  return page.locator('#found')
}

/** Skipped by name where there is no browser. */
function test(name: string, run: (t: Test, browser: Browser) => Promise<void>) {
  const skip = browser === null && 'there is no chromium on this machine'
  t.test(name, { skip }, (t) => {
    t.teardown(() => browser!.closePages())
    return run(t, browser!)
  })
}

async function aKey(rateLimitRpm = 1000, name = 'a key') {
  const user = await makeUser(local, 'Ada Lovelace')
  return { user, ...(await makeKey(local, { userId: user.id, name, rateLimitRpm })) }
}

/** Waits until the page shows it. */
const shown = (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor()

/** Waits until the page receives events. Exact: an instance is "alive". */
const live = (page: Page) => page.getByText('Live', { exact: true }).waitFor()

/** Logs in as soon as the form works. */
async function logIn(page: Page) {
  await page.locator('#token:focus').waitFor()
  await page.keyboard.type(ada)
  await page.keyboard.press('Enter')
  await live(page)
}

const event = (name: string, value: unknown) => `event: ${name}\ndata: ${JSON.stringify(value)}\n\n`

const busy = (id: string, more = {}) => ({
  id,
  name: id,
  user_name: 'Ada',
  used: 1,
  limit: 5,
  limited: 0,
  ...more,
})

/** The busiest keys of a minute. */
const busiest = (used: object[], more = {}) =>
  event('counters', {
    ...{ minute: 0, resets_at: 60, as_of: 1, complete: true, scanned: 3, source: 'redis', used },
    ...more,
  })

/** Makes the page show these events, and the later ones when the returned function is called. */
async function showEvents(page: Page, events: string, later = '') {
  let goOn = () => {}
  const isTime = new Promise<void>((resolve) => {
    goOn = resolve
  })
  let connections = 0
  await page.route('**/admin/events', async (route) => {
    if (++connections > 1) await isTime
    const body = `retry: 50\n${connections > 1 ? later : events}`
    return route.fulfill({ contentType: 'text/event-stream', body })
  })
  await page.reload()
  return async () => {
    await until('it has connected again', () => connections > 1)
    goOn()
  }
}

/** As if there were no session. */
const theLogin = (route: Route) =>
  route.fulfill({ contentType: 'text/html', body: '<script src="/dashboard/login.js"></script>' })

/** Waits until the page has dealt with what it has received. */
const painted = (page: Page) =>
  page.evaluate('new Promise((shown) => requestAnimationFrame(() => requestAnimationFrame(shown)))')

test('it shows real traffic, and the bar of the busiest key is what was sent', async (t, browser) => {
  const page = await browser.open(url)
  await live(page)
  const { token } = await aKey(8, 'checkout <img src=x onerror=alert(1)>')
  const sentMs = performance.now()
  for (let n = 0; n < 6; n++) await verify(token)
  await verify('sk_1')
  const row = page.locator('.minutes li', { hasText: 'checkout' }).first()
  await row.getByText(/\/ 8$/).waitFor()
  t.comment(`shown ${Math.round(performance.now() - sentMs)} ms after the first request`)
  // The minute may end in between: then the last full one has the rest.
  // The page forbids `eval`, which page.waitForFunction needs if it has to wait.
  await until('all six are shown', async () => {
    const rows = await page
      .locator('.minutes li', { hasText: 'checkout' })
      .locator('.numbers')
      .allInnerTexts()
    return rows.reduce((sum, text) => sum + Number.parseInt(text, 10), 0) === 6
  })
  t.equal(
    await row.locator('.who').innerText(),
    'checkout <img src=x onerror=alert(1)>\nAda Lovelace',
    'as text',
  )
  // At the turn of the minute the first row is another one for a moment.
  await until('the bar is as long as the share of the limit', async () => {
    const [numbers, share, style] = await Promise.all([
      row.locator('.numbers').innerText(),
      row.locator('.share').innerText(),
      row.locator('.fill').getAttribute('style'),
    ])
    const percent = (100 * Number.parseInt(numbers, 10)) / 8
    return share === `${Math.round(percent)} %` && style?.includes(`width: ${percent}%`)
  })
  await page.getByText('share of limit').click()
  await page.locator('.minutes li:first-child', { hasText: 'checkout' }).first().waitFor()
  await shown(page, 'wrong_prefix')
  await until('a rate is shown', async () => {
    await verify(token)
    return /[1-9]/.test(await page.locator('#requests .value').innerText())
  })
  t.strictSame(page.problems, [])
})

test('a new connection brings no second again into the charts, and loses none', async (t, browser) => {
  const page = await browser.open(url)
  const nowS = Math.floor(Date.now() / 1000)
  // Postgres was down for a moment, and is down now.
  const all = [5, 4, 3, 2, 1].map((ago) => ({
    at: nowS - ago,
    requests: ago,
    complete: ![4, 1].includes(ago),
  }))
  const old = { at: nowS - 60, requests: 8, complete: true }
  const tooOld = { at: nowS - 310, requests: 6, complete: true }
  const gap = { at: nowS - 59, requests: null }
  const behind = { at: nowS - 2.5, requests: 9, complete: true }
  const columnsOf = (samples: { at: number; requests: number | null }[]) => [
    samples.map(({ at }) => at),
    samples.map(({ at, requests }) => (at === nowS - 4 ? null : requests)),
  ]
  let connections = 0
  await page.route('**/admin/events', (route) => {
    // Then to another instance, which has had no viewer in some of these seconds.
    const pasts = [
      event('history', [tooOld, old, ...all]),
      ...Array(2).fill(event('history', [all[1], all[3]])),
    ]
    const body = `retry: 50\n${pasts[connections++] ?? event('traffic', behind)}`
    return route.fulfill({ contentType: 'text/event-stream', body })
  })
  // Shows what is drawn. The pointer is over the last of seven steps.
  const uPlot = `export default class {
    static paths = { bars() {} }
    cursor = { idx: 6 }
    constructor(_, data) { this.setData(data); (window.drawn ??= []).push(this) }
    setData(data) { this.data = data }
    setSize() {}
  }`
  await page.route('**/uPlot.esm.js', (route) =>
    route.fulfill({ contentType: 'text/javascript', body: uPlot }),
  )
  await page.reload()
  const drawn = () => page.evaluate('drawn[0].data')
  await until('it has connected three times', () => connections >= 3)
  t.strictSame(await drawn(), columnsOf([old, gap, ...all]), 'no line across a time that nobody knows of')
  // The clock of the instance is behind: what came from others is later than what is new.
  const inOrder = columnsOf([old, gap, ...all.slice(0, 3), behind])
  await until(
    'the samples are in order',
    async () => JSON.stringify(await drawn()) === JSON.stringify(inOrder),
  )
  t.strictSame(page.problems, [])
})

test('the page asks for all its modules at once, and for none again that it has', async (t, browser) => {
  const page = await browser.open(url)
  await live(page)
  const modules = new Set(page.asked.filter((asked) => asked.endsWith('.js')))
  const listed = await page.evaluate<string[]>(
    '[...document.querySelectorAll("link[rel=modulepreload], script")].map(({ href, src }) => href ?? src)',
  )
  t.strictSame(listed.toSorted(), [...modules].toSorted())
  for (const file of [...modules, `${url}/dashboard/style.css`]) {
    const { headers } = await fetch(file)
    t.equal(headers.get('cache-control'), 'no-cache', file)
    const again = await fetch(file, { headers: { 'if-none-match': headers.get('etag')! } })
    t.strictSame([again.status, await again.text()], [304, ''], file)
  }
  t.equal((await fetch(url)).headers.get('cache-control'), 'no-store')
  t.strictSame(page.problems, [])
})

test('a whole key finds its key, and is in no address, storage or log line', async (t, browser) => {
  const page = await browser.open(url, { timezoneId: 'UTC' })
  const key = await aKey(42, 'nightly export')
  await verify(key.token)
  const answer = page.waitForResponse('**/admin/lookup')
  const found = await find(page, key.token)
  const { current, last } = (await (await answer).json()).counters
  const [now, before] = [current, last].map(({ minute }) =>
    new Date(minute * 1000).toISOString().slice(11, 16),
  )
  t.strictSame((await found.locator('dt').allInnerTexts()).slice(-3, -1), [
    `Minute from ${now}, when found`,
    `Minute from ${before}`,
  ])
  for (const text of ['nightly export', key.id, 'Ada Lovelace', '42 a minute', 'key.created']) {
    await found.getByText(text).first().waitFor()
  }
  t.equal(await page.getByLabel('Find a key').inputValue(), key.id, 'the key does not stay on the screen')
  const kept = await page.evaluate(
    'JSON.stringify([location.href, history.length, history.state, localStorage, sessionStorage, document.cookie])',
  )
  const everything = JSON.stringify([kept, page.asked, local.log])
  t.notOk(everything.includes(key.token.slice(10)))
  t.strictSame(await barriersOf(page), [])
  await page.keyboard.press('Escape')
  await page.locator('#found').waitFor({ state: 'hidden' })
  await find(page, key.user.id).then((panel) => panel.getByText('Revoke all keys of this user').waitFor())
  await page.getByLabel('Find a key').fill('nothing')
  await page.keyboard.press('Enter')
  await shown(page, /Check the spelling/)
  t.equal(page.problems.length, 1, 'the 404')
})

test('what is typed during a search stays, and a whole key does not, even if nothing is found', async (t, browser) => {
  const page = await browser.open(url)
  const { id } = await aKey()
  const box = page.getByLabel('Find a key')
  let answer = () => {}
  const asked = new Promise<void>((resolve) =>
    page.route(
      '**/admin/lookup',
      async (route) => {
        await new Promise<void>((go) => {
          answer = go
          resolve()
        })
        await route.fallback()
      },
      { times: 1 },
    ),
  )
  await box.fill(id)
  await page.keyboard.press('Enter')
  await asked
  await box.fill('the next one')
  answer()
  await page.locator('#found').waitFor()
  t.equal(await box.inputValue(), 'the next one')
  const key = `lk_${'a'.repeat(38)}`
  for (const text of [
    key,
    `${key.slice(0, 30)}   ${key.slice(30)}`,
    `curl -H "Authorization: Bearer ${key}" localhost`,
    `Bearer ${key.slice(3)}`,
    `key=${key.slice(3)}`,
    key.replace('_', '%5F'),
    `${key}x`,
  ]) {
    await box.fill(text)
    await page.keyboard.press('Enter')
    await until('it is gone', async () => (await box.inputValue()) === '')
    await shown(page, /Check the spelling/)
  }
  t.equal(page.problems.length, 7, 'the 404s')
})

test('a key that is over its limit is shown as that', async (_t, browser) => {
  const page = await browser.open(url)
  const { id, token } = await aKey(1)
  for (let n = 0; n < 5; n++) await verify(token)
  await (await find(page, id))
    .getByText(/^\d of 1 \(\d00 %\), \d over the limit$/)
    .first()
    .waitFor()
})

test('why a request was refused is found by its request id', async (_t, browser) => {
  const page = await browser.open(url, { timezoneId: 'Asia/Tokyo' })
  const { token } = await aKey()
  const refused = await verify(token.replace(/.$/, (last) => (last === '0' ? '1' : '0')))
  const found = await find(page, refused.headers.get('x-request-id')!)
  for (const text of ['auth.refused', 'unknown_key', 'GET /v1/verify', /:\d\d GMT\+9$/])
    await found.getByText(text).waitFor()
  await found.getByText('Close').click()
  await page.getByRole('button', { name: 'unknown_key' }).click()
  await found.getByText(refused.headers.get('x-request-id')!).waitFor()
})

test('a limit is changed, a key rotated and revoked, and the next request sees it', async (t, browser) => {
  const page = await browser.open(url)
  const { token, id } = await aKey(5)
  const found = await find(page, id)
  for (const [limit, invalid] of [
    ['1000000000', 0],
    ['1000000001', 1],
    ['0', 1],
  ] as const) {
    await found.getByLabel('Requests a minute').fill(limit)
    t.equal(await found.locator('input:invalid').count(), invalid, limit)
  }
  await found.getByLabel('Requests a minute').fill('9')
  await found.getByText('Change limit').click()
  await found.getByText('9 a minute').waitFor()
  await shown(page, 'Change limit of “a key”: done.')
  await found.getByText('Close').click()
  t.equal(await page.evaluate('document.activeElement.id'), 'query', 'the focus is not lost')
  await find(page, id)
  t.equal((await verify(token)).headers.get('x-ratelimit-limit'), '9')
  await found.getByText('Rotate', { exact: true }).click()
  await page.getByRole('dialog').getByText('Cancel').click()
  t.equal((await verify(token)).status, 200)
  await found.getByText('Rotate', { exact: true }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Rotate' }).click()
  const successor = await page.getByLabel('The new key', { exact: true }).inputValue()
  t.strictSame([(await verify(token)).status, (await verify(successor)).status], [401, 200])
  for (const key of ['Enter', 'Escape', 'Escape']) await page.keyboard.press(key)
  t.ok(await page.getByLabel('The new key', { exact: true }).isVisible(), 'not closed by accident')
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).press('Enter')
  t.notOk((await page.content()).includes(successor), 'shown once')
  await found.getByText('Revoke…').click()
  t.strictSame(await barriersOf(page), [])
  await page.getByRole('dialog').getByText('Cancel').click()
  t.equal((await verify(successor)).status, 200)
  await found.getByText('Revoke…').click()
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
  await found.locator('.state', { hasText: 'revoked' }).waitFor()
  t.equal((await verify(successor)).status, 401)
  await found.getByRole('term').getByText('Revoked').waitFor()
  t.equal(await found.locator('.actions').count(), 0, 'there is nothing to do about it')
  t.strictSame(page.problems, [])
})

test('a new key is shown first of all, can be copied, and is not lost by accident', async (t, browser) => {
  const page = await browser.open(url)
  // As over plain http from another machine.
  await page.addInitScript('delete Navigator.prototype.clipboard')
  await page.reload()
  const { id } = await aKey()
  const found = await find(page, id)
  await found.getByLabel('New key').selectOption('3600')
  // The instance goes away after it.
  await page.route('**/admin/lookup', () => {})
  const asked: string[] = []
  const answer = await hold(page, '**/rotate', () => true)
  await found.getByText('Rotate', { exact: true }).dblclick()
  await found.getByText('Waiting').waitFor()
  page.once('dialog', (question) => {
    asked.push(question.type())
    return question.dismiss()
  })
  await page.evaluate('location.reload()')
  await until('the browser asks as soon as there may be a key', () => asked.length === 1)
  await answer()
  const key = page.getByLabel('The new key', { exact: true })
  const successor = await key.inputValue()
  page.once('dialog', (question) => {
    asked.push(question.type())
    return question.dismiss()
  })
  await page.evaluate('location.reload()')
  await until('the browser asks first', () => asked.length > 1)
  await page.evaluate('document.execCommand = () => false')
  await page.getByRole('dialog').getByRole('button', { name: 'Copy' }).click()
  await page.evaluate('delete document.execCommand')
  await page.getByRole('dialog').getByRole('button', { name: 'Not copied' }).click()
  await page.getByRole('dialog').getByText('Copied', { exact: true }).waitFor()
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click()
  await until('the focus is where to go on', async () => {
    return (await page.evaluate('document.activeElement.id')) === 'query'
  })
  await page.getByLabel('Find a key').fill('')
  await page.keyboard.press('Control+V')
  t.equal(await page.getByLabel('Find a key').inputValue(), successor)
  page.once('dialog', (question) => {
    asked.push(question.type())
    return question.accept()
  })
  const reloaded = page.waitForEvent('load')
  await page.evaluate('location.reload()')
  await reloaded
  t.strictSame([asked, page.problems], [['beforeunload', 'beforeunload'], []], 'it asks no more')
})

test('the slowest rotation shows its key, and the old one works for the day that was chosen', async (t, browser) => {
  const page = await browser.open(url)
  const { id, token } = await aKey()
  const found = await find(page, id)
  // As if every answer took 98 s: 30 s in Postgres, and 68 s until every instance knows.
  await page.evaluate(`{
    const { timeout } = AbortSignal
    AbortSignal.timeout = (ms) => (ms > 98_000 ? timeout.call(AbortSignal, ms) : AbortSignal.abort())
  }`)
  await found.getByLabel('New key').selectOption({ label: 'the old key works for a day' })
  await found.getByText('Rotate', { exact: true }).click()
  const successor = await page.getByLabel('The new key', { exact: true }).inputValue()
  t.equal((await verify(successor)).status, 200)
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click()
  await find(page, id)
  await found.getByRole('term').getByText('Expires').waitFor()
  const { body } = await local.ask('GET', `/v1/keys/${id}`, { token })
  t.ok(Math.abs(body.expires_at - Date.now() / 1000 - 86_400) < 600)
})

test('a session that ends leaves a new key on the screen until it is handed over', async (t, browser) => {
  for (const during of ['the dialog', 'the rotation']) {
    const page = await browser.open(url)
    const { id } = await aKey()
    let isOver = false
    await page.route('**/admin/events', (route) =>
      isOver
        ? route.fulfill({ status: 401 })
        : route.fulfill({ contentType: 'text/event-stream', body: 'retry: 50\n\n' }),
    )
    await page.route(`${url}/`, (route) =>
      route.request().resourceType() === 'fetch' && isOver ? theLogin(route) : route.fallback(),
    )
    // It asks for its own address, perhaps also just before the session ends.
    const told = page.waitForResponse(
      async (response) => response.url() === `${url}/` && (await response.text()).includes('login.js'),
    )
    const endSession = async () => {
      isOver = true
      await told
      await painted(page)
      isOver = false
    }
    await page.route('**/rotate', async (route) => {
      const response = await route.fetch()
      if (during === 'the rotation') await endSession()
      await route.fulfill({ response })
    })
    await page.reload()
    const found = await find(page, id)
    await found.getByLabel('New key').selectOption('3600')
    await found.getByText('Rotate', { exact: true }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('shown only now').waitFor()
    if (during === 'the dialog') await endSession()
    const reloaded = page.waitForEvent('load')
    await dialog.getByRole('button', { name: 'Close' }).click()
    await reloaded
    t.notOk(await found.isVisible(), during)
  }
})

test('a name can neither reorder a question nor break the layout', async (t, browser) => {
  const page = await browser.open(url, { viewport: { width: 360, height: 740 } })
  const { id } = await aKey(5, `👩\u200d💻 a\u202egnp.exe${'x'.repeat(240)}`)
  const found = await find(page, id)
  t.match(
    await found.getByRole('heading', { level: 2 }).innerText(),
    /^Key “👩\u200d💻 a\\u\{202e\}gnp\.exex+”/,
  )
  await found.getByText('Revoke…').click()
  const question = page.getByRole('dialog').getByRole('heading')
  t.match(await question.innerText(), /^Revoke “👩\u200d💻 a\\u\{202e\}gnp\.exex+” of Ada Lovelace\?$/)
  t.notOk(await page.evaluate('document.documentElement.scrollWidth > innerWidth'), 'nothing sticks out')
  const [fullWidth, width] = await page.evaluate<number[]>(
    '[document.querySelector("dialog").scrollWidth, document.querySelector("dialog").clientWidth]',
  )
  t.equal(fullWidth, width)
  t.notOk((await page.content()).includes('\u202e'))
})

test('on the smallest phone nothing is cut: no choice, no large limit, no new key', async (t, browser) => {
  const page = await browser.open(url, { viewport: { width: 320, height: 640 } })
  const { id } = await aKey(1_000_000_000)
  await showEvents(page, busiest([busy(id, { name: 'checkout', used: 123_456_789, limit: 10 ** 9 })]))
  await page.locator('#current').getByText('checkout').waitFor()
  const isCut = (element: Locator) =>
    element.evaluate(({ scrollWidth, clientWidth, scrollHeight, clientHeight }) => [
      scrollWidth > clientWidth,
      scrollHeight > clientHeight,
    ])
  const whole = [false, false]
  t.strictSame(await isCut(page.locator('#current').getByText('checkout')), whole, 'a name')
  const found = await find(page, id)
  t.strictSame(await isCut(found.getByLabel('Requests a minute')), whole, 'a limit')
  const width = await found.getByLabel('Requests a minute').evaluate(({ clientWidth }) => clientWidth)
  t.ok(width > 150, 'there is room for the arrows of the input too')
  const [choice, panel] = await Promise.all(
    [found.getByLabel('New key'), found].map((it) => it.boundingBox()),
  )
  t.ok(choice!.x + choice!.width < panel!.x + panel!.width, 'a choice')
  await found.getByLabel('New key').selectOption('3600')
  await found.getByText('Rotate', { exact: true }).click()
  t.strictSame(await isCut(page.getByLabel('The new key', { exact: true })), whole, 'a new key')
  t.notOk(await page.evaluate('document.documentElement.scrollWidth > innerWidth'))
  t.strictSame(await barriersOf(page), [])
})

test('what others have named or sent is shown as it is written, wherever it is', async (t, browser) => {
  const page = await browser.open(url)
  const name = 'a\u202egnp'
  const user = await makeUser(local, name)
  const { id, token } = await makeKey(local, { userId: user.id, name, expiresAt: 1 })
  const refused = await verify(token)
  const isWritten = async (where: string, times: number) => {
    const written = page.locator(where).getByText('a\\u{202e}gnp')
    await until(`it is in ${where}`, async () => (await written.count()) === times)
    t.notOk((await page.content()).includes('\u202e'), where)
  }
  await showEvents(page, busiest([busy(id, { name, user_name: name })]))
  await isWritten('#current', 2)
  await find(page, refused.headers.get('x-request-id')!)
  await isWritten('#found dd', 2)
  const sent = { reason: name, actor: name, method: 'GET', path: `/${name}` }
  const entry = { occurred_at: '2026-01-01', event: 'auth.refused', request_id: 'req_1', ...sent }
  await page.route('**/admin/audit?*', (route) => route.fulfill({ json: { data: [entry] } }))
  await find(page, id)
  await isWritten('#found dd', 1)
  await isWritten('#found td', 3)
  await find(page, user.id)
  await isWritten('#found td', 4)
})

test('a click counts even if other rows change their order during it', async (_t, browser) => {
  const page = await browser.open(url)
  const { id } = await aKey(5, 'first')
  const orders = [
    [id, 'apk_2', 'apk_3'],
    [id, 'apk_3', 'apk_2'],
  ].map((ids) => busiest(ids.map((id) => busy(id))))
  const reorder = await showEvents(page, orders[0]!, orders[1])
  await page.locator('#current li').first().getByRole('button').hover()
  await page.mouse.down()
  await reorder()
  await page.locator('#current li:nth-child(2)').getByText('apk_3').waitFor()
  await page.mouse.up()
  await page.locator('#found').getByText(id).first().waitFor()
})

test('what is selected in the table of instances stays, whatever else changes there', async (t, browser) => {
  const page = await browser.open(url)
  const instance = { version: '1', started_at: 1, seen_at: 1, alive: true, redis: 'shared', postgres: 'ok' }
  const listed = (...others: object[]) =>
    event('instances', { complete: true, instances: [{ ...instance, id: 'ins_1' }, ...others] })
  const [second, third] = [
    { ...instance, id: 'ins_2' },
    { ...instance, id: 'ins_3' },
  ]
  const goOn = await showEvents(page, listed(second, third), listed({ ...second, postgres: 'down' }))
  await shown(page, 'ins_3')
  await page.evaluate('getSelection().selectAllChildren(document.querySelector("#instances code"))')
  await goOn()
  await page.locator('#instances').getByText('ins_3').waitFor({ state: 'detached' })
  t.equal(await page.evaluate('String(getSelection())'), 'ins_1')
  t.match(await page.locator('#instances tr', { hasText: 'ins_2' }).innerText(), 'down')
})

test('how long instances are up or silent does not depend on the clock of the one that shows them', async (t, browser) => {
  const page = await browser.open(url)
  const [pageS, postgresS] = [Date.now() / 1000, Date.now() / 1000 + 1200]
  const report = { version: '1', redis: 'shared', postgres: 'ok', started_at: postgresS - 3700 }
  const instances = [
    { ...report, id: 'ins_1', seen_at: postgresS - 1, silent_s: 1, alive: true },
    { ...report, id: 'ins_2', seen_at: postgresS - 130, silent_s: 130, alive: false },
  ]
  const hello = event('hello', { operator: 'ada', instance: 'ins_1', can_log_out: false, now: pageS })
  await showEvents(page, hello + event('instances', { complete: true, instances }))
  const row = (id: string) => page.locator('#instances tr', { hasText: id }).locator('td').allInnerTexts()
  await shown(page, 'ins_2')
  t.match(await row('ins_1'), { 1: 'alive', 3: '1 h' })
  t.match(await row('ins_2'), { 1: 'silent for 2 min', 3: '59 min' })
})

test('a row that moves keeps the focus', async (_t, browser) => {
  const page = await browser.open(url)
  const rise = await showEvents(
    page,
    busiest([busy('apk_1'), busy('apk_2')]),
    busiest([busy('apk_2'), busy('apk_1')]),
  )
  await page.getByRole('button', { name: 'apk_2' }).focus()
  await rise()
  await page.locator('#current li:first-child button:focus', { hasText: 'apk_2' }).waitFor()
})

test('it says which keys are near their limit or over it, and why most callers are refused', async (t, browser) => {
  const page = await browser.open(url)
  const used = [
    busy('over', { used: 1105, limit: 100, limited: 1005 }),
    busy('full', { used: 100, limit: 100 }),
    busy('near', { used: 80, limit: 100 }),
    busy('calm', { used: 79, limit: 100 }),
    busy('unknown', { used: 70, limit: null, limited: null }),
  ]
  const reasons = { expired: 2, revoked: 30, unknown_key: 4 }
  const refusals = event('refusals', { since: Date.now() / 1000 - 3600, reasons })
  const recent = { as_of: Date.now() / 1000 + 60 }
  const unfinished = refusals + busiest(used, { complete: false, scanned: 1234, ...recent })
  const goOn = await showEvents(page, unfinished, busiest(used) + event('refusals', null))
  await shown(page, /1,234 counters read so far, as of /)
  const names = (state: string) => page.locator(`#current ${state} button`).allInnerTexts()
  t.strictSame([await names('.over'), await names('.near')], [['over'], ['full', 'near']])
  t.equal(
    await page.locator('#current .over .fill').getAttribute('style'),
    'width: 100%;',
    'no more than its place',
  )
  t.equal(await page.locator('#current').getByTitle('1,005 requests over the limit').innerText(), '1,105 %')
  t.strictSame(await page.locator('#reasons button').allInnerTexts(), ['revoked', 'unknown_key', 'expired'])
  await goOn()
  await shown(page, /ends \S+ · as of /)
  await page.locator('#reasons-note').getByText('unknown while Postgres does not answer').waitFor()
  t.equal(await page.locator('#reasons li').count(), 0, 'what is old is not shown as if it were new')
  const other = await browser.open(url)
  await showEvents(other, busiest(used, recent))
  await shown(other, /ends \S+$/)
})

test('bars of equal shares are equally long, whatever the numbers beside them', async (t, browser) => {
  const used = [
    busy('small', { used: 5, limit: 5 }),
    busy('large', { used: 10 ** 9, limit: 10 ** 9, limited: 0 }),
    busy('a long name that takes all the room it can get'),
  ]
  const reasons = event('refusals', { since: 1, reasons: { expired: 2, revoked: 3_000_000_000 } })
  for (const width of [1280, 360]) {
    const page = await browser.open(url, { viewport: { width, height: 740 } })
    await showEvents(page, reasons + busiest(used))
    await shown(page, 'large')
    for (const list of ['#current', '#reasons']) {
      const widths = await page.evaluate<number[]>(
        `[...document.querySelectorAll('${list} .bar')].map((bar) => Math.round(bar.clientWidth))`,
      )
      t.equal(new Set(widths).size, 1, `${list} ${width}: ${widths}`)
      t.ok(widths[0]! > 40)
    }
  }
})

test('an id in place of a name is shown in full, and a name that is cut has a title', async (t, browser) => {
  const page = await browser.open(url)
  const id = 'apk_0mwpfal3g00000q7v0awobx4c0'
  const long = 'a name of a key that is much too long for its column'
  await showEvents(page, busiest([busy(id, { name: null, user_name: null }), busy('apk_2', { name: long })]))
  const isCut = (text: string) =>
    page.getByRole('button', { name: text }).evaluate((button) => button.scrollWidth > button.clientWidth)
  t.notOk(await isCut(id))
  t.ok(await isCut(long))
  await page.getByTitle(long).waitFor()
})

test('the usage of a key is the total of the chart, of the step chosen last', async (t, browser) => {
  const { token, id } = await aKey()
  const minute = Math.floor(Date.now() / 60_000) - 10
  await local.service.stores.usage.store(minute, [{ keyId: id, count: 5 }])
  for (let n = 0; n < 3; n++) await verify(token)
  const page = await browser.open(url, { timezoneId: 'UTC' })
  const found = await find(page, id)
  const total = found.locator('.usage .value').first()
  await total.getByText('8', { exact: true }).waitFor()
  await found.locator('summary').press('Enter')
  const steps = found.getByRole('region', { name: 'Table of usage' }).locator('tbody tr')
  const time = new Date(minute * 60_000).toISOString().slice(11, 19)
  t.match(await steps.last().innerText(), new RegExp(`, ${time} UTC\\t5\\t0$`), 'without a pointer too')
  t.strictSame(await barriersOf(page), [])
  await found.locator('summary').press('Enter')
  // The answer for hours comes after that for days, which was asked later.
  let answerHours = () => {}
  await page.route('**/usage?step=hour', async (route) => {
    await new Promise<void>((resolve) => {
      answerHours = resolve
    })
    await route.fulfill({ json: { data: [], incomplete: [] } })
  })
  const hours = page.waitForResponse('**/usage?step=hour')
  const height = async () => (await found.locator('.usage').boundingBox())!.height
  const before = await height()
  await found.getByText('last 48 hours').click()
  t.equal(await found.locator('.usage .value').count(), 0, 'no total is shown under the label of another')
  t.equal(await height(), before, 'what is below stays where it is')
  const days = page.waitForResponse('**/usage?step=day')
  await found.getByText('last 30 days').click()
  await days
  await total.getByText('8', { exact: true }).waitFor()
  answerHours()
  await (await hours).finished()
  await painted(page)
  t.equal(await total.innerText(), '8')
  const bars = (await found.locator('.usage .u-over').boundingBox())!
  await page.mouse.move(bars.x + bars.width - 20, bars.y + 20)
  await found
    .locator('.usage .legend .note')
    .getByText(/ 20\d\d, /)
    .waitFor()
  await page.route('**/usage?step=minute', (route) =>
    route.fulfill({
      json: {
        data: [{ start: minute * 60, requests: 65_234, limited: 12 }],
        incomplete: [minute * 60, minute * 60 + 60],
      },
    }),
  )
  await found.getByText('last hour').click()
  await found.locator('summary').press('Enter')
  await found.locator('.usage .legend').getByText('65,234 requests').waitFor()
  await found.locator('.usage .legend').getByText('65,234 in incomplete steps').waitFor()
  const next = new Date((minute + 1) * 60_000).toISOString().slice(11, 19)
  t.match(await steps.allInnerTexts(), [
    new RegExp(`, ${next} UTC\\tat least 0\\tat least 0$`),
    new RegExp(`, ${time} UTC\\tat least 65,234\\tat least 12$`),
  ])
  await found.getByText('In 2 of these steps, not every request was stored.').waitFor()
  await page.route('**/usage?step=day', (route) => route.abort())
  await found.getByText('last 30 days').click()
  await found.locator('.usage').getByText('The service does not answer.').waitFor()
  t.equal(await found.locator('.usage .value, .usage canvas, .usage td').count(), 0)
  t.notOk(await found.getByText('not every request was stored').isVisible())
})

test('each chart of usage has its whole range', async (_t, browser) => {
  const page = await browser.open(url)
  const oldest = { minute: 59 * 60, hour: 47 * 3600, day: 29 * 86_400 }
  await page.route('**/usage?step=*', (route) => {
    const step = new URL(route.request().url()).searchParams.get('step') as keyof typeof oldest
    const stepS = { minute: 60, hour: 3600, day: 86_400 }[step]
    const start = Math.floor(Date.now() / 1000 / stepS) * stepS - oldest[step]
    return route.fulfill({ json: { data: [{ start, requests: 7, limited: 2 }], incomplete: [] } })
  })
  const found = await find(page, (await aKey()).id)
  for (const range of ['last 48 hours', 'last 30 days', 'last hour']) {
    await found.getByText(range).click()
    await found.locator('.usage .value').first().getByText('7', { exact: true }).waitFor()
    await found.locator('.usage .value').last().getByText('2', { exact: true }).waitFor()
  }
})

/** Holds back the responses to these requests. The returned function lets the next one go on. */
async function hold(page: Page, url: string, isHeld: (request: Request) => boolean) {
  const held: (() => void)[] = []
  await page.route(url, async (route) => {
    if (isHeld(route.request())) await new Promise<void>((resolve) => held.push(resolve))
    await route.fallback()
  })
  return async () => {
    const go = await until('a request is held', () => held.shift())
    const request = page.waitForResponse(url)
    go()
    await (await request).finished()
  }
}

test('of two searches the later one is shown, whichever is answered last', async (t, browser) => {
  const page = await browser.open(url)
  const [slow, fast] = [await aKey(5, 'slow'), await aKey(5, 'fast')]
  const answer = await hold(page, '**/admin/lookup', (request) => request.postData()!.includes(slow.id))
  await page.getByLabel('Find a key').fill(slow.id)
  await page.keyboard.press('Enter')
  const found = await find(page, fast.id)
  await answer()
  await painted(page)
  t.match(await found.getByRole('heading', { level: 2 }).innerText(), 'fast')
  t.equal(await page.getByLabel('Find a key').inputValue(), fast.id)
})

test('while something is looked up it says so, and what was shown before cannot be changed', async (t, browser) => {
  const page = await browser.open(url)
  const [before, next] = [await aKey(5, 'before'), await aKey(5, 'next')]
  const found = await find(page, before.id)
  const answer = await hold(page, '**/admin/lookup', (request) => request.postData()!.includes(next.id))
  await find(page, next.id)
  await shown(page, 'Searching…')
  t.strictSame(await barriersOf(page), [])
  t.equal(await found.getAttribute('aria-busy'), 'true')
  await page.evaluate('document.querySelector("#found button[type=submit]").focus()')
  t.not(await page.evaluate('document.activeElement.type'), 'submit', 'it takes no focus')
  await answer()
  await found.getByRole('heading', { level: 2 }).getByText('next').waitFor()
  t.equal(await page.getByText('Searching…').count(), 0)
  t.equal(await found.getAttribute('aria-busy'), 'false')
  await found.getByRole('button', { name: 'Change limit' }).click()
  await shown(page, 'Change limit of “next”: done.')
})

test('a change that ends while something else is shown leaves it, and says how it went', async (t, browser) => {
  const page = await browser.open(url)
  const [first, second] = [await aKey(5, 'first'), await aKey(5, 'second')]
  let fails = true
  const changes = '**/admin/keys/apk_*'
  await page.route(changes, (route) =>
    fails ? route.fulfill({ status: 503, json: { error: { message: 'No.' } } }) : route.fallback(),
  )
  const answer = await hold(page, changes, () => true)
  const heading = page.locator('#found').getByRole('heading', { level: 2 })
  const revoke = async ({ id, name }: { id: string; name: string }, next: string) => {
    // It may be shown already, and is then shown again.
    const looked = page.waitForResponse('**/admin/lookup')
    const found = await find(page, id)
    await (await looked).finished()
    await painted(page)
    await heading.getByText(name).waitFor()
    await found.getByText('Revoke…').click()
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
    await found.getByText('Waiting').waitFor()
    await find(page, next)
    await found.getByText('Waiting').waitFor({ state: 'detached' })
  }
  await revoke(first, second.id)
  await answer()
  await shown(page, 'Revoke “first”: No.')
  t.match(await heading.innerText(), 'second')
  fails = false
  await revoke(first, second.id)
  const lookups = () => page.asked.filter((url) => url.endsWith('/admin/lookup')).length
  const before = lookups()
  await answer()
  await painted(page)
  await shown(page, 'Revoke “first”: done.')
  t.strictSame([lookups(), (await verify(first.token)).status], [before, 401])
  t.match(await heading.innerText(), 'second')
  await revoke(second, second.id)
  await answer()
  await heading.getByText('revoked').waitFor()
})

test('a key that somebody else has revoked meanwhile is shown as revoked, with the fault', async (t, browser) => {
  const page = await browser.open(url)
  for (const change of ['Change limit', 'Rotate']) {
    const { id } = await aKey()
    const found = await find(page, id)
    await found.locator('code', { hasText: id }).waitFor()
    await admin('DELETE', `keys/${id}`)
    await found.getByLabel('New key').selectOption('3600')
    await found.getByRole('button', { name: change }).click()
    await found.getByRole('heading', { level: 2 }).getByText('revoked').waitFor()
    await shown(page, /“a key”: The key is revoked or expired/)
    await found.getByText('key.revoked').waitFor()
    t.equal(await found.getByRole('button', { name: change }).count(), 0)
  }
})

test('a key that somebody else has rotated meanwhile is shown as it is now, with the fault', async (_t, browser) => {
  const page = await browser.open(url)
  const { id } = await aKey()
  const found = await find(page, id)
  await found.locator('code', { hasText: id }).waitFor()
  await admin('POST', `keys/${id}/rotate`)
  await found.getByLabel('New key').selectOption('3600')
  await found.getByRole('button', { name: 'Rotate' }).click()
  await found.getByRole('heading', { level: 2 }).getByText('revoked').waitFor()
  await shown(page, /“a key”: The key has already been rotated: apk_/)
  await found.getByText('key.rotated').waitFor()
})

test('a change that was made is said to be, even if its key cannot be shown', async (t, browser) => {
  const page = await browser.open(url)
  const { id, token } = await aKey(5, 'gone')
  const found = await find(page, id)
  const error = { message: 'Busy.', suggestion: 'Repeat it.' }
  await page.route('**/admin/lookup', (route) =>
    route.fulfill({ status: 503, headers: { 'retry-after': '7' }, json: { error } }),
  )
  await found.getByText('Revoke…').click()
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
  await shown(page, 'Revoke “gone”: done. Busy. Repeat it. (Retry-After: 7 s)')
  t.equal((await verify(token)).status, 401)
})

test('a change that fails does not look done because the one before it was', async (t, browser) => {
  const page = await browser.open(url)
  const found = await find(page, (await aKey(5, 'twice')).id)
  const change = found.getByRole('button', { name: 'Change limit' })
  await change.click()
  await shown(page, 'Change limit of “twice”: done.')
  await page.route('**/admin/keys/apk_*', (route) => route.abort())
  await change.click()
  await shown(page, 'The service does not answer.')
  t.equal(await page.getByText('done.').count(), 0)
})

test('what a click has done is said where it can be read', async (t, browser) => {
  for (const viewport of [
    { width: 360, height: 640 },
    { width: 1280, height: 500 },
  ]) {
    const page = await browser.open(url, { viewport })
    const { id } = await aKey(5, 'far below')
    await showEvents(page, busiest([busy(id)]))
    const inView = async (text: string) => {
      const { y, height } = (await page.getByText(text).first().boundingBox())!
      t.ok(y > -1 && y + height < viewport.height + 1, `${text} ${viewport.width}: ${y}`)
    }
    await page.route('**/admin/lookup', (route) => route.abort(), { times: 1 })
    await page.locator('#current').getByText(id).click()
    await shown(page, 'The service does not answer.')
    await inView('The service does not answer.')
    await page.locator('#current').getByText(id).click()
    const change = page.locator('#found').getByRole('button', { name: 'Change limit' })
    await change.click()
    await shown(page, 'Change limit of “far below”: done.')
    await inView('Change limit of “far below”: done.')
    await page.route('**/admin/keys/apk_*', (route) => route.abort())
    await page.evaluate(
      `scrollBy(0, document.querySelector('#found button[type=submit]').getBoundingClientRect().bottom - innerHeight)`,
    )
    await change.click()
    await shown(page, 'The service does not answer.')
    await inView('The service does not answer.')
  }
})

test('a key can be revoked even if its audit trail cannot be read', async (t, browser) => {
  const page = await browser.open(url)
  const { id, token, user } = await aKey(5, 'urgent')
  for (const list of ['**/admin/audit?*', '**/admin/keys?*'])
    await page.route(list, (route) =>
      route.fulfill({ status: 503, json: { error: { message: 'Busy.', suggestion: 'Repeat it.' } } }),
    )
  const found = await find(page, user.id)
  await found.getByText('Revoke all keys').waitFor()
  await until('both are said to fail', async () => (await found.getByText('Busy. Repeat it.').count()) === 2)
  await find(page, id)
  await found.getByText('Revoke…').click()
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
  await found.getByText('revoked').first().waitFor()
  t.equal((await verify(token)).status, 401)
})

test('no key of a deleted user is shown as active', async (t, browser) => {
  const page = await browser.open(url)
  const { user } = await aKey(1000, 'usable')
  const { id } = await makeKey(local, { userId: user.id, name: 'revoked' })
  await makeKey(local, { userId: user.id, name: 'expired', expiresAt: 1 })
  await admin('DELETE', `keys/${id}`)
  const found = await find(page, user.id)
  const badgeOf = (name: string) => found.locator('tr', { hasText: name }).locator('.state')
  t.equal(await badgeOf('usable').innerText(), 'active')
  await admin('DELETE', `users/${user.id}`)
  await find(page, user.id)
  await found.locator('h2 .state', { hasText: 'deleted' }).waitFor()
  for (const [name, state] of [
    ['usable', 'owner deleted'],
    ['revoked', 'revoked'],
    ['expired', 'expired'],
  ] as const) {
    t.equal(await badgeOf(name).innerText(), state)
    t.equal(await badgeOf(name).getAttribute('class'), 'state bad')
  }
})

test('of many keys and audit entries the newest are shown, which it says', async (t, browser) => {
  const page = await browser.open(url)
  const { user } = await aKey()
  await Promise.all(Array.from({ length: 20 }, () => makeKey(local, { userId: user.id })))
  const found = await find(page, user.id)
  for (const what of ['keys', 'audit entries'])
    await found.getByRole('heading', { name: `The newest 20 ${what}` }).waitFor()
  t.equal(await found.locator('tbody tr').count(), 40)
  await found.getByText('Show more').press('Enter')
  await found.getByRole('heading', { name: 'Keys', exact: true }).waitFor()
  t.equal(await found.getByRole('region', { name: 'Keys' }).locator('tbody tr').count(), 21)
  t.notOk(await found.getByText('Show more').isVisible())
  t.equal(await page.evaluate('document.activeElement.ariaLabel'), 'Keys', 'the focus is not lost')
})

test('the audit trail says which key it was and what has changed', async (t, browser) => {
  const page = await browser.open(url)
  const { id, user, token } = await aKey(5)
  await admin('PATCH', `keys/${id}`, { rate_limit_rpm: 77 })
  const { body: successor } = await admin('POST', `keys/${id}/rotate`)
  await verify(token)
  const found = await find(page, user.id)
  const row = (event: string) => found.locator('tr', { hasText: event })
  await row('key.updated').getByText('rate_limit_rpm: 77').waitFor()
  await row('key.updated').getByRole('button', { name: id }).waitFor()
  await row('auth.refused')
    .getByText(`key_prefix: ${token.slice(0, 10)}`)
    .waitFor()
  await row('key.rotated')
    .getByText(/old_key_ends_at: .* 20\d\d, /)
    .waitFor()
  t.strictSame(await found.locator('td .state').allInnerTexts(), ['active', 'revoked'])
  t.strictSame(await barriersOf(page), [])
  await row('key.rotated').getByRole('button', { name: successor.id }).click()
  await found.locator('dd', { hasText: successor.id }).waitFor()
  await found.getByRole('region', { name: 'Audit entries' }).waitFor()
  t.equal(await found.getByRole('columnheader', { name: 'Key' }).count(), 0, 'where all are of one key')
})

test('who ended a key is shown, however often it was refused since', async (t, browser) => {
  const page = await browser.open(url)
  for (const [event, method, pathOf] of [
    ['key.revoked', 'DELETE', (id) => `keys/${id}`],
    ['key.rotated', 'POST', (id) => `keys/${id}/rotate`],
    ['user.keys_revoked', 'POST', (_, userId) => `users/${userId}/revoke-keys`],
    ['user.deleted', 'DELETE', (_, userId) => `users/${userId}`],
  ] as [string, string, (id: string, userId: string) => string][]) {
    const { id, token, user } = await aKey(1000, event)
    await admin(method, pathOf(id, user.id))
    await Promise.all(Array.from({ length: 20 }, () => verify(token)))
    const found = await find(page, id)
    await found.getByRole('heading', { name: `“${event}”` }).waitFor()
    await found.getByRole('heading', { name: 'Earlier' }).waitFor()
    const last = found.getByRole('region', { name: 'Earlier audit entries' })
    const row = await last.locator('tbody tr').innerText()
    t.ok(row.includes(event) && row.includes('operator:ada'), row)
  }
})

test('all keys of a user are revoked once its id is typed', async (t, browser) => {
  const page = await browser.open(url)
  const { token, user } = await aKey()
  const found = await find(page, user.id)
  await found.getByText('Revoke all keys').click()
  const confirm = page.getByRole('dialog').getByRole('button', { name: 'Revoke all keys' })
  const typed = page.getByRole('dialog').getByRole('textbox')
  const [box, code] = await Promise.all(
    [typed, page.getByRole('dialog').locator('code')].map((it) => it.boundingBox()),
  )
  t.ok(box!.y >= code!.y + code!.height + 4, 'the ring of the focus covers no part of the id')
  t.ok(box!.width > code!.width + 26, 'the id fits')
  for (const text of ['', user.id.slice(0, -1), `${user.id}x`]) {
    await typed.fill(text)
    t.ok(await confirm.isDisabled(), text)
  }
  await typed.fill(user.id)
  await confirm.click()
  await shown(page, 'done. 1 key was revoked.')
  t.equal((await verify(token)).status, 401)
  await admin('DELETE', `users/${user.id}`)
  await find(page, user.id)
  await found.locator('h2 .state', { hasText: 'deleted' }).waitFor()
  t.notOk(await found.getByText('Revoke all keys').isVisible(), 'no key of a deleted user works')
})

test('with a token there is a login, and nothing else before it', async (t, browser) => {
  const ops = await startOps(t, instance)
  const page = await browser.open(ops.url)
  t.strictSame(await barriersOf(page), [])
  await page.getByLabel('Operator token').fill('a-guess-at-a-token')
  await page.keyboard.press('Enter')
  await shown(page, /token is missing or invalid/)
  t.equal(page.problems.splice(0).length, 1, 'the 401')
  const early = await page.context().newPage()
  await early.goto(ops.url)
  // What was wrong is selected.
  await page.keyboard.type(` ${ada} `)
  await page.keyboard.press('Enter')
  await live(page)
  await shown(page, 'Operator: ada')
  for (const [path, ask] of [
    ['**/admin/lookup', () => find(page, 'apk_1')],
    ['**/logout', () => page.getByText('Log out').click()],
  ] as const) {
    await page.route(path, (route) => route.fulfill({ status: 401, json: null }), { times: 1 })
    if (path === '**/admin/lookup') await page.route(`${ops.url}/`, theLogin, { times: 1 })
    const reloaded = page.waitForEvent('load')
    await Promise.race([ask(), reloaded])
    await reloaded
    await live(page)
    t.equal(page.problems.splice(0).length, 1, `${path} had no session`)
  }
  const [session] = await page.context().cookies()
  t.match(session, { httpOnly: true, sameSite: 'Strict', path: '/', secure: false })
  const { token, id } = await makeKey(instance, { userId: (await makeUser(instance)).id })
  const found = await find(page, id)
  await found.getByText('Revoke…').click()
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
  await found.getByText('operator:ada').first().waitFor()
  t.equal((await verify(token, instance)).status, 401)
  const tab = await page.context().newPage()
  await tab.route('http://wiki.test/', (route) =>
    route.fulfill({ contentType: 'text/html', body: `<a href="${ops.url}">The dashboard</a>` }),
  )
  await tab.goto('http://wiki.test/')
  await tab.getByText('The dashboard').click()
  await live(tab)
  await early.getByLabel('Operator token').fill(bob)
  await early.keyboard.press('Enter')
  for (const one of [page, tab, early]) await shown(one, 'Operator: bob')
  await page.getByText('Log out').click()
  for (const one of [page, tab, early]) await one.getByLabel('Operator token').waitFor()
  t.strictSame(await page.context().cookies(), [])
  t.strictSame(page.problems, [])
})

test('the login says so if a change was not made because the session had ended', async (t, browser) => {
  const ops = await startOps(t, instance)
  const page = await browser.open(ops.url)
  const { id } = await makeKey(instance, { userId: (await makeUser(instance)).id })
  let isOver = false
  await page.route('**/admin/events', (route) =>
    isOver
      ? route.fulfill({ status: 401 })
      : route.fulfill({ contentType: 'text/event-stream', body: 'retry: 50\n\n' }),
  )
  for (const noticed of ['by the change', 'before it']) {
    await page.getByLabel('Operator token').fill(ada)
    const loaded = page.waitForEvent('load')
    await page.keyboard.press('Enter')
    await loaded
    const found = await find(page, id)
    await found.getByText('Revoke…').click()
    await page.context().clearCookies()
    if (noticed === 'before it') {
      const told = page.waitForResponse(`${ops.url}/`)
      isOver = true
      await told
      await painted(page)
    }
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
    await shown(page, 'The session had ended: the last change was not made.')
    await page.reload()
    await page.getByText('not made').waitFor({ state: 'detached' })
  }
})

test('a 401 that is not the end of the session is said, and the page stays', async (t, browser) => {
  const page = await browser.open(url)
  const { id } = await aKey()
  const found = await find(page, id)
  await page.evaluate('window.isSame = true')
  const refused = { code: 'operator_unauthorized', message: 'Not from here.', suggestion: 'Ask the proxy.' }
  for (const path of ['**/admin/keys/*', '**/admin/lookup'])
    await page.route(path, (route) => route.fulfill({ status: 401, json: { error: refused } }))
  await found.getByText('Change limit').click()
  await found.getByText('Not from here. Ask the proxy.').waitFor()
  await page.getByLabel('Find a key').press('Enter')
  await page.locator('#search-fault').getByText('Not from here. Ask the proxy.').waitFor()
  await painted(page)
  t.strictSame(await page.evaluate('[window.isSame, sessionStorage.length]'), [true, 0])
  t.equal(await page.getByLabel('Find a key').inputValue(), id)
})

test('the login says so if the browser does not store the session', async (t, browser) => {
  const ops = await startOps(t, instance)
  const page = await browser.open(ops.url)
  // As if the cookie had been dropped.
  await page.route('**/login', (route) => route.fulfill({ status: 204 }))
  await page.getByLabel('Operator token').fill(ada)
  await page.keyboard.press('Enter')
  await shown(page, /did not store the session/)
  t.strictSame(page.problems, [])
})

test('with Redis or Postgres down it says so, and shows what this instance knows', async (t, browser) => {
  const redis = await startPrivateRedis(t)
  if (redis === null) return
  const network = await startTcpProxy(t, services.databaseUrl)
  const alone = await startInstance(t, { ...services, databaseUrl: network.url, redisUrl: redis.url })
  const ops = await startOps(t, alone)
  const page = await browser.open(ops.url)
  const user = await makeUser(alone)
  const { token, id } = await makeKey(alone, { userId: user.id, name: 'steady' })
  const send = setInterval(() => verify(token, alone).catch(() => {}), 100)
  t.teardown(() => clearInterval(send))
  await shown(page, 'Redis counts')
  await page.locator('#current').getByText('steady').waitFor()
  await redis.kill()
  await shown(page, 'Redis is down')
  await shown(page, /keys that Redis does not count: this instance only/)
  await redis.restart()
  await shown(page, 'Redis counts')
  await shown(page, /counts were lost/)
  const found = await find(page, id)
  await found
    .getByText(/^at least \d/)
    .first()
    .waitFor()
  await found.locator('.usage .legend').waitFor()
  await found.getByRole('region', { name: 'Audit entries' }).waitFor()
  network.cut()
  network.refuse()
  await shown(page, 'Postgres is down')
  await shown(page, 'Only this one is known')
  await page.locator('#current').getByText(id).waitFor()
  await network.heal()
  await page.locator('#current').getByText('steady').waitFor()
  await shown(page, 'Postgres answers')
  t.strictSame(page.problems, [])
})

test('a connection that has died without a word is given up, and a new one is made', async (t, browser) => {
  const network = await startTcpProxy(t, port)
  const page = await browser.open('about:blank')
  await page.clock.install()
  await page.goto(network.url.replace('tcp:', 'http:'))
  await live(page)
  network.blackHole()
  await page.clock.fastForward(15_000)
  await shown(page, 'Not connected')
  await shown(page, /^Not connected: the charts and lists are as of \d\d:\d\d:\d\d\.$/)
  await page.clock.fastForward(15_000)
  await network.heal()
  await live(page)
  await shown(page, 'Postgres answers')
  await page.getByText('the charts and lists are as of').waitFor({ state: 'detached' })
})

test('a stream that ends and is back at once is not announced as lost', async (t, browser) => {
  const page = await browser.open(url)
  const hello = event('hello', { operator: 'ada', instance: 'ins_1', can_log_out: false, now: 1 })
  const goOn = await showEvents(page, hello + busiest([busy('first')]), hello + busiest([busy('second')]))
  await live(page)
  await page.evaluate(`{
    window.announced = []
    const connection = document.querySelector('#connection')
    new MutationObserver(() => announced.push(connection.textContent)).observe(connection, { childList: true })
  }`)
  await goOn()
  await page.locator('#current').getByText('second').waitFor()
  const announced = await page.evaluate<string[]>('announced')
  t.notOk(announced.includes('Not connected'), announced.join())
})

test('without a connection what was known can be read, and is not taken for new', async (t, browser) => {
  const used = [busy('over', { used: 9, limited: 4 }), busy('near', { used: 4 }), busy('calm')]
  const servers = event('servers', { redis: 'shared', postgres: 'ok' })
  for (const colorScheme of ['light', 'dark'] as const) {
    const page = await browser.open(url, { colorScheme })
    await showEvents(page, servers + busiest(used))
    await shown(page, 'Not connected')
    await shown(page, /^Not connected: the charts and lists are as of \d\d:\d\d:\d\d\.$/)
    t.strictSame(await page.locator('#states li').allInnerTexts(), ['State unknown'])
    t.strictSame(await barriersOf(page), [], colorScheme)
  }
})

test('a stream that is refused is asked for again after a pause, and once', async (t, browser) => {
  const page = await browser.open('about:blank')
  await page.clock.install()
  let asked = 0
  await page.route('**/admin/events', (route) =>
    ++asked === 1 ? route.fulfill({ status: 503 }) : route.fallback(),
  )
  const refused = page.waitForResponse((response) => response.request().resourceType() === 'fetch')
  await page.clock.pauseAt(Date.now() + 1000)
  await page.goto(url)
  await refused
  await shown(page, 'Not connected')
  const answered = () => page.evaluate('fetch("/").then((response) => response.text())')
  for (let i = 0; i < 3; i++) await answered()
  t.equal(asked, 1)
  await page.clock.runFor(3000)
  await live(page)
  // The first one would be given up now.
  await page.clock.runFor(12_000)
  for (let i = 0; i < 3; i++) await answered()
  t.equal(asked, 2)
})

test('a page with a module that does not load says so, and is loaded again every 5 s', async (t, browser) => {
  const { url: withTokens } = await startOps(t, instance)
  for (const [address, module, place, ready] of [
    [url, 'bars.js', '#connection', live],
    [withTokens, 'api.js', '#fault', logIn],
  ] as const) {
    const page = await browser.open('about:blank')
    let loads = 0
    page.on('load', () => loads++)
    await page.clock.install()
    await page.clock.pauseAt(Date.now() + 1000)
    let isBroken = true
    await page.route(`**/${module}`, (route) =>
      isBroken ? route.abort('connectionreset') : route.fallback(),
    )
    await page.goto(address)
    const isSaid = () => page.locator(place).getByText('The page has not loaded. Trying again…').waitFor()
    await isSaid()
    await page.clock.runFor(4900)
    await isSaid()
    t.equal(loads, 1)
    // While the service is down, the browser would show a page of its own.
    await page.route(`${address}/`, (route) => route.abort('connectionreset'), { times: 1 })
    const isDown = page.waitForEvent('requestfailed')
    await page.clock.runFor(100)
    await isDown
    await page.evaluate('fetch("/").then((response) => response.text())')
    const loaded = page.waitForEvent('load')
    await page.clock.runFor(5000)
    await loaded
    await isSaid()
    t.equal(loads, 2)
    isBroken = false
    await page.clock.runFor(5000)
    await ready(page)
  }
})

test('a browser whose clock is wrong shows the same', async (t, browser) => {
  await sql`
    insert into instances select silent.* from instances as known, jsonb_populate_record(
      known, jsonb_build_object('id', 'ins_silent', 'seen_at', now() - interval '1 hour')
    ) as silent limit 1`
  for (const wrongMin of [-10, 10]) {
    const page = await browser.open('about:blank')
    await page.addInitScript(`{
      const now = Date.now
      Date.now = () => now() + ${wrongMin} * 60_000
    }`)
    await page.goto(url)
    const upFor = page.locator('#instances tr', { hasText: local.service.instance().id }).locator('td').nth(3)
    await page.locator('#requests .value').getByText(/\d/).waitFor()
    await page.locator('#reasons-note').getByText('in the last 1 h').waitFor()
    t.match(await upFor.innerText(), /^[1-9]\d* (s|min)$/)
    await page.locator('#instances tr', { hasText: 'ins_silent' }).getByText('silent for 1 h').waitFor()
    // It is set while the page is open.
    await page.evaluate(`{
      const now = Date.now
      Date.now = () => now() + 3 * 3600_000
      document.querySelector('#requests .value').textContent = ''
    }`)
    await page.locator('#requests .value').getByText(/\d/).waitFor()
    await page.context().close()
  }
})

test('a response of a proxy, or one that breaks off, is said in words', async (t, browser) => {
  const page = await browser.open(url)
  const fault = page.locator('#search-fault')
  const { id } = await aKey()
  await page.getByLabel('Find a key').fill(id)
  await page.route('**/admin/lookup', () => {})
  await page.evaluate(`{
    const { timeout } = AbortSignal
    AbortSignal.timeout = () => timeout.call(AbortSignal, 1)
  }`)
  await page.getByLabel('Find a key').press('Enter')
  await fault.getByText('The service does not answer.').waitFor()
  await page.reload()
  await page.getByLabel('Find a key').fill(id)
  for (const response of [
    { contentType: 'text/html', body: '<p>Log in' },
    { body: '' },
    { status: 502, json: { error: 'bad gateway' } },
    { status: 502, json: null },
  ]) {
    await page.unrouteAll()
    await page.route('**/admin/lookup', (route) => route.fulfill(response))
    const answered = page.waitForResponse('**/admin/lookup')
    await page.getByLabel('Find a key').press('Enter')
    await answered
    await fault.getByText('The answer is not from Latchkey').waitFor()
  }
  await page.evaluate('Response.prototype.text = () => Promise.reject(new TypeError("network error"))')
  await page.getByLabel('Find a key').press('Enter')
  await fault.getByText('The service does not answer.').waitFor()
  const unexpected = page.problems.filter((problem) => !problem.includes('502'))
  t.strictSame(unexpected, [])
})

test('it fits a phone and the dark, and keeps nobody out', async (t, browser) => {
  const { token } = await aKey()
  await verify(token)
  for (const [colorScheme, viewport] of [
    ['light', { width: 360, height: 740 }],
    ['dark', { width: 1280, height: 900 }],
  ] as const) {
    const page = await browser.open(url, { colorScheme, viewport })
    await page.locator('.minutes li .fill').first().waitFor({ state: 'attached' })
    t.strictSame(await barriersOf(page), [], `${colorScheme} ${viewport.width}`)
    const tooWide = await page.evaluate<boolean>('document.documentElement.scrollWidth > innerWidth')
    t.notOk(tooWide, 'nothing sticks out')
    await shown(page, 'this page')
    const hidden =
      '(table => table.scrollWidth > table.clientWidth)(document.querySelector("#instances .scroll"))'
    t.equal(await page.evaluate(hidden), viewport.width === 360, 'only a phone has to scroll the table')
    await page.keyboard.press('Tab')
    t.equal(await page.evaluate('document.activeElement.id'), 'query', 'the search comes first')
    await page.locator('.minutes li button').last().click()
    const { y } = (await page.locator('#found h2').boundingBox())!
    t.ok(y > -1 && y < viewport.height / 2, 'what is found is shown from its beginning')
    await page.context().close()
  }
})
