// `npm run test:soak [-- FILE…]`: the given tests, or all that have a full length, one after the
// other at that length; then a table.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createWriteStream, mkdirSync, readdirSync } from 'node:fs'
import { createInterface } from 'node:readline'

const all = [
  ...['test/faults', 'test/security', 'test/simulation'].flatMap((folder) => testsIn(folder, '.test.ts')),
  ...testsIn('test/process', '.soak.test.ts'),
]
const files = process.argv.length > 2 ? process.argv.slice(2) : all
const output = '.tap/soak.tap'
const options = ['--test-env=SOAK=1', '--jobs=1', '--timeout=36000', '--reporter=tap']
const tap = spawn('tap', ['run', ...options, ...files], { stdio: ['ignore', 'pipe', 'inherit'] })
const ended = once(tap, 'close')
mkdirSync('.tap', { recursive: true })
tap.stdout.pipe(createWriteStream(output))

const table = [['', 'test', 'row', 'figure', 'time']]
let figures = []
let failed = 0
for await (const line of createInterface({ input: tap.stdout })) {
  const [, figure, row] = /^ +# figure (([\w-]+): .*)$/.exec(line) ?? []
  if (figure) figures.push([row, figure.slice(row.length + 2)])
  const [, progress] = /^ +# progress: (.*)$/.exec(line) ?? []
  if (progress) process.stderr.write(`       ${progress}\n`)
  // A whole file's result is not indented, and those of its tests are.
  const [, no, file, ms] = /^(not )?ok \d+ - (\S+\.test\.ts)(?: # .*?time=([\d.]+)ms)?/.exec(line) ?? []
  if (!file) continue
  const result = no ? 'FAILED' : 'ok'
  const time = ms ? `${Math.round(Number(ms) / 1000)} s` : ''
  process.stderr.write(`${result.padEnd(6)} ${file} ${time}\n`)
  for (const [row, figure] of figures.length > 0 ? figures : [['', '']])
    table.push([result, file, row, figure, time])
  figures = []
  if (no) failed++
}
process.stdout.write(
  `\n${asText(table)}\n\n${failed} of ${files.length} files failed; all output is in ${output}\n`,
)
const [code] = await ended
process.exitCode = code ?? 1

function testsIn(folder, ending) {
  const names = readdirSync(folder).filter((name) => name.endsWith(ending))
  return names.sort().map((name) => `${folder}/${name}`)
}

function asText(rows) {
  const widths = rows[0].map((_, i) => Math.max(...rows.map((row) => row[i].length)))
  return rows
    .map((row) =>
      row
        .map((cell, i) => cell.padEnd(widths[i]))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}
