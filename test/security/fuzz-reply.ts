/** Answers as bytes: each must be one that a client can read to its end. */
export interface Reply {
  readonly status: number
  readonly headers: ReadonlyMap<string, string>
  readonly text: string
}

/** Throws where the bytes are not answers, one after the other. */
export function finalReplies(raw: string, toHead: boolean): Reply[] {
  const replies: Reply[] = []
  let rest = raw
  while (rest !== '') {
    const end = rest.indexOf('\r\n\r\n')
    if (end < 0) throw new Error(`half an answer: ${rest.slice(0, 500)}`)
    const [statusLine, ...lines] = rest.slice(0, end).split('\r\n')
    const status = Number(/^HTTP\/1\.1 ([1-5][0-9]{2}) [A-Za-z -]+$/.exec(statusLine!)?.[1])
    if (Number.isNaN(status)) throw new Error(`no status line: ${statusLine!.slice(0, 200)}`)
    rest = rest.slice(end + 4)
    if (status === 100) continue
    const headers = headersIn(lines)
    const length = Number(headers.get('content-length') ?? Number.NaN)
    if (!(length >= 0)) throw new Error(`no length: ${lines.join(' | ')}`)
    const bodyless = toHead && replies.length === 0 && !rest.startsWith('{')
    if (!bodyless && rest.length < length) throw new Error(`half a body: ${rest.slice(0, 500)}`)
    const text = bodyless ? '' : rest.slice(0, length)
    rest = rest.slice(text.length)
    replies.push({ status, headers, text: Buffer.from(text, 'latin1').toString() })
  }
  return replies
}

function headersIn(lines: string[]): Map<string, string> {
  const headers = new Map<string, string>()
  for (const line of lines) {
    const [, name, value] = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\t\x20-\x7e]*)$/.exec(line) ?? []
    if (name === undefined) throw new Error(`no header: ${line.slice(0, 200)}`)
    const known = name.toLowerCase()
    if (headers.has(known)) throw new Error(`a header twice: ${name}`)
    headers.set(known, value!)
  }
  return headers
}
