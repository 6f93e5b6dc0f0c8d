/** latchkey migrate: what every start does, as a step of its own. */
import { type Command, withStores } from './command.ts'

export const runMigrate: Command = {
  takes: [],
  async run(config) {
    const applied = await withStores(config, async (stores) => stores.applied, { createsDatabase: true })
    const lines = applied.map(({ version, name }) => `applied ${version} ${name}`)
    return {
      json: { applied },
      lines: lines.length > 0 ? lines : ['nothing to do: the schema is up to date'],
    }
  },
}
