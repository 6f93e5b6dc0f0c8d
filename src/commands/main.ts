/**
 * The command line. A fault is one plain line on stderr and exit code 1. With `--json`, an answer
 * is one JSON value.
 */
import { CommanderError } from 'commander'
import { redactAnyToken } from '../rules/token.ts'
import { printable } from './printable.ts'
import { program } from './program.ts'

// The reader may have seen enough, as in `latchkey audit list | head`.
process.stdout.on('error', () => {})

async function main() {
  const words = process.argv.slice(2)
  await program().parseAsync(words, { from: 'user' })
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
