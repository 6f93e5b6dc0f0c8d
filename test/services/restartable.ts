// A server of one test's own, which may go away and come back at the same address.
import type { ServerProcess } from './server-process.ts'

export interface Restartable {
  readonly pid: number
  /** Default SIGKILL, to all its processes. Answers once the server is gone; it does not come back by itself. */
  kill(signal?: NodeJS.Signals): Promise<void>
  /** SIGSTOP to all its processes: connections stay open, nothing is answered. */
  freeze(): Promise<void>
  thaw(): Promise<void>
  /** Same address; ends it first when it runs. */
  restart(): Promise<void>
  stop(): Promise<void>
}

export async function restartable(start: () => Promise<ServerProcess>): Promise<Restartable> {
  let server = await start()
  return {
    get pid() {
      return server.pid
    },
    kill: (signal = 'SIGKILL') => server.kill(signal),
    freeze: () => server.freeze(),
    thaw: () => server.thaw(),
    async restart() {
      await server.stop()
      server = await start()
    },
    stop: () => server.stop(),
  }
}
