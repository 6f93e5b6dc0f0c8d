/**
 * The types of the client, made from the API documents: `npm run generate` writes them into
 * src/client. Headers and errors are left out: the client handles those for all operations alike.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import openapiTypescript, { astToString } from 'openapi-typescript'
import ts from 'typescript'
import type { OpenApiDocument, Operation } from '../../src/openapi/document-types.ts'
import { listeners } from './documents.ts'

const files = { public: 'src/client/api.ts', admin: 'src/client/admin-api.ts' } as const
const head = '// Made by `npm run generate` from the API document. Do not edit.\n'

/** For each file, what it should hold. */
export async function generated(): Promise<{ file: string; text: string }[]> {
  const documents = await listeners()
  return Promise.all(
    (['public', 'admin'] as const).map(async (name) => {
      const document = reduced(documents[name].document) as never
      const nodes = await openapiTypescript(document, { defaultNonNullable: false })
      const wanted = nodes.filter((node) => /^(components|operations)$/.test(nameOf(node)))
      return { file: files[name], text: head + astToString(wanted) }
    }),
  )
}

export const stored = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')

const nameOf = (node: ts.Node) => (ts.isInterfaceDeclaration(node) ? node.name.text : '')

function reduced({ paths, components, ...document }: OpenApiDocument) {
  const reducedPaths = Object.entries(paths).map(([path, operations]) => [
    path,
    Object.fromEntries(Object.entries(operations).map(([method, one]) => [method, success(one)])),
  ])
  return {
    ...document,
    paths: Object.fromEntries(reducedPaths),
    components: { schemas: components.schemas },
  }
}

function success({ responses, ...operation }: Operation) {
  const successes = Object.entries(responses).filter(([status]) => /^20[01]$/.test(status))
  return {
    ...operation,
    responses: Object.fromEntries(
      successes.map(([status, response]) => [
        status,
        'content' in response ? { description: response.description, content: response.content } : response,
      ]),
    ),
  }
}

if (process.argv[1]?.endsWith('client-types.ts')) {
  for (const { file, text } of await generated()) {
    writeFileSync(new URL(`../../${file}`, import.meta.url), text)
  }
}
