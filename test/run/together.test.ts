// `npm test` runs every test file once, alone or together with others.
import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { filesOf, groups } from './together.ts'

const root = join(import.meta.dirname, '../..')

t.test('no test file is left out, and none runs twice', async (t) => {
  const { stdout } = await promisify(execFile)(join(root, 'node_modules/.bin/tap'), ['list'], { cwd: root })
  const listed = stdout.trim().split('\n')
  const together = Object.keys(groups).map((group) => `test/all/${group}.test.ts`)
  t.strictSame(
    listed.filter((file) => file.startsWith('test/all/')),
    together,
  )
  const run = [
    ...listed.filter((file) => !file.startsWith('test/all/')),
    ...Object.values(groups).flatMap((group) => filesOf(group).map((file) => `test/${file}`)),
  ]
  const all = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' })
    .map((file) => `test/${file}`)
    .filter((file) => /^(?!test\/all\/)[^.]+\.test\.ts$/.test(file))
  t.strictSame(run.sort(), all.sort())
})
