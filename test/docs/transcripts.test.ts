// Every transcript in the documents is what the service answers today, apart from ids and times.
// With UPDATE_DOCS=1 the outputs of this run are written into the documents instead. One document
// only: --grep=docs/cli.md
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { onPath } from '../services/binaries.ts'
import { useServices } from '../services/index.ts'
import { documents, programsOf, runUntilAsDocumented } from './documents.ts'
import { root } from './surroundings.ts'
import { rewritten } from './transcript.ts'

const services = await useServices(t)

t.jobs = 3
for (const document of documents) {
  const { name, markdown } = document
  t.test(name, { buffered: true }, async (t) => {
    for (const program of programsOf(document)) {
      if (!(await onPath(program)))
        return void t.pass(name, { skip: `there is no ${program} on this machine` })
    }
    const run = await runUntilAsDocumented(t, services, document)
    if (run === null) return
    const { ran, seen } = run
    if (process.env.UPDATE_DOCS) return writeFile(join(root, name), rewritten(markdown, ran, seen))
    for (const { step, actual, asDocumented } of ran) {
      if (asDocumented) t.pass(step.command)
      else t.strictSame(actual, step.output, step.command)
    }
  })
}
