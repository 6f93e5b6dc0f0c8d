/**
 * The command line. A fault is one plain line on stderr and exit code 1. With `--json`, an answer
 * is one JSON value.
 */
import { CommanderError } from 'commander'
import { printable } from '../rules/printable.ts'
import { redactAnyToken } from '../rules/token.ts'
import { isReaderGone, reportUnwritten } from './command.ts'
import { program } from './program.ts'

let isCut = false
/** Reports it once and does not exit: a service keeps serving even if nobody can read its output. */
process.stdout.on('error', (error) => {
  // The reader may have seen enough, as in `latchkey audit list | head`.
  if (isReaderGone(error) || isCut) return
  isCut = true
  reportUnwritten(error)
})

/** stderr may be on the same full disk, or have lost the same reader. */
process.stderr.on('error', () => {})

async function main() {
  const words = process.argv.slice(2)
  const called = await program(words[0])
  await called.parseAsync(words, { from: 'user' })
}

/** Settles when the command has ended. */
export const ended = main().catch((error: Error & { suggestion?: string }) => {
  // Help or the version was asked for and printed.
  if (error instanceof CommanderError) return
  const { message, suggestion } = error
  const text = suggestion ? `${message} ${suggestion}` : message
  // Someone may have typed a key where an id or a command belongs.
  const line = `latchkey: ${printable(redactAnyToken(text).replaceAll(/\s*\n\s*/g, '; '))}\n`
  // What a pipe has not taken yet would be lost.
  process.stderr.write(line, () => process.stdout.write('', () => process.exit(1)))
})
