// What a Redis and a Postgres of one test's own have in common: a temporary folder, an end with the test or with the
// run, and going away and coming back at the same address.
import type { Test } from 'tap'
import { endWithRunner } from './end-with-runner.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from './folders.ts'
import type { ServerProcess } from './server-process.ts'

export interface PrivateServer {
  readonly pid: number
  /**
   * Default SIGKILL, which goes to all its processes, as when a machine is lost; others go to the first. Answers once the
   * server is gone, and it stays away. Postgres waits on SIGTERM for its clients to leave, on SIGINT it does not.
   */
  kill(signal?: NodeJS.Signals): Promise<void>
  /** SIGSTOP to all its processes: connections stay open, nothing is answered. */
  freeze(): Promise<void>
  thaw(): Promise<void>
  /** Same address and data folder; ends it first when it runs. */
  restart(): Promise<void>
  stop(): Promise<void>
}

export async function startPrivateServer(
  t: Test,
  name: string,
  start: (folder: string) => Promise<ServerProcess>,
): Promise<PrivateServer> {
  endWithRunner()
  const folder = await makeTemporaryFolder(name)
  let stop = async () => {}
  // Registered before the start: one that fails leaves a folder too.
  t.teardown(async () => {
    await stop()
    await removeTemporaryFolder(folder)
  })
  let server = await start(folder)
  stop = () => server.stop()
  return {
    get pid() {
      return server.pid
    },
    kill: (signal = 'SIGKILL') => server.kill(signal),
    freeze: () => server.freeze(),
    thaw: () => server.thaw(),
    async restart() {
      await server.stop()
      server = await start(folder)
    },
    stop,
  }
}
