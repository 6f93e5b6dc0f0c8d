/** Postgres refuses to run as root, and should not have root's access to files either: chooses whom it runs as. */
import { spawnSync } from 'node:child_process'
import { chmodSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Binaries } from './binaries.ts'
import type { DataDir } from './data-dir.ts'
import { codeOf, lastRelevantLine } from './faults.ts'

// "nobody" on Debian. Any user will do that owns nothing.
const nobody = 65534

export interface Launch {
  readonly prefix: readonly string[]
  readonly as: { uid?: number; gid?: number }
  /** Who must own the cluster's files, as seen from here. Null: leave them as they are. */
  readonly owner: number | null
  /** What the operator should know about it. */
  readonly warning: string | null
}

interface Candidate extends Launch {
  /** Who has to get through the directories above the programs and the data. Null: gets through any. */
  readonly passesAs: number | null
}

/** For when that user cannot reach the programs or the data, as under /root with mode 0700. Best first. */
const fallbacks: readonly Candidate[] = [
  // Root outside, without capabilities: root's files are open to it, others are not.
  {
    prefix: ['unshare', '--user', `--map-user=${nobody}`, `--map-group=${nobody}`, '--'],
    as: {},
    owner: 0,
    passesAs: 0,
    warning: "Postgres runs in a user namespace, with access to root's files",
  },
  // Where namespaces are blocked. A container has this capability by default, and not dac_read_search. Without no_setuid_fixup
  // Postgres would not find its own program: access(2) would ignore the capability.
  {
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
    owner: nobody,
    passesAs: null,
    warning: `Postgres runs as user ${nobody} with access to every file`,
  },
]

/** The program and arguments to spawn; `launch.as` goes into the options. */
export const commandOf = (launch: Launch, program: string, args: readonly string[]): [string, string[]] => {
  const [first = program, ...rest] = [...launch.prefix, program, ...args]
  return [first, rest]
}

/** How to run it here, and which major version it is. */
export function chooseLaunch(binaries: Binaries, dir: DataDir): { launch: Launch; major: string } {
  const direct: Launch = { prefix: [], as: {}, owner: null, warning: null }
  // --version is answered to root too, so this only tells whether the program runs on this machine.
  const { major, why } = tryVersion(direct, binaries)
  if (major === null) {
    throw new Error(
      `The Postgres that comes with Latchkey does not run here (${why}): set DATABASE_URL to the address of a Postgres of yours`,
    )
  }
  if (process.geteuid?.() !== 0) return { launch: direct, major }

  const user = unprivilegedUser(dir)
  const refused = whyNot(user, binaries, dir)
  if (refused === null) return { launch: user, major }
  for (const fallback of fallbacks) {
    if (whyNot(fallback, binaries, dir) === null)
      return { launch: { ...fallback, warning: `User ${user.owner} ${refused}: ${fallback.warning}` }, major }
  }
  throw new Error(
    `Postgres refuses to run as root, and user ${user.owner} ${refused}: run Latchkey as another user, or set DATABASE_URL to the address of a Postgres of yours`,
  )
}

/** The owner of a cluster that another user's service made, or that service could not open it again. */
function unprivilegedUser(dir: DataDir): Candidate {
  const made = statSync(dir.cluster, { throwIfNoEntry: false })
  const [uid, gid] = made === undefined || made.uid === 0 ? [nobody, nobody] : [made.uid, made.gid]
  return { prefix: [], as: { uid, gid }, owner: uid, passesAs: uid, warning: null }
}

/** Null: it can be run so. */
function whyNot(candidate: Candidate, binaries: Binaries, dir: DataDir): string | null {
  const { passesAs, as } = candidate
  // DATA_DIR itself is opened for the unprivileged user, just far enough.
  const paths = [binaries.directory, as.uid === undefined ? dir.path : dirname(dir.path)]
  const blocked = passesAs !== null && paths.flatMap(pathTo).find((path) => !mayPass(path, passesAs))
  if (blocked) return `cannot reach ${blocked}`
  const { major, why } = tryVersion(candidate, binaries)
  if (major === null) return `cannot run it (${why})`
  // Search, not read: what lies there is closed by itself.
  if (as.uid !== undefined && !mayPass(dir.path, as.uid))
    chmodSync(dir.path, (statSync(dir.path).mode & 0o7777) | 0o001)
  return null
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
  const lacksLoader =
    file === binaries.postgres &&
    codeOf(error) === 'ENOENT' &&
    statSync(file, { throwIfNoEntry: false }) !== undefined
  if (lacksLoader) return { major: null, why: 'it needs a Linux with glibc' }
  return { major: null, why: codeOf(error) === 'EPERM' ? 'that is not permitted here' : error.message }
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
