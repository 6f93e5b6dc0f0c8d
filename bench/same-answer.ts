/**
 * Only equal work can be compared: every candidate must answer like Latchkey, with the same headers
 * and as many bytes.
 */
import { get, type IncomingMessage } from 'node:http'

export interface Asked {
  name: string
  url: string
  token: string
  /** An older Latchkey may send other headers. */
  otherHeaders?: boolean
}

interface Answer {
  status: number
  headers: string[]
  bytes: number
}

function ask({ url, token }: Asked): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}` }
    get(`${url}/v1/verify`, { headers, agent: false }, (response: IncomingMessage) => {
      let bytes = 0
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length
      })
      response.on('error', reject)
      response.on('end', () =>
        resolve({ status: response.statusCode!, headers: Object.keys(response.headers).sort(), bytes }),
      )
    }).on('error', reject)
  })
}

/**
 * Throws unless all of them answer like the first. Resolves to a sentence about each one whose
 * headers are allowed to differ.
 */
export async function assertSameAnswer([first, ...others]: Asked[]): Promise<Map<string, string>> {
  const wanted = await ask(first!)
  if (wanted.status !== 200) throw new Error(`${first!.name} answers ${wanted.status}`)
  const differences = new Map<string, string>()
  for (const other of others) {
    const answer = await ask(other)
    const compared = other.otherHeaders ? { ...answer, headers: wanted.headers } : answer
    if (JSON.stringify(compared) !== JSON.stringify(wanted))
      throw new Error(
        `${other.name} answers ${JSON.stringify(answer)}, and ${first!.name} ${JSON.stringify(wanted)}`,
      )
    if (other.otherHeaders) differences.set(other.name, headerDifference(answer, wanted))
  }
  return differences
}

function headerDifference({ headers }: Answer, wanted: Answer): string {
  const without = wanted.headers.filter((name) => !headers.includes(name))
  const besides = headers.filter((name) => !wanted.headers.includes(name))
  if (without.length + besides.length === 0) return 'Its answer has the same headers.'
  const parts = [
    ...(without.length > 0 ? [`lacks ${without.join(', ')}`] : []),
    ...(besides.length > 0 ? [`also has ${besides.join(', ')}`] : []),
  ]
  return `Its answer differs: it ${parts.join(' and ')}.`
}
