/**
 * Postgres refuses to run as root, and should not have root's access to files either. Chooses the
 * user it runs as.
 */
import { type SpawnSyncOptions, spawnSync } from 'node:child_process'
import { chmodSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Binaries } from './binaries.ts'
import type { DataDir } from './data-dir.ts'
import { codeOf, lastRelevantLine } from './faults.ts'

// "nobody" on Debian. Any user that owns nothing will do.
const nobody = 65534

export interface Launch {
  readonly prefix: readonly string[]
  readonly as: { uid?: number; gid?: number }
  /** Who must own the cluster's files. Null: leave them as they are. */
  readonly owner: number | null
  /** What the operator should know about it. */
  readonly warning: string | null
}

const direct: Launch = { prefix: [], as: {}, owner: null, warning: null }

/**
 * For when the unprivileged user cannot reach the programs or the data, as under /root with mode
 * 0700. Best first.
 */
const fallbacks: readonly Launch[] = [
  // Outside its namespace it is root, but without capabilities: it can open root's files and nobody
  // else's.
  {
    prefix: ['unshare', '--user', `--map-user=${nobody}`, `--map-group=${nobody}`, '--'],
    as: {},
    owner: 0,
    warning: "Postgres runs in a user namespace, with access to root's files",
  },
  // Where namespaces are blocked. A container has this capability by default, but not
  // dac_read_search. Without no_setuid_fixup Postgres would not find its own program: access(2)
  // would ignore the capability.
  {
    prefix: [
      ...['setpriv', '--securebits=+no_setuid_fixup', `--reuid=${nobody}`, `--regid=${nobody}`],
      ...['--clear-groups', '--inh-caps=+dac_override', '--ambient-caps=+dac_override', '--'],
    ],
    as: {},
    owner: nobody,
    warning: `Postgres runs as user ${nobody} with access to every file`,
  },
]

/** The program and arguments to spawn; `launch.as` goes into the options. */
export const commandOf = (launch: Launch, program: string, args: readonly string[]): [string, string[]] => {
  const [first = program, ...rest] = [...launch.prefix, program, ...args]
  return [first, rest]
}

/**
 * Runs a program to its end. Blocks the process, which has nothing else to do before its Postgres
 * runs.
 */
export function run(
  launch: Launch,
  { env }: Binaries,
  program: string,
  args: readonly string[],
  more: SpawnSyncOptions = {},
) {
  const [file, words] = commandOf(launch, program, args)
  const options = { ...launch.as, env, windowsHide: true, ...more, encoding: 'utf8' } as const
  const { status, signal, stdout, stderr, error } = spawnSync(file, words, options)
  const output = `${stdout ?? ''}${stderr ?? ''}`
  const why = error?.message ?? (lastRelevantLine(output) || (signal ?? `status ${status}`))
  return { ok: status === 0, output, why, code: codeOf(error) }
}

/** How to run Postgres here, and its major version. */
export function chooseLaunch(binaries: Binaries, dir: DataDir): { launch: Launch; major: string } {
  // Postgres answers --version to root too, so this only tests whether the program runs on this
  // machine.
  const { output, why, code } = run(direct, binaries, binaries.postgres, ['--version'])
  const major = /\) (\d+)/.exec(output)?.[1]
  if (major === undefined) {
    // The program is there, so what is not found is its loader.
    const reason = code === 'ENOENT' ? 'it needs a Linux with glibc' : why
    throw new Error(
      `The Postgres that comes with Latchkey does not run here (${reason}): set DATABASE_URL to the address of your own Postgres`,
    )
  }
  if (process.geteuid?.() !== 0) return { launch: direct, major }

  const user = unprivilegedUser(dir)
  const obstacle = obstacleTo(user, binaries, dir)
  if (obstacle === null) return { launch: user, major }
  const fallback = fallbacks.find((launch) => obstacleTo(launch, binaries, dir) === null)
  if (fallback === undefined)
    throw new Error(
      `Postgres refuses to run as root, and user ${user.owner} ${obstacle}: run Latchkey as another user, or set DATABASE_URL to the address of your own Postgres`,
    )
  return { launch: { ...fallback, warning: `User ${user.owner} ${obstacle}: ${fallback.warning}` }, major }
}

/**
 * If a service run by another user made the cluster, that user: otherwise its service could not
 * open it again.
 */
function unprivilegedUser(dir: DataDir): Launch {
  const made = statSync(dir.cluster, { throwIfNoEntry: false })
  const [uid, gid] = made === undefined || made.uid === 0 ? [nobody, nobody] : [made.uid, made.gid]
  return { ...direct, as: { uid, gid }, owner: uid }
}

/** Null if Postgres can run this way. */
function obstacleTo(launch: Launch, binaries: Binaries, dir: DataDir): string | null {
  const version = run(launch, binaries, binaries.postgres, ['--version'])
  if (!version.ok) return `cannot run it (${version.why})`
  const canEnter = (path: string) => run(launch, binaries, '/bin/sh', ['-c', 'cd "$0"', path]).ok
  const outermost = launch.as.uid === undefined ? dir.path : dirname(dir.path)
  if (!canEnter(outermost)) return `cannot reach ${outermost}`
  // Only search permission: the files in it have modes of their own.
  if (!canEnter(dir.path)) chmodSync(dir.path, (statSync(dir.path).mode & 0o7777) | 0o001)
  return null
}
