/** The package has no types. These are the parts we use. */
declare module 'autocannon' {
  interface Options {
    url: string
    connections: number
    duration: number
    requests: { setupRequest(request: object): object }[]
  }
  interface Result {
    /** Seconds. */
    duration: number
    errors: number
    timeouts: number
    '2xx': number
    requests: { total: number }
    /** Milliseconds. */
    latency: { p50: number; p99: number }
  }
  export default function autocannon(options: Options): Promise<Result>
}
