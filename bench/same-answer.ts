/** A comparison is fair only between equals: every candidate must answer as Latchkey does, header for header, byte for byte. */
import { get, type IncomingMessage } from 'node:http'

interface Answer {
  status: number
  headers: string[]
  bytes: number
}

function ask(url: string, token: string): Promise<Answer> {
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

/** Throws unless all of them answer like the first. */
export async function assertSameAnswer(
  candidates: { name: string; url: string }[],
  token: string,
): Promise<void> {
  const [first, ...others] = candidates
  const wanted = await ask(first!.url, token)
  if (wanted.status !== 200) throw new Error(`${first!.name} answers ${wanted.status}`)
  for (const { name, url } of others) {
    const answer = await ask(url, token)
    if (JSON.stringify(answer) !== JSON.stringify(wanted))
      throw new Error(
        `${name} answers unlike ${first!.name}: ${JSON.stringify(answer)} and not ${JSON.stringify(wanted)}`,
      )
  }
}
