/**
 * `npm run screenshot`: docs/dashboard.png, the dashboard of the demo after about two minutes. Needs
 * Debian's chromium.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright-core'
import { dashboardPicture } from '../paths.ts'

/** Long enough that the last full minute has traffic. */
const watchedMs = 75_000
/** Late in a minute, when the bars are long. */
const secondOfMinute = 50

const demo = spawn(process.execPath, [fileURLToPath(new URL('demo.js', import.meta.url))], {
  stdio: ['ignore', 'pipe', 'inherit'],
})
const ended = once(demo, 'close')
try {
  const url = await addressOf()
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] })
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: 'light' })
  await page.goto(url)
  await pause(watchedMs)
  await pause(((120 + secondOfMinute - new Date().getSeconds()) * 1000) % 60_000)
  await page.screenshot({ path: dashboardPicture, fullPage: true })
  await browser.close()
} finally {
  demo.kill('SIGINT')
  await ended
}

async function addressOf(): Promise<string> {
  for await (const line of createInterface(demo.stdout)) {
    const address = /Dashboard +(\S+)/.exec(line)?.[1]
    if (address !== undefined) {
      demo.stdout.resume()
      return address
    }
  }
  throw new Error('the demo did not start')
}
