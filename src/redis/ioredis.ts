/**
 * ioredis, loaded with `require`: for an `import`, Node 20 first scans a CommonJS package for its
 * export names, which doubles the load time.
 */
import { createRequire } from 'node:module'
import type * as Ioredis from 'ioredis'

export const { AbstractConnector, Cluster, Redis }: typeof Ioredis = createRequire(import.meta.url)('ioredis')
export type Cluster = Ioredis.Cluster
export type Redis = Ioredis.Redis
