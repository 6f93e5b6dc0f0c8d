// Shell transcripts in Markdown: a fenced block whose commands start with "$ ", each followed by
// its output.

export interface Step {
  /** As written, without "$ "; lines that end in a backslash continue. */
  command: string
  /** Whether readers see it. What a command in a comment prints is not compared. */
  isShown: boolean
  /** Begins what is run again if an output is not as documented, up to the next preparation. */
  isRepeated: boolean
  /** Lines of the documented output. */
  output: string[]
  /** Where the output is in the document, in lines from 0: [first, one behind the last). */
  lines: [number, number]
}

/**
 * The steps of all transcripts of a document. "<!-- run: command -->" prepares the steps after it.
 * "<!-- run up to 5 times: command -->" does so too, for steps that show counts of a minute. A block
 * behind "<!-- not run: why -->" is left out.
 */
export function stepsOf(markdown: string): Step[] {
  const steps: Step[] = []
  const lines = markdown.split('\n')
  let isOpen = false
  let isRun = false
  for (const [i, line] of lines.entries()) {
    const [, often, prepared] = /^<!-- run( up to 5 times)?: (.+) -->$/.exec(line) ?? []
    const command = prepared ?? (isRun && line.startsWith('$ ') ? line.slice(2) : undefined)
    if (line.startsWith('```')) {
      isOpen = !isOpen
      isRun = isOpen && !/<!-- not run: .+ -->/.test(lines[i - 1] ?? '') && lines[i + 1]!.startsWith('$ ')
    } else if (command !== undefined) {
      const isShown = prepared === undefined
      const isRepeated = often !== undefined
      steps.push({ command, isShown, isRepeated, output: [], lines: [i + 1, i + 1] })
    } else if (isRun) extend(steps.at(-1)!, line, i)
  }
  return steps
}

/** By the rest of its command, or by a line of its output. */
function extend(step: Step, line: string, i: number): void {
  if (step.output.length === 0 && step.command.endsWith('\\')) {
    step.command += `\n${line}`
    step.lines = [i + 1, i + 1]
  } else {
    step.output.push(line)
    step.lines[1] = i + 1
  }
}

/** Differs from run to run, but stays the same within one: later commands use it. */
const kinds = [
  ...['req', 'apk', 'usr', 'aud', 'ins'].map((prefix) => String.raw`\b${prefix}_[0-9a-z]{20,}`),
  String.raw`\blk_[0-9A-Za-z]{38}\b`,
  String.raw`\blk_[0-9A-Za-z]{7}\b`,
  String.raw`\blocalhost:\d+`,
].map((source) => new RegExp(source, 'g'))
const names = new RegExp(kinds.map(({ source }) => source).join('|'), 'g')
/** Differs from run to run, and nothing depends on it. */
const values = [
  /\b1[789]\d{8}(?:\d{3})?\b/g,
  /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g,
  /\b\d+(?:\.\d+)? (?:ms|s)\b/g,
  /(?<=retry-after: )\d+/g,
  /(?<=curl\/)[\d.]+/g,
  /(?<="token_hash":")[0-9a-f]{64}/g,
  /(?<=rl:\{…\}:)\d+/g,
  /(?<=\bversion )\d+\.[\d.]+(?: \(.*?\))?/g,
  /(?:behind|ahead of)(?= this machine)/g,
  // A step that was repeated has made one more.
  /(?<=fits all usable keys \()\d+/g,
]

const masked = (text: string) =>
  values
    .reduce((rest, value) => rest.replace(value, '…'), text.replace(names, '…'))
    .replace(/ +/g, ' ')
    .replace(/\s+$/gm, '')
    .trim()

/** What stands in the document for what was seen. */
export type Names = Map<string, string>

/** Learns what was seen in place of names that the document has not used before. */
function learn(documented: string, actual: string, seen: Names) {
  for (const kind of kinds) {
    const found = actual.match(kind) ?? []
    for (const [i, name] of (documented.match(kind) ?? []).entries()) {
      if (!seen.has(name) && found[i] !== undefined) seen.set(name, found[i])
    }
  }
}

/**
 * Whether the output is the documented one, apart from what differs from run to run. A documented
 * name must stand for the same thing throughout.
 */
export function isAsDocumented(documented: string[], actual: string[], seen: Names): boolean {
  const [wanted, found] = [documented.join('\n'), actual.join('\n')]
  learn(wanted, found, seen)
  return masked(wanted) === masked(found) && sameNames(translated(wanted, seen), found)
}

const sameNames = (one: string, other: string) => `${one.match(names)}` === `${other.match(names)}`

/** A documented command with what was seen in place of the documented names. */
export const translated = (command: string, seen: Names) =>
  command.replace(names, (name) => seen.get(name) ?? name)

/**
 * The document with the outputs of this run, and the names in them. The ports stay as they were.
 */
export function rewritten(markdown: string, ran: { step: Step; actual: string[] }[], seen: Names): string {
  const lines = markdown.split('\n')
  // From the end, so that the numbers of the lines before stay right.
  for (const { step, actual } of ran.filter(({ step }) => step.isShown).reverse()) {
    const [from, end] = step.lines
    const blank = step.output.length > 0 && step.output.at(-1) === '' ? [''] : []
    lines.splice(from, end - from, ...actual, ...blank)
  }
  let text = translated(lines.join('\n'), seen)
  for (const [documented, actual] of seen) {
    if (documented.startsWith('localhost:')) text = text.replaceAll(actual, documented)
  }
  return text
}
