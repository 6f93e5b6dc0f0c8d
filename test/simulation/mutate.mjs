/**
 * A module loader that plants deliberate bugs: what is imported with `?bug=<number>`, and what that
 * imports in turn, is the product with this one patch.
 */
import { fileURLToPath } from 'node:url'

const root = new URL('../../', import.meta.url).href
/** Holds the real timers, so there is one of it. */
const shared = 'test/simulation/time.ts'
let bugs

export function initialize(given) {
  bugs = given
}

export async function resolve(specifier, context, nextResolve) {
  const resolved = await nextResolve(specifier, context)
  const query = /[?]bug=\d+$/.exec(context.parentURL ?? '')
  const isOurs =
    resolved.url.startsWith(root) && resolved.url.endsWith('.ts') && !resolved.url.endsWith(shared)
  return query && isOurs ? { ...resolved, url: resolved.url + query[0] } : resolved
}

export async function load(url, context, nextLoad) {
  const loaded = await nextLoad(url, context)
  const [, path, number] = /^(.*)[?]bug=(\d+)$/.exec(url) ?? []
  if (path === undefined) return loaded
  const { file, from, to } = bugs[number]
  if (path !== root + file) return loaded
  const source = String(loaded.source)
  if (source.split(from).length !== 2) throw new Error(`${fileURLToPath(path)} has not one: ${from}`)
  return { ...loaded, source: source.replace(from, () => to) }
}
