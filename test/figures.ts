/**
 * The text of each figure in docs/reliability.md, by the name of its row. Every number is one that
 * the run has counted: what a text claims in words or as a constant would be claimed by a run that
 * never looked. Line breaks count as spaces.
 */

const rolling = `{restarts} restarts, {failed} of {requests} requests failed, p99 {p99Ms} ms,
  the longest stop {longestStopS} s`

const redis = `{rounds} rounds, {requests} requests: {failed} × 5xx, 401 or no answer;
  p99 during the switch {p99Ms} ms (worst round {worstMs} ms); shared again after at most {backMs} ms`

const outage = `keys in use {cached} × 200, p99 {p99Ms} ms; {unavailable} × 503, slowest {slowestMs} ms;
  {wrong} × anything else; back in {backMs} ms` as const
const postgres = `{rounds} times: ${outage}` as const

const after = `{requests} requests after them ({undecided} × 503), {old} on the old state` as const
const lateChanges = `{changes} changes, the slowest answered after {slowestS} s; ${after}` as const

const clusterChanges = `{changes} changes, {wrong} wrong answers after them; slowest answer {slowestMs} ms`
const clusterLoss = `{rounds} times, {requests} requests: {failed} × 5xx, 401 or no answer; worst p99 of the
  switch {otherP99Ms} ms for the other keys, {ownP99Ms} ms for its own ({idleP99Ms} ms without Redis);
  back after {backMs} ms`

const smuggling = `{payloads} payloads, {run} hidden requests run`
const smugglingThrough = `${smuggling}, {answers} answers to others on {shared} connections shared with
  them, {wrong} wrong` as const

const slow = `{connections} connections, the last ended after {longestS} s; {served} of {requests} good requests
  answered 200, p99 {p99Ms} ms (calm {calmP99Ms} ms); {beforeMb} → {duringMb} → {afterMb} MB`

export const figures = {
  'rolling-haproxy': rolling,
  'rolling-nginx': rolling,
  flood: `{badPerS} bad keys/s for {seconds} s: {refusedPerS}/s refused, {shedPerS}/s shed; {missing} of {sampled}
    sampled 401s not in the audit log; RSS {earlyMb} → {lateMb} MB; p99 of good keys {calmP99Ms} ms before and
    {p99Ms} ms during the flood`,
  'redis-killed': redis,
  'redis-restarted': redis,
  'redis-frozen': redis,
  'redis-black-hole': redis,
  'redis-black-hole-one': redis,
  'redis-out-of-memory': redis,
  'redis-script-flush': redis,
  'redis-flushall': redis,
  'redis-changes': `{changes} changes, {requests} requests after their answers: {wrong} wrong; the slowest answer
    after {slowestS} s`,
  splits: lateChanges,
  'postgres-killed': postgres,
  'postgres-frozen': postgres,
  'postgres-terminated': `{ended} connections ended; once: ${outage}`,
  'postgres-full': postgres,
  'postgres-pool': `once: ${outage}`,
  'postgres-locked-api_keys': postgres,
  'postgres-locked-users': postgres,
  'postgres-locked-audit_log': postgres,
  'postgres-failover': postgres,
  'postgres-standby': postgres,
  'postgres-read-only': postgres,
  'audit-kill9': `{kills} kills, {given} refusals given, {missing} missing, {twice} twice`,
  exact: `{minutes} minutes of {keys} keys, {requests} requests, {crossing} of them under way when a minute turned:
    {off} off`,
  'skewed-clock': `{minutes} minutes, {requests} requests: {off} off; {early} refused before they expired, the last
    admitted {lateMs} ms after`,
  changes: `{changes} changes, ${after}`,
  'changes-redis-frozen': lateChanges,
  'changes-redis-killed': lateChanges,
  'changes-flushall': lateChanges,
  'changes-redis-restart': lateChanges,
  'cluster-exact': `{requests} requests, {keys} keys: {off} counted wrongly`,
  'cluster-changes': clusterChanges,
  'cluster-slot-moves': `{moves} moves, {requests} requests of {keys} keys: {off} counted wrongly, p99 {p99Ms} ms`,
  'cluster-slot-changes': clusterChanges,
  'cluster-grows': `{requests} requests: {failed} × 5xx, 401 or no answer; shared {backMs} ms after the move`,
  'cluster-node-killed': clusterLoss,
  'cluster-node-frozen': clusterLoss,
  'cluster-failover': clusterLoss,
  'usage-kill9': `{keys} keys with {requests} requests, {partly} keys stored when it was killed; {stored} requests
    stored in the end`,
  'usage-redis-lost': `{counted} requests: {reported} reported, {stored} stored, {incomplete} minutes incomplete`,
  'counters-scan': `{counters} counters in {seconds} s: {sharePercent} % of a core of Redis, {memoryMb} MB more`,
  model: `{requests} requests in {sequences} sequences`,
  'request-fuzz': `{requests} requests, {unavailable} × 503, longest {longestMs} ms`,
  'hostile-bytes': `{connections} connections, {run} hidden requests run, {faults} faults logged`,
  'smuggling-alone': smuggling,
  'smuggling-nginx': smugglingThrough,
  'smuggling-nginx-streamed': smugglingThrough,
  'smuggling-haproxy': smugglingThrough,
  'slow-headers': slow,
  'slow-bodies': slow,
  'timing-401': `median difference at most {us} µs in {rounds} rounds, {detectableUs} µs could have been seen`,
  'timing-404': `median difference at most {getUs} µs for GET, {patchUs} µs for PATCH and {deleteUs} µs for DELETE in
    {rounds} rounds, {detectableUs} µs could have been seen`,
  uniformity: `{refusals} 401s and {misses} 404s compared, {differing} differ`,
  canary: `{requests} requests, {places} places searched, {hits} hits`,
  simulation: `{schedules} schedules with {faults} faults, {requests} requests and {changes} changes:
    {broken} broke a promise`,
  'simulation-bugs': `{found} of {bugs} found, the last one in schedule {last}`,
} as const

export type Row = keyof typeof figures
type Named<Text> = Text extends `${string}{${infer Name}}${infer Rest}` ? Name | Named<Rest> : never
/** A number for each name in the row's text. */
export type Numbers<R extends Row> = Readonly<Record<Named<(typeof figures)[R]>, number>>

const named = /\{(\w+)\}/g
const oneLine = (text: string) => text.replace(/\s+/g, ' ')

/** Whole from 100 on; below that to a tenth. */
function shown(name: string, value: number | undefined): string {
  if (!Number.isFinite(value)) throw new Error(`${name} was not measured: ${value}`)
  return String(value! < 100 ? Math.round(value! * 10) / 10 : Math.round(value!))
}

/** The row's text with its numbers. */
export const figureOf = <R extends Row>(row: R, numbers: Numbers<R>): string =>
  oneLine(figures[row]).replace(named, (_, name) =>
    shown(`${row}: ${name}`, numbers[name as keyof Numbers<R>]),
  )

/** What `figureOf` can print for this row. */
export const patternOf = (row: Row): string =>
  oneLine(figures[row])
    .split(named)
    .map((part, i) => (i % 2 === 0 ? part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&') : '-?\\d+(?:\\.\\d)?'))
    .join('')

/** The cell of a row that has not been measured as it stands. */
export const notYetRun = 'not yet run'

/** The line of a row: its figure is the third cell; the last names it and links to its test. */
export const lineOf = (row: Row): RegExp =>
  new RegExp(`^(\\| [^|]+ \\| [^|]+ \\| )([^|]+)( \\| \\[${row}\\]\\(\\.\\./test/([\\w./-]+)\\) \\|)$`, 'm')

/** The page with these figures in place of the former ones. A row that is not there is a fault of the test. */
export function withFigures(page: string, measured: ReadonlyMap<Row, string>, day: string): string {
  for (const [row, figure] of measured) {
    if (!lineOf(row).test(page)) throw new Error(`docs/reliability.md has no row ${row}`)
    page = page.replace(lineOf(row), (_, before, _former, after) => `${before}${figure} (${day})${after}`)
  }
  return page
}
