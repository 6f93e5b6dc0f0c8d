/**
 * Schedules around one change that take several faults in the right order, so that chance alone
 * seldom makes them. `a` makes the change, `b` has a copy of the key.
 */
import type { Chance } from './chance.ts'
import type { Action, Change } from './schedule.ts'

export interface Scene {
  cacheTtlMs: number
  outageTtlMs: number
  silentMaxMs?: number
  /** Nothing else happens beside it, and all clocks are right. */
  clocksAgree?: boolean
  slow?: number
  actions: Action[]
}

/** Lets every instance reach its servers again, before the run ends. */
const longMs = 8000

type Cast = { chance: Chance; atMs: number; a: number; b: number; c: number }

const request = (at: number, instance: number): Action => ({ at, do: 'request', instance, key: 0, times: 1 })
const several = (chance: Chance, max: number, one: () => Action) =>
  Array.from({ length: 1 + chance.whole(max) }, one)
export const changeOf = (chance: Chance): Change =>
  chance.oneOf(['limit', 'limit', 'limit', 'limit', 'limit', 'expire', 'revoke', 'delete owner'])
const change = ({ chance, atMs, a }: Cast): Action => ({
  ...{ at: atMs, do: 'change', instance: a, key: 0, change: changeOf(chance) },
})
/** Redis confirms the version of the key before the change. */
const confirmed = ({ atMs, c }: Cast) => request(atMs - 800, c)
const cutOff = (chance: Chance) => chance.oneOf(['refuse', 'refuse', 'hold'] as const)

/** `a` cannot reach Redis. */
const redisLost = ({ chance, atMs, a }: Cast): Action => ({
  ...{ at: atMs - chance.between(0, 300), do: cutOff(chance), instance: a, server: 'redis', for: longMs },
})

/**
 * `a` loses Redis while `b` loses Postgres, or one of its pools first. What `b` has read goes on for
 * as long as it may.
 */
function split(cast: Cast): Scene {
  const { chance, atMs, b } = cast
  const cacheTtlMs = chance.oneOf([0, 400, 1500])
  const lostAtMs = atMs + chance.between(-600, cacheTtlMs + 2000)
  const server = chance.oneOf(['postgres', 'lookups'] as const)
  const actions: Action[] = [
    redisLost(cast),
    change(cast),
    request(Math.min(lostAtMs, atMs) - chance.between(1, 800), b),
    { at: lostAtMs, do: cutOff(chance), instance: b, server, for: longMs },
    ...several(chance, 3, () => request(Math.max(atMs, lostAtMs) + chance.between(0, longMs), b)),
  ]
  if (chance.is(0.5)) {
    const at = Math.max(0, lostAtMs - chance.between(0, 3000))
    actions.push({ at, do: cutOff(chance), instance: b, server: 'reports', for: longMs })
  }
  // Nor can `a` see what the others have reported.
  if (chance.is(0.3)) {
    const at = atMs + cacheTtlMs + chance.between(-300, 300)
    actions.push({ at, do: cutOff(chance), instance: cast.a, server: 'management', for: 1000 })
  }
  return { cacheTtlMs, outageTtlMs: chance.oneOf([2500, 10_000]), actions }
}

/** Redis loses a change that it has confirmed, and still has the version before. */
function rollback({ chance, atMs, ...cast }: Cast): Scene {
  const lostAtMs = atMs + chance.between(4, 300)
  return {
    cacheTtlMs: chance.oneOf([1500, 3000]),
    outageTtlMs: chance.oneOf([0, 2500, 10_000]),
    actions: [
      request(atMs - chance.between(20, 1400), cast.b),
      change({ chance, atMs, ...cast }),
      {
        at: lostAtMs,
        do: chance.oneOf(['fail over redis', 'restart redis'] as const),
        for: chance.between(1, 300),
        lag: lostAtMs - atMs + chance.between(0, 20),
      },
      ...several(chance, 4, () => request(lostAtMs + chance.between(100, 1500), cast.b)),
    ],
  }
}

/** `b` reads the key before the change, and gets the answer after it. */
function slowRead({ chance, atMs, b }: Cast): Action[] {
  return [
    request(atMs - chance.between(1050, 1300), b),
    {
      ...{ at: atMs - 1000, do: 'delay', instance: b, server: 'lookups', for: 2500 },
      ms: chance.oneOf([400, 600, 900]),
    },
    request(atMs - chance.between(0, 500), b),
  ]
}

/** The change is answered before that, although Redis has not confirmed it. */
function overtaken(cast: Cast): Scene {
  const { chance, atMs, b } = cast
  const later = several(chance, 3, () => request(atMs + chance.between(250, 1200), b))
  return {
    cacheTtlMs: chance.oneOf([0, 0, 400]),
    outageTtlMs: chance.oneOf([0, 2500]),
    actions: [...slowRead(cast), redisLost(cast), change(cast), ...later],
  }
}

/** Redis loses the change that it has confirmed, and asks for another read. */
function flushed(cast: Cast): Scene {
  const { chance, atMs, b, c } = cast
  const lostAtMs = atMs + chance.between(5, 300)
  return {
    cacheTtlMs: 3000,
    outageTtlMs: 2500,
    actions: [
      request(atMs - 1300, c),
      ...slowRead(cast),
      { at: atMs - 800, do: 'flush redis' },
      change(cast),
      { at: lostAtMs, do: 'flush redis' },
      request(lostAtMs + chance.between(0, 100), b),
      ...several(chance, 4, () => request(lostAtMs + chance.between(100, 1500), chance.oneOf([b, c]))),
    ],
  }
}

/** The first read of `b` is from before the change, which Redis has lost when it asks for another read. */
function firstRead(cast: Cast): Scene {
  const { chance, atMs, b } = cast
  const lostAtMs = atMs + chance.between(5, 50)
  return {
    cacheTtlMs: 3000,
    outageTtlMs: 2500,
    actions: [
      { at: atMs - 1000, do: 'delay', instance: b, server: 'lookups', for: 1500, ms: 400 },
      request(atMs - chance.between(200, 350), b),
      change(cast),
      { at: lostAtMs, do: 'flush redis' },
      ...several(chance, 4, () => request(lostAtMs + chance.between(300, 2000), b)),
    ],
  }
}

/**
 * `b` writes its last use just before the change, and gets the reply long after it. Nothing else renews its
 * copy.
 */
function slowWrite(cast: Cast): Scene {
  const { chance, atMs, b } = cast
  return {
    cacheTtlMs: 1500,
    outageTtlMs: 0,
    actions: [
      redisLost(cast),
      request(atMs - chance.between(1150, 1200), b),
      { at: atMs - 1000, do: 'refuse', instance: b, server: 'reports', for: longMs },
      { at: atMs - 500, do: 'refuse', instance: b, server: 'lookups', for: longMs },
      request(atMs - chance.between(101, 108), b),
      { at: atMs - chance.between(0, 3), do: 'hold', instance: b, server: 'background', for: 1500 },
      change(cast),
      ...several(chance, 3, () => request(atMs + chance.between(1850, 3000), b)),
    ],
  }
}

/** `b` asks what has changed just before the change, gets the reply after it, and cannot ask again. */
function slowReport({ chance, a, b, c }: Cast): Scene {
  // An instance asks at its start and a second later.
  const delayMs = 490
  const atMs = 1000 + chance.between(300, 490)
  const cacheTtlMs = 1500
  const cast = { chance, atMs, a, b, c }
  return {
    cacheTtlMs,
    outageTtlMs: 0,
    actions: [
      redisLost(cast),
      request(chance.between(50, 800), b),
      { at: 900, do: 'delay', instance: b, server: 'reports', for: 1100, ms: delayMs },
      change(cast),
      { at: 1000 + 2 * delayMs, do: 'refuse', instance: b, server: 'reports', for: longMs },
      ...several(chance, 5, () => request(atMs + cacheTtlMs * 1.04 + chance.between(250, 350), b)),
    ],
  }
}

/** `b` reads the key while it asks what has changed, and only the reply to that is from after the change. */
function readWhileAsking({ chance, a, b, c }: Cast): Scene {
  const atMs = 1000 + chance.between(50, 300)
  const cast = { chance, atMs, a, b, c }
  const cacheTtlMs = 400
  return {
    cacheTtlMs,
    outageTtlMs: 0,
    actions: [
      redisLost(cast),
      // Redis confirms the version.
      request(chance.between(100, 400), c),
      { at: 900, do: 'delay', instance: b, server: 'reports', for: 200, ms: 450 },
      request(atMs - chance.between(5, 40), b),
      change(cast),
      ...several(chance, 3, () => request(atMs + cacheTtlMs * 1.04 + chance.between(260, 3000), b)),
    ],
  }
}

/** Postgres is gone, and `b` goes on with the copy that it has, for as long as it may. */
function outage({ chance, b }: Cast): Scene {
  const outageTtlMs = chance.oneOf([2500, 10_000])
  const atMs = 2500 + chance.between(0, 500)
  const during = (): Action => ({
    ...{ at: atMs + chance.between(5, outageTtlMs * 0.98 - 1100), do: 'request' },
    ...{ instance: b, key: 0, times: 1, passes: true },
  })
  return {
    cacheTtlMs: chance.oneOf([0, 400, 1500]),
    outageTtlMs,
    clocksAgree: true,
    actions: [
      // After its second report, and long enough ago that Redis confirms it.
      request(atMs - chance.between(500, 600), b),
      {
        at: atMs,
        do: chance.oneOf(['refuse', 'hold'] as const),
        instance: b,
        server: 'postgres',
        for: longMs,
      },
      ...several(chance, 4, during),
    ],
  }
}

/** The change is committed, but its reply is lost. `b` reports itself, but cannot read the key again. */
function unanswered(cast: Cast): Scene {
  const { chance, atMs, a, b } = cast
  const outageTtlMs = 2500
  return {
    cacheTtlMs: chance.oneOf([0, 400]),
    outageTtlMs,
    actions: [
      confirmed(cast),
      request(atMs - chance.between(110, 600), b),
      { at: atMs - 100, do: 'refuse', instance: b, server: 'lookups', for: longMs },
      { at: atMs - 100, do: 'delay', instance: a, server: 'management', for: 1000, ms: 400 },
      change(cast),
      { at: atMs + 400, do: 'refuse', instance: a, server: 'management', for: 500 },
      ...several(chance, 3, () => request(atMs + outageTtlMs + chance.between(700, 5000), b)),
    ],
  }
}

/** `b` cannot record the refusals of a key that was revoked. */
function unrecorded({ chance, atMs, a, b }: Cast): Scene {
  const server = chance.oneOf(['refusals', 'postgres'] as const)
  return {
    cacheTtlMs: chance.oneOf([0, 3000]),
    outageTtlMs: chance.oneOf([0, 2500]),
    actions: [
      { at: atMs, do: 'change', instance: a, key: 0, change: 'revoke' },
      { at: atMs + 500, do: cutOff(chance), instance: b, server, for: chance.between(500, 3000) },
      ...several(chance, 3, () => request(atMs + 500 + chance.between(-5, 3000), b)),
    ],
  }
}

/** `b` reads the key from another Postgres, and reports to it for the first time after the change. */
function lateReport(cast: Cast): Scene {
  const { chance, atMs, b } = cast
  return {
    cacheTtlMs: 1500,
    outageTtlMs: 0,
    actions: [
      redisLost(cast),
      { at: atMs - 1100, do: 'restart postgres', for: 50 },
      { at: atMs - 1100, do: 'refuse', instance: b, server: 'reports', for: 1100 + chance.between(0, 500) },
      request(atMs - chance.between(400, 900), b),
      change(cast),
      ...several(chance, 3, () => request(atMs + chance.between(1810, 2500), b)),
    ],
  }
}

/** The key is revoked a second time, by an instance that has Redis, while the first one waits. */
function repeated(cast: Cast): Scene {
  const { chance, atMs, a, b, c } = cast
  const againMs = atMs + chance.between(10, 1000)
  return {
    cacheTtlMs: chance.oneOf([1500, 3000]),
    outageTtlMs: chance.oneOf([0, 2500]),
    actions: [
      redisLost(cast),
      request(atMs - chance.between(20, 800), b),
      { at: atMs, do: 'change', instance: a, key: 0, change: 'revoke' },
      { at: againMs, do: 'change', instance: c, key: 0, change: chance.oneOf(['revoke', 'delete owner']) },
      ...several(chance, 3, () => request(againMs + chance.between(0, 1000), b)),
    ],
  }
}

/** Two changes reach Redis in the wrong order, and `b` reads a standby that lacks the second. */
function crossed({ chance, atMs, a, b, c }: Cast): Scene {
  const secondMs = atMs + chance.between(10, 150)
  return {
    cacheTtlMs: 3000,
    outageTtlMs: 2500,
    actions: [
      { at: atMs - 100, do: 'delay', instance: a, server: 'redis', for: 1000, ms: 600 },
      { at: atMs - 50, do: 'read standby', instance: b, for: 1500, lag: chance.between(100, 600) },
      { at: atMs, do: 'change', instance: a, key: 0, change: 'limit' },
      { at: secondMs, do: 'change', instance: c, key: 0, change: 'limit' },
      ...several(chance, 4, () => request(secondMs + chance.between(50, 800), b)),
    ],
  }
}

/**
 * Redis loses its data while `b` reads a standby that lacks the change, from before the change or
 * soon after the loss.
 */
function forgotten({ chance, atMs, a, b, c }: Cast): Scene {
  const lostAtMs = atMs + chance.between(5, 300)
  const standbyAtMs = chance.is(0.5) ? atMs - 50 : lostAtMs + chance.between(2, 40)
  return {
    cacheTtlMs: 3000,
    outageTtlMs: 2500,
    actions: [
      { at: standbyAtMs, do: 'read standby', instance: b, for: 3000, lag: 4000 },
      change({ chance, atMs, a, b, c }),
      { at: lostAtMs, do: 'flush redis' },
      request(lostAtMs + 1, b),
      ...several(chance, 4, () => request(lostAtMs + chance.between(10, 1500), b)),
    ],
  }
}

/**
 * `b` still reads a server that lacks the change and was the primary before it, and Redis loses the change.
 */
function movedAway(cast: Cast): Scene {
  const { chance, atMs, b, c } = cast
  const lostAtMs = atMs + chance.between(5, 300)
  return {
    cacheTtlMs: 3000,
    outageTtlMs: 2500,
    actions: [
      request(atMs - chance.between(20, 1400), c),
      { at: atMs - 10, do: 'read former primary', instance: b, for: 3000 },
      change(cast),
      { at: lostAtMs, do: 'flush redis' },
      request(lostAtMs + 1, b),
      ...several(chance, 4, () => request(lostAtMs + chance.between(10, 1500), chance.oneOf([b, c]))),
    ],
  }
}

/** `b` reads a server that lacks the change by which the key no longer expires. */
function kept({ chance, atMs, a, b }: Cast): Scene {
  const keptAtMs = atMs + chance.between(1000, 1800)
  const readFrom = chance.oneOf<Action>([
    { at: atMs + 1900, do: 'read standby', instance: b, for: 1500, lag: 1900 },
    { at: keptAtMs - 10, do: 'read former primary', instance: b, for: 2500 },
  ])
  return {
    cacheTtlMs: chance.oneOf([0, 3000]),
    outageTtlMs: 2500,
    actions: [
      { at: atMs, do: 'change', instance: a, key: 0, change: 'expire' },
      { at: keptAtMs, do: 'change', instance: a, key: 0, change: 'keep' },
      readFrom,
      ...several(chance, 3, () => request(atMs + chance.between(2050, 2850), b)),
    ],
  }
}

/**
 * `b` reads the key from a standby that lacks the change, after Postgres has told it of that. The change is
 * answered once this copy is too old.
 */
function behind(cast: Cast): Scene {
  const { chance, atMs, a, b } = cast
  const cacheTtlMs = 1500
  // By then, `b` has reported itself once more.
  const readAtMs = atMs + chance.between(1010, 1200)
  return {
    cacheTtlMs,
    outageTtlMs: 0,
    clocksAgree: true,
    actions: [
      confirmed(cast),
      redisLost(cast),
      change(cast),
      { at: atMs + 50, do: 'refuse', instance: a, server: 'management', for: 1200 + cacheTtlMs },
      { at: readAtMs - 10, do: 'read standby', instance: b, for: 100, lag: 2000 },
      request(readAtMs, b),
      ...several(chance, 3, () => request(atMs + 1300 + cacheTtlMs + chance.between(0, 3000), b)),
    ],
  }
}

/** The machine of `b` stands still for a part of the time that the change waits. */
function suspended(cast: Cast): Scene {
  const { chance, atMs, b } = cast
  const forMs = chance.between(200, 1500)
  return {
    cacheTtlMs: 1500,
    outageTtlMs: chance.oneOf([0, 2500]),
    actions: [
      request(atMs - chance.between(20, 800), b),
      redisLost(cast),
      change(cast),
      { at: atMs + chance.between(-300, 1800 - forMs), do: 'suspend', instance: b, for: forMs },
      ...several(chance, 4, () => request(atMs + chance.between(1810, 2500), b)),
    ],
  }
}

/** The same, and Redis's clock is set back by more meanwhile. */
function suspendedBehind(cast: Cast): Scene {
  const { actions, ...scene } = suspended(cast)
  const setBack = actions.flatMap((action): Action[] => {
    if (action.do !== 'suspend') return []
    return [{ at: action.at, do: 'jump clock', of: 'redis', by: -action.for - cast.chance.between(400, 900) }]
  })
  return { ...scene, actions: [...actions, ...setBack] }
}

/** The same in several short pieces, none of which is noticed by itself. */
function suspendedOften(cast: Cast): Scene {
  const { chance, atMs, b } = cast
  const pieces = Array.from({ length: 4 }, (_, i): Action[] => [
    { at: atMs + 100 + 400 * i, do: 'suspend', instance: b, for: chance.between(120, 149) },
    request(atMs + 350 + 400 * i, b),
  ])
  return {
    cacheTtlMs: 1500,
    outageTtlMs: 0,
    actions: [
      request(atMs - chance.between(450, 500), b),
      // Nothing else may renew the copy.
      { at: atMs - 100, do: 'refuse', instance: b, server: 'postgres', for: longMs },
      redisLost(cast),
      change(cast),
      ...pieces.flat(),
      request(atMs + chance.between(1820, 1900), b),
    ],
  }
}

/** The machine of `b` stands still before its copy expires, which a report renews in between. */
function suspendedRenewal({ chance, a, b }: Cast): Scene {
  // The next report tells `b` of the change. It renews copies that are read after that.
  const atMs = 2000 - chance.between(50, 150)
  const forMs = chance.between(900, 1200)
  return {
    cacheTtlMs: 3000,
    outageTtlMs: 0,
    // Redis's clock, set back by as much, would hide that.
    clocksAgree: true,
    actions: [
      { at: atMs, do: 'change', instance: a, key: 0, change: 'expire' },
      request(atMs + 250, b),
      { at: atMs + 300, do: 'suspend', instance: b, for: forMs },
      // The reply shows that it stood still.
      { ...request(atMs + 310 + forMs, b), key: 1 } as Action,
      ...several(chance, 4, () => request(atMs + 2000 + chance.between(400, forMs - 100), b)),
    ],
  }
}

/** The machine of `b` stands still until nobody waits for it, and Postgres is gone soon after. */
function suspendedLong({ chance, a, b, c }: Cast): Scene {
  const resumedMs = 6000
  const atMs = resumedMs + chance.between(150, 400)
  const cast = { chance, atMs, a, b, c }
  return {
    cacheTtlMs: chance.oneOf([0, 400]),
    outageTtlMs: 2500,
    actions: [
      request(700, c),
      request(chance.between(800, 1300), b),
      { at: resumedMs - 4500, do: 'suspend', instance: b, for: 4500 },
      request(resumedMs + 5, b),
      { at: resumedMs + chance.between(15, 60), do: 'refuse', instance: b, server: 'postgres', for: longMs },
      redisLost(cast),
      change(cast),
      ...several(chance, 3, () => request(atMs + chance.between(700, 2000), b)),
    ],
  }
}

/**
 * Redis answers two calls of `b` at once: one that it still waits for, since it was busy itself, and one
 * that it has given up.
 */
function answeredAtOnce({ chance, atMs, b }: Cast): Scene {
  const secondMs = atMs + chance.between(20, 50)
  const busyMs = atMs + 101 - chance.between(2, 15)
  return {
    cacheTtlMs: 3000,
    outageTtlMs: 2500,
    actions: [
      request(atMs - 500, b),
      { at: atMs - 1, do: 'freeze', server: 'redis', for: secondMs + 101 - atMs + chance.between(3, 20) },
      request(atMs, b),
      request(secondMs, b),
      { at: busyMs, do: 'pause', instance: b, for: secondMs + 99 - busyMs },
    ],
  }
}

/** Redis stops answering, and `b` has more to count than it may send at once. */
function crowded({ chance, atMs, b }: Cast): Scene {
  return {
    cacheTtlMs: 3000,
    outageTtlMs: 2500,
    actions: [
      request(atMs - 500, b),
      { at: atMs - 1, do: 'freeze', server: 'redis', for: chance.between(150, 600) },
      ...Array.from({ length: 30 }, (_, i) => request(atMs + 3 * i, b)),
    ],
  }
}

/** `b` stops while a change waits for the others. */
function stopped(cast: Cast): Scene {
  const { chance, atMs, b } = cast
  return {
    cacheTtlMs: chance.oneOf([400, 1500]),
    outageTtlMs: chance.oneOf([2500, 10_000]),
    actions: [
      request(atMs - chance.between(20, 800), b),
      redisLost(cast),
      change(cast),
      { at: atMs + chance.between(-1200, 1200), do: 'stop', instance: b, for: chance.between(50, 3000) },
    ],
  }
}

/**
 * `b` is silent for so long that the change is no longer kept, and loses the reply to its next report. It
 * has what it read before the change.
 */
function silent(cast: Cast): Scene {
  const { chance, atMs, b, c } = cast
  const silentMaxMs = 1000
  const forMs = 2 * silentMaxMs + chance.between(1200, 1700)
  return {
    cacheTtlMs: 3000,
    outageTtlMs: 0,
    silentMaxMs,
    actions: [
      redisLost(cast),
      change(cast),
      request(atMs - chance.between(20, 800), b),
      { at: atMs - 10, do: 'refuse', instance: b, server: 'reports', for: forMs },
      { at: atMs - 10 + forMs, do: 'delay', instance: b, server: 'reports', for: 1000, ms: 1500 },
      ...several(chance, 4, () => request(atMs + forMs + chance.between(0, 4000), chance.oneOf([b, c]))),
    ],
  }
}

/**
 * `b` cannot report itself until nobody waits for it, and loses its look-ups before the change. Its next
 * report is acknowledged once the change is answered.
 */
function unheard({ chance, a, b, c }: Cast): Scene {
  // An instance reports each second since its start, which is 100 ms before the first action.
  const reportedMs = 6900
  const atMs = reportedMs - chance.between(900, 1700)
  const cast = { chance, atMs, a, b, c }
  return {
    cacheTtlMs: chance.oneOf([0, 400]),
    outageTtlMs: 2500,
    clocksAgree: true,
    actions: [
      redisLost(cast),
      confirmed(cast),
      { at: 1500, do: 'refuse', instance: b, server: 'reports', for: reportedMs - 1500 },
      request(atMs - 100, b),
      { at: atMs - 50, do: 'refuse', instance: b, server: 'lookups', for: longMs },
      change(cast),
      // Its second report, which begins at once, ends the use of the copy.
      ...Array.from({ length: 20 }, () => request(reportedMs + chance.between(0, 10), b)),
    ],
  }
}

/**
 * Postgres loses the change, but Redis knows its version. Until that ends after ten minutes, no request is
 * decided by the state before.
 */
function restored({ chance, atMs, a, b, c }: Cast): Scene {
  const lostAtMs = atMs + chance.between(10, 150)
  return {
    cacheTtlMs: 400,
    outageTtlMs: 2500,
    clocksAgree: true,
    actions: [
      // One that has a copy confirms the version at once, the others do so in the background.
      ...(chance.is(0.5) ? [request(atMs - 800, a)] : []),
      { at: atMs, do: 'change', instance: a, key: 0, change: 'limit' },
      request(atMs + 5, b),
      { at: lostAtMs, do: 'restore postgres', lag: lostAtMs - atMs, for: 603_000 },
      ...several(chance, 3, () => request(lostAtMs + chance.between(5, 1000), chance.oneOf([b, c]))),
      // Whatever copies there are, this one reads the key, and finds that the change is lost.
      request(lostAtMs + 1500, a),
      ...several(chance, 3, () => request(lostAtMs + chance.between(100_000, 590_000), b)),
    ],
  }
}

/** The clocks run at different rates, and the change is answered just when the copy of `b` ends. */
function longWait(cast: Cast): Scene {
  const { chance, atMs, b } = cast
  const cacheTtlMs = 60_000
  return {
    cacheTtlMs,
    outageTtlMs: 0,
    slow: b,
    actions: [
      request(atMs - 80, b),
      { ...redisLost(cast), for: cacheTtlMs + longMs } as Action,
      change(cast),
      request(atMs + cacheTtlMs * chance.between(0.99, 1.03), b),
    ],
  }
}

/** The same for a copy that `b` uses while it has no Postgres, and cannot report itself. */
function longSilence(cast: Cast): Scene {
  const { chance, atMs, b } = cast
  const outageTtlMs = 60_000
  const lostAtMs = atMs - 100
  const changedAtMs = lostAtMs + outageTtlMs - 4000
  return {
    cacheTtlMs: 1500,
    outageTtlMs,
    slow: b,
    actions: [
      { ...redisLost(cast), at: lostAtMs, for: outageTtlMs + longMs } as Action,
      request(lostAtMs - 200, b),
      { at: lostAtMs, do: 'refuse', instance: b, server: 'postgres', for: outageTtlMs + longMs },
      { ...change(cast), at: changedAtMs },
      ...several(chance, 6, () => request(lostAtMs + outageTtlMs * chance.between(0.98, 1.05), b)),
    ],
  }
}

/** The last ones are rarer: two are quickly found, and three take minutes of virtual time. */
export const scenes: ((cast: Cast) => Scene)[] = [
  ...[
    split,
    rollback,
    overtaken,
    flushed,
    firstRead,
    slowWrite,
    slowReport,
    readWhileAsking,
    unanswered,
    unrecorded,
    outage,
    lateReport,
    repeated,
    crossed,
    forgotten,
    movedAway,
    kept,
    behind,
    stopped,
    silent,
    unheard,
    suspended,
    suspendedBehind,
    suspendedOften,
    suspendedRenewal,
    suspendedLong,
  ].flatMap((scene) => Array(8).fill(scene)),
  ...[answeredAtOnce, crowded, longWait, longSilence, restored].flatMap((scene) => Array(3).fill(scene)),
]
