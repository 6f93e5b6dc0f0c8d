// A run fails if a file has not reported, whatever tap says.
import { execFile } from 'node:child_process'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'

const root = join(import.meta.dirname, '../..')
const bins = join(root, 'node_modules/.bin')
const passes = "import t from 'tap'\nt.pass('it ran')\n"
const hangs = `import t from 'tap'
t.setTimeout(1000)
t.test('x', () => new Promise(() => setInterval(() => {}, 1000)))
`

/** A project whose test files are these. */
async function run(t: Test, files: Record<string, string>) {
  const tap = { timeout: 600, jobs: 1, 'disable-coverage': true, 'test-env': ['TAP_TYPE_STRIP_ONLY=1'] }
  const settings = { name: 'x', type: 'module', tap }
  const folder = t.testdir({
    'package.json': JSON.stringify(settings),
    node_modules: t.fixture('symlink', join(root, 'node_modules')),
    test: files,
  })
  const env = { PATH: `${bins}${delimiter}${process.env.PATH}` }
  return promisify(execFile)(process.execPath, [join(root, 'test/run/run.mjs')], { cwd: folder, env }).then(
    ({ stderr }) => ({ code: 0, stderr }),
    ({ code, stderr }) => ({ code, stderr }),
  )
}

t.test('a run shows a failure again at its end, and passes if the file then passes alone', async (t) => {
  const once = `import { existsSync, writeFileSync } from 'node:fs'
import t from 'tap'
t.test('outer', async (t) => t.ok(existsSync('seen'), 'it was here before'))
writeFileSync('seen', '')
`
  const { code, stderr } = await run(t, { 'a.test.js': once, 'b.test.js': passes })
  t.equal(code, 0)
  t.match(stderr, /These have failed:\n +not ok 1 - it was here before\n +---\n[\s\S]*a\.test\.js/)
  t.match(stderr, /Running these again, one at a time:\n +test\/a\.test\.js\n[\s\S]*All of these now pass/)
  t.notMatch(stderr, /reported|not ok \d+ - outer/)
})

t.test('a file that hangs once and hides the result of another fails no run', async (t) => {
  const once = `import { existsSync, writeFileSync } from 'node:fs'
import t from 'tap'
t.setTimeout(1000)
const isSecond = existsSync('seen')
writeFileSync('seen', '')
t.test('x', async () => isSecond || new Promise(() => setInterval(() => {}, 1000)))
`
  const { code, stderr } = await run(t, { 'a.test.js': once, 'b.test.js': passes, 'c.test.js': passes })
  t.equal(code, 0)
  t.match(stderr, '1 of 3 files have not reported:\n  test/c.test.js\n')
  t.match(stderr, /Running these again, one at a time:\n +test\/a\.test\.js\n +test\/c\.test\.js\n/)
})

t.test('a run in which the result of a file is lost fails and names the file', async (t) => {
  const { code, stderr } = await run(t, { 'a.test.js': hangs, 'b.test.js': passes, 'c.test.js': passes })
  t.equal(code, 1)
  t.match(stderr, '1 of 3 files have not reported:\n  test/c.test.js\n')
  t.match(stderr, 'These have failed again:')
})
