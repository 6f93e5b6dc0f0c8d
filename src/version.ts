/** What package.json says of this package. */
import { createRequire } from 'node:module'

const manifest: { version: string; engines: { node: string } } = createRequire(import.meta.url)(
  'latchkey/package.json',
)

export const version = manifest.version
export const nodeRange = manifest.engines.node
