/** The floor: Fastify sending the same bytes without looking at the request. */
import { serveFloor } from './floor.ts'

await serveFloor()
