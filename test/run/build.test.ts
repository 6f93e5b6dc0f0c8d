// `npm run build` compiles only what has changed, and never empties `dist`: a service may be
// running from it.
import { exec } from 'node:child_process'
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'

const root = join(import.meta.dirname, '../..')
const read = (name: string) => readFileSync(join(root, name), 'utf8')

t.test('a build writes what has changed, and removes what has no source', async (t) => {
  const folder = t.testdir({
    'package.json': read('package.json'),
    'tsconfig.json': read('tsconfig.json'),
    node_modules: t.fixture('symlink', join(root, 'node_modules')),
    src: {
      'cli.ts': 'export const a = 1\n',
      'changed.ts': 'export const b = 1\n',
      'removed.ts': 'export {}\n',
    },
  })
  const build = () => promisify(exec)('npm run --silent build', { cwd: folder })
  const outputs = (name: string) =>
    ['.js', '.js.map', '.d.ts'].map((ending) => join(folder, 'dist/src', `${name}${ending}`))
  const written = () => outputs('cli').map((file) => statSync(file).ctimeMs)
  await build()
  for (const name of ['cli', 'changed', 'removed'])
    for (const file of outputs(name)) t.ok(existsSync(file), file)
  // npx makes the program executable only when it first sees the folder.
  t.equal(statSync(outputs('cli')[0]!).mode & 0o111, 0o111)

  const before = written()
  writeFileSync(join(folder, 'src/changed.ts'), 'export const b = 2\n')
  rmSync(join(folder, 'src/removed.ts'))
  await build()
  // Its mode too: only the owner may set it, and another user may start what is built.
  t.strictSame(written(), before, 'what has not changed is left alone')
  t.match(readFileSync(outputs('changed')[0]!, 'utf8'), 'b = 2')
  for (const file of outputs('removed')) t.notOk(existsSync(file), file)
})
