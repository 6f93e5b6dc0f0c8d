// Runs the commands that it reads from stdin, one JSON array of words a line, in this one process: most of a command's time is its
// start. Argument: the compiled src/commands/main.js, which runs at each import.
import { createInterface } from 'node:readline'

const main = process.argv[2]
const answer = process.stdout.write.bind(process.stdout)
let runs = 0

for await (const line of createInterface({ input: process.stdin }))
  answer(`${JSON.stringify(await run(JSON.parse(line)))}\n`)

/** A command ends by writing its answer or by exiting. */
function run(words) {
  process.argv = [process.execPath, main, ...words]
  const ended = { code: 0, signal: null, stdout: '', stderr: '' }
  return new Promise((resolve) => {
    process.stderr.write = (text) => {
      ended.stderr += text
      return true
    }
    process.stdout.write = (text) => {
      ended.stdout += text
      resolve(ended)
      return true
    }
    process.exit = (code) => resolve({ ...ended, code })
    import(`${main}?${runs++}`)
  })
}
