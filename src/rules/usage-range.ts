/** Which steps of a usage history are asked for, and whether they are too many. */
import { type UsageStep, usagePointsMax, usageStepS } from '../../schemas/bounds.ts'
import type { UsageQuery } from '../../schemas/usage.ts'

/** Whole steps, in Unix seconds: `untilS` is the end of the last one. */
export interface UsageRange {
  step: UsageStep
  sinceS: number
  untilS: number
}

export interface RangeFault {
  ok: false
  param: 'since' | 'until'
  message: string
  suggestion: string
}

/** Without `since`: what fits on a screen. */
const usualPoints = { minute: 60, hour: 48, day: 30 }

/** The start of the step that holds this moment. Hours and days begin in UTC. */
export const stepStartS = (step: UsageStep, atS: number): number =>
  Math.floor(atS / usageStepS[step]) * usageStepS[step]

/** No step begins after `nowS`, in Unix seconds. */
export function usageRange(
  { since, until, step = 'minute' }: UsageQuery,
  nowS: number,
): { ok: true; range: UsageRange } | RangeFault {
  if (Number(since ?? -1) >= Number(until ?? Infinity)) return outOfOrder('since', nowS)
  const lengthS = usageStepS[step]
  const untilS = stepStartS(step, Math.min(Number(until ?? Infinity) - 1, nowS)) + lengthS
  const usualS = Math.max(0, untilS - usualPoints[step] * lengthS)
  const sinceS = since === undefined ? usualS : stepStartS(step, Number(since))
  const points = (untilS - sinceS) / lengthS
  if (points <= 0) return outOfOrder(since === undefined ? 'until' : 'since', nowS)
  if (points <= usagePointsMax) return { ok: true, range: { step, sinceS, untilS } }
  return {
    ok: false,
    param: 'since',
    message: `The range has ${points} steps of one ${step}; at most ${usagePointsMax} are allowed.`,
    suggestion:
      step === 'day'
        ? 'Send a later `since`, or an earlier `until` with it.'
        : `Send a later \`since\` (${untilS - usagePointsMax * lengthS} at the earliest), or a longer \`step\`.`,
  }
}

const outOfOrder = (param: 'since' | 'until', nowS: number): RangeFault => ({
  ok: false,
  param,
  message: '`since` must be before `until`, and in the past.',
  suggestion: `Send moments of the past in whole Unix seconds; it is now ${Math.floor(nowS)}.`,
})
