/** What feeds the dashboard. */
import { Type } from '@sinclair/typebox'

export const EventStream = Type.String({
  description:
    'Server-sent events: `hello`, `history`, `traffic`, `counters`, `last_minute`, `refusals`, `instances` and `servers`, each with one JSON value, and only when it has changed. They serve the dashboard and may change with it.',
  examples: ['event: servers\ndata: {"redis":"shared","postgres":"ok"}\n\n'],
})
