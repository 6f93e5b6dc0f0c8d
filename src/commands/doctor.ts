/** latchkey doctor: what is wrong here, and what to do about it. */
import { lookup } from 'node:dns/promises'
import { type Config, ConfigError } from '../config.ts'
import type { Finding } from '../rules/finding.ts'
import { type Call, command, table } from './command.ts'

export const doctor = command('doctor', {
  summary: 'check the configuration and the servers; exits with 1 if something is wrong',
  example: 'doctor',
  async run(call) {
    const findings = await findingsOf(call)
    const wrong = findings.filter(({ state }) => state === 'wrong').length
    const rows = table(
      null,
      findings.map(({ state, about, found }) => [state, about, found]),
    )
    const margin = ' '.repeat(8)
    return {
      json: { ok: wrong === 0, findings },
      lines: rows.flatMap((row, i) => {
        const { advice } = findings[i]!
        return advice === undefined ? row : [row, margin + advice]
      }),
      fault: wrong === 0 ? undefined : `${wrong} of ${findings.length} checks found something wrong`,
    }
  },
})

async function findingsOf(call: Call<unknown>): Promise<Finding[]> {
  const about = 'configuration'
  let config: Config
  try {
    config = call.config
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    const advice = 'See "Configuration" in docs/operations.md. The servers were not checked.'
    return error.message.split('; ').map((found) => ({ about, state: 'wrong', found, advice }))
  }
  const { examine } = await import('../wiring/examine.ts')
  const [workers, listeners, github, servers] = await Promise.all([
    examineWorkers(config),
    examineListeners(config),
    examineGithubKeys(config),
    examine(config),
  ])
  return [workers, ...listeners, ...github, ...servers]
}

/** Each variable by itself is valid. The number of workers also depends on others. */
async function examineWorkers(config: Config): Promise<Finding> {
  const about = 'configuration'
  const { workerCount } = await import('./workers.ts')
  try {
    workerCount(config)
    return { about, state: 'ok', found: 'every variable is valid' }
  } catch (error) {
    const section = config.workers === 1 ? 'Configuration' : 'Several workers'
    const advice = `See "${section}" in docs/operations.md.`
    return { about, state: 'wrong', found: (error as Error).message, advice }
  }
}

/** What `serve` checks before it opens its listeners. */
async function examineListeners({ host, opsHost, opsTokens }: Config): Promise<Finding[]> {
  const { isLoopback } = await import('../ops/request-origin.ts')
  const [service, ops] = await Promise.all([host, opsHost].map((name) => lookup(name).catch(() => null)))
  const findings: Finding[] = []
  if (!service) findings.push(unresolved('listener', 'HOST'))
  if (!ops) findings.push(unresolved('ops listener', 'OPS_HOST'))
  if (ops && !isLoopback(ops.address) && opsTokens.length === 0)
    findings.push({
      about: 'ops listener',
      state: 'wrong',
      found: 'open to other machines without OPS_TOKEN: serve does not start',
      advice: 'Set OPS_TOKEN, or OPS_HOST=127.0.0.1.',
    })
  return findings
}

const unresolved = (about: string, name: string): Finding => ({
  about,
  state: 'wrong',
  found: `${name} does not resolve`,
  advice: `Set ${name} to an address.`,
})

/** What `serve` reads at its start, and again for each report. */
async function examineGithubKeys({ githubScanningKeysFile }: Config): Promise<Finding[]> {
  const about = 'secret scanning'
  if (githubScanningKeysFile === null) return []
  const { readGithubKeys } = await import('../ops/github-keys.ts')
  try {
    const { size } = await readGithubKeys(githubScanningKeysFile)
    return [{ about, state: 'ok', found: `public keys of GitHub: ${size}` }]
  } catch (error) {
    const advice = 'Get the file again: see "Secret scanning by GitHub" in docs/operations.md.'
    return [{ about, state: 'wrong', found: (error as Error).message, advice }]
  }
}
