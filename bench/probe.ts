/**
 * Loaded into each measured process before its own code (`--import`). Reports what the process has
 * used when the driver asks, and does nothing in between.
 */
export interface Usage {
  /** User and system time of all threads since the start, in microseconds. */
  cpuUs: number
  rssBytes: number
  /** The highest RSS since the start. */
  peakRssBytes: number
}

export const question = 'usage'

function usage(): Usage {
  const { user, system } = process.cpuUsage()
  return {
    cpuUs: user + system,
    rssBytes: process.memoryUsage.rss(),
    peakRssBytes: process.resourceUsage().maxRSS * 1024,
  }
}

if (process.send !== undefined) {
  process.on('message', (message) => {
    if (message === question) process.send!(usage())
  })
  // The driver has ended, and nothing else would stop this process.
  process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'))
  process.channel?.unref()
}
