/** Loads one file of the product as a mutant: MUTANT_URL is the file, MUTANT_JS its compiled text. */
import { readFile } from 'node:fs/promises'
import { register } from 'node:module'
import { isMainThread } from 'node:worker_threads'

if (isMainThread) register(import.meta.url)

export async function load(url, context, nextLoad) {
  // A test may load it again, with a query.
  if (url.split('?')[0] !== process.env.MUTANT_URL) return nextLoad(url, context)
  return { format: 'module', source: await readFile(process.env.MUTANT_JS, 'utf8'), shortCircuit: true }
}
