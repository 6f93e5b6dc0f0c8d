// One user floods Postgres with requests, and nobody else notices.
import t from 'tap'
import { makeCaller, startInstance } from '../instance.ts'
import { openDatabase, useServices } from '../services/index.ts'
import { ask } from './ask.ts'

/** Far more than there are connections to Postgres, but few enough for a slow machine. */
const floods = 60
const rounds = 8

t.test(
  'while one user’s requests wait for Postgres, every management call of another succeeds',
  async (t) => {
    const services = await useServices(t)
    // On a slow machine, a call that waits for nobody may take as long as the real time limit.
    const instance = await startInstance(t, services, {}, { patience: 4 })
    const [busy, calm] = [await makeCaller(instance), await makeCaller(instance)]
    const path = `${instance.url}/v1/keys`
    const sql = openDatabase(t, services.databaseUrl)

    let flooding = true
    const answers = new Set<number>()
    const flood = async () => {
      while (flooding) {
        const json = { name: 'busy' }
        answers.add((await ask(`PATCH ${path}/${busy.id}`, { token: busy.token, json })).status)
      }
    }
    const statuses: number[] = []
    const askCalmly = async (method: string, at = '', json?: object) => {
      const { status, body } = await ask(`${method} ${path}${at}`, {
        token: calm.token,
        ...(json && { json }),
      })
      statuses.push(status)
      return body
    }
    await sql.begin(async (tx) => {
      // Every change made with this key waits for the lock until its statement times out.
      await tx`select from api_keys where id = ${busy.id} for update`
      const flooded = Array.from({ length: floods }, flood)
      const sound = () => statuses.every((status) => status < 300)
      for (let round = 0; (round < rounds || answers.size === 0) && sound(); round++) {
        const { id } = await askCalmly('POST', '', { name: 'calm' })
        await askCalmly('GET', '?status=revoked')
        await askCalmly('GET', `/${id}`)
        await askCalmly('PATCH', `/${id}`, { name: 'calmer' })
        await askCalmly('DELETE', `/${id}`)
      }
      flooding = false
      await Promise.all(flooded)
    })
    t.strictSame([...new Set(statuses)].sort(), [200, 201], `${statuses.length} calls`)
    t.strictSame([...answers], [503], 'what waited for the lock was answered in time')
  },
)
