/**
 * ioredis, by `require`: before it runs a CommonJS package that is imported, Node 20 searches its
 * sources for the names that they export, which takes as long again as to run them.
 */
import { createRequire } from 'node:module'
import type * as Ioredis from 'ioredis'

export const { AbstractConnector, Cluster, Redis }: typeof Ioredis = createRequire(import.meta.url)('ioredis')
export type Cluster = Ioredis.Cluster
export type Redis = Ioredis.Redis
