/**
 * Loaded into each measured process before its own code (`--import`): tells what it has used when the driver asks. It does
 * nothing between two questions, so it costs the candidates nothing, and all of them the same.
 */
export interface Usage {
  /** User and system time of all threads since the start, microseconds. */
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
  // The driver is gone: nobody else would end this process.
  process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'))
  process.channel?.unref()
}
