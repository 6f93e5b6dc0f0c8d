/**
 * The command line. A fault is one plain line on stderr and exit code 1. With `--json`, an answer
 * is one JSON value.
 */
import { CommanderError } from 'commander'
import { redactAnyToken } from '../rules/token.ts'
import { printable } from './printable.ts'
import { program } from './program.ts'

let isCut = false
/** Reports it once and does not exit: a service keeps serving even if nobody can read its output. */
process.stdout.on('error', ({ code, message }: NodeJS.ErrnoException) => {
  // The reader may have seen enough, as in `latchkey audit list | head`.
  if (code === 'EPIPE' || isCut) return
  isCut = true
  process.exitCode = 1
  process.stderr.write(
    `latchkey: the output could not be written (${message}); what the command did is done. If it made a new key, nobody has seen it: rotate or revoke that key\n`,
  )
})

/** stderr may be on the same full disk, or have lost the same reader. */
process.stderr.on('error', () => {})

async function main() {
  const words = process.argv.slice(2)
  const called = await program(words[0])
  await called.parseAsync(words, { from: 'user' })
}

main().catch((error: Error) => {
  // Help or the version was asked for and printed.
  if (error instanceof CommanderError) return
  // Someone may have typed a key where an id or a command belongs.
  process.stderr.write(
    `latchkey: ${printable(redactAnyToken(error.message).replaceAll(/\s*\n\s*/g, '; '))}\n`,
  )
  process.exit(1)
})
