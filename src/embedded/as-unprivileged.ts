/**
 * Postgres refuses to run as root, and in a container root is often who runs Latchkey. The ways out, best first; each is tried
 * on `postgres --version` before it is believed.
 */
import { spawnSync } from 'node:child_process'
import { chmodSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Binaries } from './binaries.ts'
import type { DataDir } from './data-dir.ts'
import { codeOf, lastRelevantLine } from './faults.ts'

// "nobody" on Debian; any user will do that owns nothing.
const nobody = 65534

export interface Launch {
  readonly name: 'direct' | 'owner' | 'unshare' | 'setpriv' | 'uid'
  /** Whose the cluster's files must be, seen from here; null: as they are. */
  readonly owner: number | null
  /** As whom it passes directories; null: as anybody it likes. */
  readonly passesAs: number | null
  readonly prefix: readonly string[]
  readonly as: { uid?: number; gid?: number }
}

const direct: Launch = { name: 'direct', owner: null, passesAs: null, prefix: [], as: {} }

const forRoot: readonly Launch[] = [
  // Nobody inside its namespace and root outside, without root's powers: no file has to change hands.
  {
    name: 'unshare',
    owner: 0,
    passesAs: 0,
    prefix: ['unshare', '--user', `--map-user=${nobody}`, `--map-group=${nobody}`, '--'],
    as: {},
  },
  // Nobody, who may pass any directory (/root is 0700). That one capability is among those a container has by default, while
  // dac_read_search is not and would add nothing. Without no_setuid_fixup access(2), which Postgres asks whether it finds
  // its own program, would disregard it.
  {
    name: 'setpriv',
    owner: nobody,
    passesAs: null,
    prefix: [
      'setpriv',
      '--securebits=+no_setuid_fixup',
      `--reuid=${nobody}`,
      `--regid=${nobody}`,
      '--clear-groups',
      '--inh-caps=+dac_override',
      '--ambient-caps=+dac_override',
      '--',
    ],
    as: {},
  },
  { name: 'uid', owner: nobody, passesAs: nobody, prefix: [], as: { uid: nobody, gid: nobody } },
]

/** Root started a command on what another user's service keeps: as that user, or the service could not open it again. */
function asOwner(dir: DataDir): Launch[] {
  const kept = statSync(dir.cluster, { throwIfNoEntry: false })
  if (kept === undefined || kept.uid === 0 || kept.uid === nobody) return []
  const { uid, gid } = kept
  return [{ name: 'owner', owner: uid, passesAs: uid, prefix: [], as: { uid, gid } }]
}

/** The program and arguments to spawn; `launch.as` goes into the options. */
export const commandOf = (launch: Launch, program: string, args: readonly string[]): [string, string[]] => {
  const [first = program, ...rest] = [...launch.prefix, program, ...args]
  return [first, rest]
}

/** How to run it here, and which major version it is. */
export function chooseLaunch(binaries: Binaries, dir: DataDir): { launch: Launch; major: string } {
  // --version is answered to root too, so this only tells whether the program runs on this machine.
  const { major, why } = tryVersion(direct, binaries)
  if (major === null) {
    throw new Error(
      `The Postgres that comes with Latchkey does not run here (${why}): set DATABASE_URL to the address of a Postgres of yours`,
    )
  }
  if (process.geteuid?.() !== 0) return { launch: direct, major }

  let reason = ''
  for (const launch of [...asOwner(dir), ...forRoot]) {
    const blocked = firstUnpassable(launch, binaries, dir)
    if (blocked === null && launch.name === 'uid') letPass(dir.path)
    const tried = blocked === null ? tryVersion(launch, binaries) : null
    if (tried?.major) return { launch, major }
    reason = blocked === null ? `(${tried?.why})` : `, which cannot reach ${blocked}`
  }
  throw new Error(
    `Postgres refuses to run as root and could not be run as user ${nobody}${reason.startsWith('(') ? ' ' : ''}${reason}: run Latchkey as another user, or set DATABASE_URL to the address of a Postgres of yours`,
  )
}

function tryVersion(launch: Launch, binaries: Binaries): { major: string | null; why: string } {
  const [file, args] = commandOf(launch, binaries.postgres, ['--version'])
  const { status, stdout, stderr, error } = spawnSync(file, args, {
    ...launch.as,
    env: binaries.env,
    encoding: 'utf8',
    timeout: 10_000,
    windowsHide: true,
  })
  const major = status === 0 ? (/\) (\d+)/.exec(stdout)?.[1] ?? null) : null
  if (error === undefined) return { major, why: lastRelevantLine(stderr ?? '') || `status ${status}` }
  // The file is there, so what is not found is the loader that it names: a Linux without glibc.
  const lacksLoader = launch.name === 'direct' && codeOf(error) === 'ENOENT' && exists(binaries.postgres)
  if (lacksLoader) return { major: null, why: 'it needs a Linux with glibc' }
  return { major: null, why: codeOf(error) === 'EPERM' ? 'that is not permitted here' : error.message }
}

/** The first directory on the way to the programs or to the data that this launch would not get through. */
function firstUnpassable({ name, passesAs }: Launch, binaries: Binaries, dir: DataDir): string | null {
  if (passesAs === null) return null
  // For plain `uid` DATA_DIR itself is opened just far enough.
  for (const target of [binaries.directory, name === 'uid' ? dirname(dir.path) : dir.path]) {
    const blocked = pathTo(target).find((directory) => !mayPass(directory, passesAs))
    if (blocked !== undefined) return blocked
  }
  return null
}

const pathTo = (path: string): string[] =>
  dirname(path) === path ? [path] : [...pathTo(dirname(path)), path]

function mayPass(directory: string, id: number): boolean {
  try {
    const { mode, uid, gid } = statSync(directory)
    return (mode & (uid === id ? 0o100 : gid === id ? 0o010 : 0o001)) !== 0
  } catch {
    return false
  }
}

/** Search, not read: who passes must know the name, and what lies there is closed by itself. */
function letPass(directory: string): void {
  if (!mayPass(directory, nobody)) chmodSync(directory, (statSync(directory).mode & 0o7777) | 0o001)
}

function exists(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined
}
