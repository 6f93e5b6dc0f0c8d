/** Other clients, each with a key and a connection of its own, who ask all the time and look at whose answer they get. */
import { Agent, request } from 'node:http'
import type { Test } from 'tap'
import { scaled } from '../soak.ts'

export interface Others {
  /** Answers that were theirs. */
  readonly answered: number
  /** What was answered to one of them and was not meant for him, or no answer at all. */
  readonly wrong: string[]
  /** Resolves when each has had so many more answers. */
  more(answers: number): Promise<void>
  stop(): Promise<void>
}

export interface Client {
  id: string
  token: string
}

const hangingMs = scaled(60_000, 10_000)

export function startOthers(t: Test, port: number, clients: readonly Client[]): Others {
  const wrong: string[] = []
  const counts = clients.map(() => 0)
  let stopped = false
  let look = () => {}

  async function goOn({ id, token }: Client, i: number) {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    while (!stopped) {
      const fault = await ask(agent, port, token, id)
      if (fault !== null) wrong.push(fault)
      counts[i]!++
      look()
    }
    agent.destroy()
  }
  const going = clients.map(goOn)
  const stop = async () => {
    stopped = true
    await Promise.all(going)
  }
  t.teardown(stop)

  return {
    get answered() {
      return counts.reduce((sum, count) => sum + count, 0) - wrong.length
    },
    wrong,
    more(answers) {
      const wanted = counts.map((count) => count + answers)
      return new Promise((resolve) => {
        look = () => {
          if (counts.every((count, i) => count >= wanted[i]!)) resolve()
        }
      })
    },
    stop,
  }
}

/** What was wrong with the answer. */
function ask(agent: Agent, port: number, token: string, id: string): Promise<string | null> {
  return new Promise((resolve) => {
    const options = {
      host: '127.0.0.1',
      port,
      agent,
      path: '/v1/verify',
      headers: { authorization: `Bearer ${token}` },
    }
    const sending = request(options, (response) => {
      let body = ''
      response.setEncoding('utf8')
      response.on('data', (text) => {
        body += text
      })
      response.on('error', (error) => resolve(`${id}: ${error.message}`))
      response.on('end', () => {
        const isHis =
          response.statusCode === 200 &&
          response.headers['x-key-id'] === id &&
          body.includes(`"key_id":"${id}"`)
        resolve(isHis ? null : `${id} got ${response.statusCode} ${JSON.stringify(response.headers)} ${body}`)
      })
    })
    sending.setTimeout(hangingMs, () => sending.destroy(new Error('no answer')))
    sending.on('error', (error) => resolve(`${id}: ${error.message}`))
    sending.end()
  })
}
