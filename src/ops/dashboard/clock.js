/** The time by the clock of the service. That of the browser may be wrong, or be set while it watches. */
let aheadS = 0

export function setNow(seconds) {
  aheadS = seconds - Date.now() / 1000
}

/** Unix seconds. */
export const nowS = () => Date.now() / 1000 + aheadS
