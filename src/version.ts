/** The version of package.json. */
import { createRequire } from 'node:module'

export const { version } = createRequire(import.meta.url)('latchkey/package.json') as { version: string }
