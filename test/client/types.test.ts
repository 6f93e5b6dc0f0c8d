// The types of the client: as the API documents say, and without anything of Node.
import { fileURLToPath } from 'node:url'
import t from 'tap'
import ts from 'typescript'
import { generated, stored } from '../openapi/client-types.ts'

t.test('the types are those of the API documents', async (t) => {
  for (const { file, text } of await generated()) {
    t.ok(stored(file) === text, `${file} is out of date: run \`npm run generate\``)
  }
})

t.test('the client and its uses compile strictly with what browsers have', async (t) => {
  const usage = fileURLToPath(new URL('usage.ts', import.meta.url))
  const program = ts.createProgram([usage], {
    strict: true,
    exactOptionalPropertyTypes: true,
    noEmit: true,
    target: ts.ScriptTarget.ES2022,
    lib: ['lib.es2022.d.ts', 'lib.dom.d.ts'],
    types: [],
    module: ts.ModuleKind.NodeNext,
    allowImportingTsExtensions: true,
  })
  const faults = ts.getPreEmitDiagnostics(program)
  t.same(
    faults.map(
      ({ file, messageText }) => `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`,
    ),
    [],
  )
  const read = program.getSourceFiles().map(({ fileName }) => fileName)
  t.same(
    read.filter((name) => !/\/(src|test)\/client\/|\/typescript\/lib\//.test(name)),
    [],
    'and imports nothing else',
  )
})
