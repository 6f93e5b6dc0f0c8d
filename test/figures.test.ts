// docs/reliability.md says only what its tests can have printed, and only what a passing run has.
import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { figures, lineOf, notYetRun, patternOf, type Row } from './figures.ts'

const page = readFileSync(new URL('../docs/reliability.md', import.meta.url), 'utf8')
const rows = Object.keys(figures) as Row[]

t.test('every figure has a row, and every row a figure', async (t) => {
  const inPage = [...page.matchAll(/^\| .* \| \[(\S+)\]\(.*\) \|$/gm)].map(([, row]) => row)
  t.strictSame(inPage, rows)
})

for (const row of rows) {
  t.test(`${row} could have been printed by its test as it stands`, async (t) => {
    const [, , figure, , path] = lineOf(row).exec(page) ?? []
    if (figure !== notYetRun) t.match(figure, new RegExp(`^${patternOf(row)} \\(\\d{4}-\\d\\d-\\d\\d\\)$`))
    const test = new URL(path!, import.meta.url)
    t.ok(existsSync(test) && readFileSync(test, 'utf8').includes(`'${row}'`), `${path} measures it`)
  })
}

t.test('a text counts what it claims', async (t) => {
  /** Not counted, but what is counted: kinds of answers, and of figures. */
  const kinds = /\b(?:p99|5xx|200|401|404|503)s?\b/g
  for (const [row, text] of Object.entries(figures)) {
    const constant = text.replace(/\{\w+\}/g, '').replace(kinds, '')
    t.notMatch(constant, /\d|\b(?:all|each|every|exact|never|none)\b/i, row)
  }
})

/** What a run of the fixture, which measures `canary`, makes of a page. */
function pageAfter(t: Test, env: Record<string, string>): Promise<string> {
  const path = join(t.testdir({ page: `| a | b | ${notYetRun} | [canary](../test/x.test.ts) |\n` }), 'page')
  const fixture = fileURLToPath(new URL('./figures-fixture.ts', import.meta.url))
  const given = { ...process.env, _TAPJS_PROCESSINFO_COVERAGE_: '0', RELIABILITY_PAGE: path, ...env }
  // The same execArgv: tap's TypeScript loader is in it.
  return new Promise((resolve) => {
    execFile(process.execPath, [...process.execArgv, fixture], { env: given }, () =>
      resolve(readFileSync(path, 'utf8')),
    )
  })
}

t.test('a soak writes its figure when the whole file has passed', async (t) => {
  const today = /\| 1 requests, 2 places searched, 0 hits \(\d{4}-\d\d-\d\d\) \| \[canary\]/
  t.match(await pageAfter(t, { SOAK: '1' }), today)
})
for (const [what, env] of Object.entries({
  'a soak that fails later': { SOAK: '1', FAILS: '1' },
  'a short run': { SOAK: '0' },
})) {
  t.test(`${what} writes none`, async (t) => {
    t.match(await pageAfter(t, env), notYetRun)
  })
}
