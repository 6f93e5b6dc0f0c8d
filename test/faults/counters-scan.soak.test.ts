// A scan of a million counters: what it costs Redis, how long it takes, and how much of it this
// process remembers.
import t from 'tap'
import { shareMax } from '../../src/ops/board.ts'
import { createTopCounts } from '../../src/ops/top-counts.ts'
import type { KeyCount } from '../../src/stores.ts'
import { countAt, observe } from '../redis/counters.ts'
import { startPrivateRedis } from '../services/index.ts'
import { recordFigure, scaled } from '../soak.ts'

const counters = scaled(20_000, 1_000_000)
const minute = 29_000_000
const kept = 10_000
const megabyte = 2 ** 20

const fill = `for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  redis.call('set', string.format('rl:{apk_%026d}:${minute}', i), i, 'ex', 3600)
end`

const server = await startPrivateRedis(t)

if (server) {
  const redis = observe(t, server.url)
  /** Seconds of the whole process, its own housekeeping included. */
  const cpuS = async () =>
    [...(await redis.info('cpu')).matchAll(/^used_cpu_(?:user|sys):([\d.]+)/gm)].reduce(
      (sum, [, seconds]) => sum + Number(seconds),
      0,
    )

  t.test(`a scan of ${counters} counters uses 5 % of a core of Redis, and little memory`, async (t) => {
    const step = 10_000
    for (let from = 1; from <= counters; from += step) await redis.eval(fill, 0, from, from + step - 1)
    const { counter, untilShared } = countAt(t, server.url)
    await untilShared()
    const top = createTopCounts(kept)
    const startedMs = performance.now()
    const startedCpuS = await cpuS()
    const startedRss = process.memoryUsage.rss()
    let highestRss = startedRss
    const visit = (slice: KeyCount[]) => {
      top.add(slice)
      highestRss = Math.max(highestRss, process.memoryUsage.rss())
    }
    const scan = await counter.scan(minute, visit, { share: shareMax })
    const seconds = (performance.now() - startedMs) / 1000
    const sharePercent = (((await cpuS()) - startedCpuS) / seconds) * 100
    const memoryMb = (highestRss - startedRss) / megabyte
    t.match(scan, { complete: true, mode: 'shared' })
    t.ok(scan.scanned >= counters && scan.scanned < counters * 1.01, `${scan.scanned} visited`)
    t.strictSame(
      top.highest(kept).map(({ count }) => count),
      Array.from({ length: kept }, (_, i) => counters - i),
    )
    t.ok(sharePercent <= 5, `${sharePercent} % of a core`)
    t.ok(memoryMb < 100, `${memoryMb} MB more`)
    recordFigure(t, 'counters-scan', { counters, seconds, sharePercent, memoryMb })
  })
}
