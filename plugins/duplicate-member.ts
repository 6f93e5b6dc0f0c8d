/**
 * Finds a member name that occurs twice in one JSON object. JSON.parse takes the last one and other
 * parsers the first, so a proxy and this service could read the same bytes as different requests
 * (RFC 8259, 4).
 */

/**
 * The dotted path of the first repeated member, or null. `text` must be valid JSON. Takes linear
 * time and does not recurse.
 */
export function duplicateMember(text: string): string | null {
  /**
   * The enclosing objects and arrays. `names` is null for an array; `name` is the member being
   * read.
   */
  const open: { names: Set<string> | null; name: string }[] = []
  let atName = false
  for (let i = 0; i < text.length; i++) {
    const char = text[i]
    if (char === '{' || char === '[') {
      atName = char === '{'
      open.push({ names: atName ? new Set() : null, name: '' })
    } else if (char === '}' || char === ']') open.pop()
    else if (char === ',') atName = open.at(-1)!.names !== null
    else if (char === '"') {
      const start = i
      while (text[++i] !== '"') if (text[i] === '\\') i++
      if (!atName) continue
      atName = false
      const object = open.at(-1)!
      object.name = JSON.parse(text.slice(start, i + 1))
      if (object.names!.has(object.name)) return pathOf(open)
      object.names!.add(object.name)
    }
  }
  return null
}

const pathOf = (open: { names: unknown; name: string }[]) =>
  open
    .filter(({ names }) => names !== null)
    .map(({ name }) => name)
    .join('.')
