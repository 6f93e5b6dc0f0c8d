// What the commands of a document find when they run: a service, its environment, and a shell in a
// folder of their own.
import { chmod, cp, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { makeKey, makeUser, startInstance, startOps } from '../instance.ts'
import { makeSigner, published } from '../ops/github.ts'
import { builtCli } from '../process/built.ts'
import { embeddedEnv } from '../process/embedded.ts'
import { aFolder, externalEnv } from '../process/latchkey.ts'
import { type Services, startPrivateRedis } from '../services/index.ts'
import { openShell, type Shell } from './shell.ts'
import type { Names } from './transcript.ts'

export const root = fileURLToPath(new URL('../../', import.meta.url))

export interface Surroundings {
  shell: Shell
  seen: Names
}

/**
 * For a document that starts the service itself: in a clone, with everything that npm installs and
 * what was built here before. `test/run/build.test.ts` builds from nothing.
 */
export async function inFreshCopy(t: Test): Promise<Surroundings> {
  // Inside the project, whose node_modules it finds.
  const folder = await mkdtemp(join(root, '.tap', 'clone-'))
  t.teardown(() => rm(folder, { recursive: true, maxRetries: 3 }))
  for (const name of await readdir(root)) {
    if (!/^(?:\.git|\.tap|\.latchkey|node_modules)$/.test(name))
      await cp(join(root, name), join(folder, name), { recursive: true })
  }
  const env = await embeddedEnv(t)
  // As a home is: open to the user that Postgres runs as.
  await chmod(dirname(env.DATA_DIR), 0o755)
  const here = { [folder]: '/home/you/latchkey', [env.DATA_DIR]: '/home/you/latchkey/.latchkey' }
  const shellEnv = { ...env, PATH: process.env.PATH! }
  return {
    shell: openShell(t, folder, shellEnv, preamble(join(folder, 'dist/src/cli.js')), here),
    seen: new Map(),
  }
}

const operatorToken = 'a-token-of-the-documents'

/**
 * For any other document: a service runs already, on an empty database and a Redis of its own, and
 * KEY is its first key. The shell has its environment, and the operator's token as OPS_TOKEN. Null
 * without a redis-server.
 */
export async function besideService(
  t: Test,
  services: Services,
  markdown: string,
): Promise<Surroundings | null> {
  const redis = await startPrivateRedis(t)
  if (redis === null) return null
  const databaseUrl = await services.createDatabase()
  const env = externalEnv({ databaseUrl, redisUrl: redis.url })
  const folder = await aFolder(t)
  const serviceEnv = {
    ...env,
    BASE_URL: '',
    OPS_TOKEN: `ada:${operatorToken}`,
    GITHUB_SCANNING_KEYS_FILE: await githubKeysIn(folder),
  }
  // In this process, it waits longer for Redis and Postgres when the machine is busy.
  const instance = await startInstance(t, { ...services, databaseUrl, redisUrl: redis.url }, serviceEnv)
  const ops = await startOps(t, instance)
  const rateLimitRpm = instance.config.defaultRateLimitRpm
  const { id: userId } = await makeUser(instance, 'first user')
  const { token: key } = await makeKey(instance, { userId, name: 'first key', rateLimitRpm })
  const seen: Names = new Map([
    ['localhost:3000', `localhost:${instance.port}`],
    ['localhost:9464', `localhost:${ops.port}`],
  ])
  const printed = /^\$ KEY=(lk_\w{38})/m.exec(markdown)?.[1]
  if (printed !== undefined) seen.set(printed, key)
  const shellEnv = {
    ...env,
    PATH: process.env.PATH!,
    KEY: key,
    OPS_TOKEN: operatorToken,
    EMPTY_DATABASE_URL: await services.createDatabase(),
  }
  return { shell: openShell(t, folder, shellEnv, preamble(await builtCli())), seen }
}

/** The public keys of a GitHub whose private key is beside them. */
async function githubKeysIn(folder: string): Promise<string> {
  const signer = { ...makeSigner(), identifier: 'test' }
  const pem = signer.privateKey.export({ type: 'pkcs8', format: 'pem' })
  await writeFile(join(folder, 'github-test.pem'), pem)
  const file = join(folder, 'github-keys.json')
  await writeFile(file, published(signer))
  return file
}

/**
 * The commands of the documents run the command line of these sources, wherever they find it, and
 * npm has installed everything.
 */
const preamble = (cli: string) => `
npm() { [ "$1" = ci ] || command npm "$@"; }
curl() { command curl --no-progress-meter "$@"; }
npx() { shift; command node '${cli}' "$@"; }
node() { if [ "$1" = dist/src/cli.js ]; then shift; command node '${cli}' "$@"; else command node "$@"; fi; }
`
