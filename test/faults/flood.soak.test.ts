// A client guesses keys, as many as a machine can send: memory stays flat, keys in use are served,
// and each refusal is recorded.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { chooseLoad } from '../../bench/load/load.ts'
import { tokenFormat } from '../../src/rules/token.ts'
import { makeCaller, startInstance } from '../instance.ts'
import { p99, quantile, startLoad, statuses } from '../load.ts'
import { aFolder, externalEnv, type Serving, serveLatchkey } from '../process/latchkey.ts'
import { parsePrometheus } from '../process/prometheus.ts'
import { until } from '../process/until.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { recordFigure, scaled, soaking } from '../soak.ts'
import { expectRecorded, refusedIds } from './postgres-fault.ts'

const calmS = scaled(3, 20)
const warmS = scaled(2, 10)
const floodS = scaled(5, 60)
const badTokens = 200_000
const badConnections = 128
const goodPerSecond = 200
const knockPerSecond = 50
/** Below this a p99 tells more about the machine than about the service. */
const p99FloorMs = 10

t.test('under a flood of unknown keys, keys in use are served and every refusal is recorded', async (t) => {
  const services = await useServices(t)
  const seeding = await startInstance(t, services)
  const caller = await makeCaller(seeding)
  await seeding.close()
  const service = await serveLatchkey(t, externalEnv(services))
  const tokensFile = join(await aFolder(t), 'tokens')
  const tokens = Array.from({ length: badTokens }, () => tokenFormat('lk').mint())
  await writeFile(tokensFile, `${tokens.join('\n')}\n`)

  const load = (perSecond: number, ...tokens: string[]) =>
    startLoad(t, { urls: [service.url], tokens, perSecond })
  const wait = (seconds: number, since = performance.now()) =>
    until(`${seconds} s are over`, () => performance.now() - since > seconds * 1000, seconds * 2000 + 1000)
  const flood = (seconds: number) =>
    chooseLoad().shoot({
      url: `${service.url}/v1/verify`,
      tokensFile,
      first: 0,
      count: badTokens,
      connections: badConnections,
      seconds,
    })

  const calm = load(goodPerSecond, caller.token)
  await wait(calmS)
  const calmP99Ms = p99(await calm.stop())
  await flood(warmS)
  const before = await look(service)

  const good = load(goodPerSecond, caller.token)
  // Some of the flood whose answers are looked at.
  const knocks = load(knockPerSecond, ...tokens.slice(0, 1000))
  const flooding = flood(floodS)
  const rssMb: number[] = []
  const watch = setInterval(() => void look(service).then((seen) => rssMb.push(seen.rssMb)), 1000)
  const { requests, seconds } = await flooding
  clearInterval(watch)
  const [goodSamples, knockSamples] = await Promise.all([good.stop(), knocks.stop()])
  const after = await look(service)

  const floodP99Ms = p99(goodSamples)
  const bound = 2 * Math.max(calmP99Ms, p99FloorMs)
  t.same(Object.keys(statuses(goodSamples)), ['200'], 'a key in use is served throughout')
  if (soaking) t.ok(floodP99Ms < bound, `p99 of good keys ${floodP99Ms} ms, calm ${calmP99Ms} ms`)
  t.strictSame(
    Object.keys(statuses(knockSamples)).filter((status) => status !== '401' && status !== '503'),
    [],
    'a bad key is refused or shed',
  )
  t.ok(after.refused > before.refused, 'some are refused')
  const shed = knockSamples.filter(({ status }) => status === 503)
  for (const { headers } of shed) t.match(headers, { 'retry-after': /^\d+$/ })

  const seen = refusedIds(knockSamples)
  const missing = await expectRecorded(t, services.databaseUrl, seen)
  const sql = openDatabase(t, services.databaseUrl)
  const [all] = await sql`select count(*)::int as entries from audit_log where event = 'auth.refused'`
  t.ok(all!.entries >= after.refused, `${after.refused} refused, ${all!.entries} recorded`)

  // A heap that has just been filled has not been collected yet: only a long run tells about memory.
  const half = Math.floor(rssMb.length / 2)
  const [early, late] = [quantile(rssMb.slice(0, half), 0.5), quantile(rssMb.slice(half), 0.5)]
  if (soaking) t.ok(late < early * 1.1, `RSS ${early} MB in the first half, ${late} MB in the second`)
  const answered = (before: number, after: number) => (after - before) / seconds
  recordFigure(t, 'flood', {
    badPerS: requests / seconds,
    seconds,
    refusedPerS: answered(before.refused, after.refused),
    shedPerS: answered(before.shed, after.shed),
    missing,
    sampled: seen.length,
    earlyMb: early,
    lateMb: late,
    calmP99Ms,
    p99Ms: floodP99Ms,
  })
})

async function look({ opsUrl }: Serving) {
  const metrics = parsePrometheus(await (await fetch(`${opsUrl}/metrics`)).text())
  const answers = (status: string) => metrics.value('latchkey_requests_total', { status })
  return {
    refused: answers('401'),
    shed: answers('503'),
    rssMb: metrics.value('process_resident_memory_bytes') / 2 ** 20,
  }
}
