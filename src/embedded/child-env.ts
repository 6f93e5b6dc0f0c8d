/**
 * The environment of every program started here, and no more than that: HASH_SECRET must not show
 * in the /proc/<pid>/environ of a process that runs as another user, PG* variables would redirect
 * initdb and postgres, and an unsupported LC_ALL keeps Postgres from starting on macOS. This hands
 * process.env on; it reads no configuration from it.
 */
export function childEnv(more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const { PATH, SystemRoot, TEMP, TMP } = process.env
  // TZ: without it initdb compares the machine's clock with every time zone it knows.
  return { PATH, SystemRoot, TEMP, TMP, LC_ALL: 'C', TZ: 'UTC', ...more }
}
