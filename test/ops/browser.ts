/** A real browser with the dashboard, for tests. Debian's chromium; nothing is downloaded. */
import { access, readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import type { Test } from 'tap'

const program = '/usr/bin/chromium'
const args = [
  ...['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
  ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
]
/** A busy machine may take long; nothing is decided by the time. */
const patienceMs = 60_000

export interface Browser {
  /** A page of its own cookies. `problems`: what it wrote to the console, and what it threw. */
  open(url: string, options?: BrowserContextOptions): Promise<Page & { problems: string[]; asked: string[] }>
  /** A live page costs time, also one that nobody looks at. */
  closePages(): Promise<void>
}

/** Null where there is no chromium. */
export async function startBrowser(t: Test): Promise<Browser | null> {
  const isInstalled = await access(program).then(
    () => true,
    () => false,
  )
  if (!isInstalled) return null
  const browser = await chromium.launch({ executablePath: program, args })
  t.teardown(() => browser.close())
  return {
    async closePages() {
      // A handler that is answering while its page closes would reject, and nobody would catch it.
      const pages = browser.contexts().flatMap((context) => context.pages())
      await Promise.all(pages.map((page) => page.unrouteAll({ behavior: 'ignoreErrors' })))
      await Promise.all(browser.contexts().map((context) => context.close()))
    },
    async open(url, options) {
      const context = await browser.newContext(options)
      context.setDefaultTimeout(patienceMs)
      const page = Object.assign(await context.newPage(), { problems: [] as string[], asked: [] as string[] })
      page.on('console', (message) => {
        if (['error', 'warning'].includes(message.type())) page.problems.push(message.text())
      })
      page.on('pageerror', (error) => page.problems.push(error.message))
      page.on('request', (request) => page.asked.push(request.url()))
      await page.goto(url)
      return page
    },
  }
}

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** The rules of axe-core that a page breaks, all but the minor ones. */
export async function barriersOf(page: Page): Promise<string[]> {
  await page.evaluate(axe)
  const { violations } = await page.evaluate<Report>('axe.run()')
  return violations
    .filter(({ impact }) => impact !== 'minor')
    .flatMap(({ id, nodes }) => nodes.map(({ target }) => `${id}: ${target}`))
}

interface Report {
  violations: { id: string; impact: string; nodes: { target: string[] }[] }[]
}
