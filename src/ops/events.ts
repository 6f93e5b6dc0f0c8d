/** Feeds the dashboard: server-sent events, the same for all viewers. */
import { Readable } from 'node:stream'
import type { FastifyInstance } from 'fastify'
import { unavailable } from '../../plugins/api-error.ts'
import { EventStream } from '../../schemas/events.ts'
import type { Service } from '../process/service.ts'
import { createLive, eventOf, type Viewer } from './live.ts'
import { type LiveSourcesOptions, liveSources } from './live-sources.ts'

export interface EventsOptions extends LiveSourcesOptions {
  service: LiveSourcesOptions['service'] & Pick<Service, 'instance'>
  isClosing: () => boolean
  /** Whether operators need a token, and so a session. */
  hasTokens: boolean
}

/** After this a stream ends. The browser reconnects at once, if its session is still valid. */
const viewMaxMs = 15 * 60_000
/** Milliseconds after which a browser connects again. */
const retryAfter = (ms: number) => `retry: ${ms}\n\n`
/** A viewer that reads more slowly than this fills is disconnected: some 20 s of events. */
const behindMaxBytes = 262_144

export async function eventsRoute(app: FastifyInstance, options: EventsOptions) {
  const { service, isClosing, hasTokens } = options
  const live = createLive({ sources: liveSources(options), history: 'traffic', isClosing })
  const schema = {
    operationId: 'watchEvents',
    summary: 'Watch what the dashboard shows',
    description: 'Read once a second for all viewers together, and only while there are some.',
    tags: ['Monitoring'],
    response: { 200: { content: { 'text/event-stream': { schema: EventStream } } } },
    sends: ['x-accel-buffering'],
  } as const

  // A HEAD would take the place of a viewer and read nothing.
  app.get('/admin/events', { schema, exposeHeadRoute: false }, ({ operator, raw }, reply) => {
    const { stream, viewer } = eventStream()
    const about = { operator, instance: service.instance().id, can_log_out: hasTokens }
    const hello = { ...about, now: Date.now() / 1000 }
    viewer.send(eventOf('hello', JSON.stringify(hello)) + retryAfter(3000))
    const leave = live.watch(viewer)
    if (leave === null && isClosing()) throw unavailable(new Error('this instance is stopping'))
    if (leave === null) throw unavailable(new Error('too many viewers of the dashboard'), 10)
    const timer = setTimeout(() => {
      viewer.send(retryAfter(100))
      viewer.end()
    }, viewMaxMs)
    // The connection of a viewer that has left stays half open until something is written to it.
    raw.socket.once('end', viewer.end)
    stream.once('close', () => {
      raw.socket.off('end', viewer.end)
      clearTimeout(timer)
      leave()
    })
    // nginx would hold back events until they fill a buffer.
    return reply.header('x-accel-buffering', 'no').type('text/event-stream').send(stream)
  })
}

/** One viewer's events, in bounded memory. */
export function eventStream(): { stream: Readable; viewer: Viewer } {
  const stream = new Readable({ read() {} })
  let ended = false
  const viewer = {
    send(events: string) {
      if (stream.readableLength > behindMaxBytes) stream.destroy()
      else if (!ended) stream.push(events)
    },
    end() {
      ended = true
      stream.push(null)
    },
  }
  return { stream, viewer }
}
