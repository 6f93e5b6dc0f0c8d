/** Fastify, loaded with `require` for the reason that src/redis/ioredis.ts gives. */
import { createRequire } from 'node:module'
import type { fastify } from 'fastify'

export const Fastify: typeof fastify = createRequire(import.meta.url)('fastify')
