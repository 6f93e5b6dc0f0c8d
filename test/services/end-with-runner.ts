// A test whose runner was killed would go on alone, without services and with nobody to time it out, and hold its private
// servers for as long. tap ties every test file to its runner by an IPC channel, which breaks then.
let tied = false

export function endWithRunner(): void {
  if (tied) return
  tied = true
  process.once('disconnect', () => process.exit(1))
}
