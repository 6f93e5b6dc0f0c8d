// Runs the commands that it reads from stdin in this one process: most of a command's time is its
// start. Each line is JSON: the words, and the whole environment. Argument: the compiled
// src/commands/main.js, which runs at each import.
import { createInterface } from 'node:readline'

const main = process.argv[2]
const answer = process.stdout.write.bind(process.stdout)
let runs = 0
// Each run adds one.
for (const emitter of [process, process.stdout, process.stderr]) emitter.setMaxListeners(0)

for await (const line of createInterface({ input: process.stdin }))
  answer(`${JSON.stringify(await run(JSON.parse(line)))}\n`)

function run({ words, env }) {
  process.argv = [process.execPath, main, ...words]
  for (const name in process.env) delete process.env[name]
  Object.assign(process.env, env)
  const ended = { code: 0, signal: null, stdout: '', stderr: '' }
  return new Promise((resolve) => {
    process.stderr.write = (text, written) => {
      ended.stderr += text
      written?.()
      return true
    }
    process.stdout.write = (text, written) => {
      ended.stdout += text
      written?.()
      return true
    }
    process.exit = (code) => resolve({ ...ended, code })
    import(`${main}?${runs++}`).then((command) => command.ended).then(() => resolve(ended))
  })
}
