// Every link between the documents leads to a file, and to a heading that it has. Every file of the
// sources that they name is there.
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { documentNames } from './documents.ts'
import { root } from './surroundings.ts'

const textOf = (file: string) => readFileSync(join(root, file), 'utf8').replace(/^```.*?^```$/gms, '')

/** As GitHub names the anchors of headings. */
const anchorsOf = (file: string) =>
  [...textOf(file).matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-'),
  )

const folders = 'bench|docs|examples|ops|plugins|schemas|sql|src|test'

for (const from of documentNames) {
  const paths = [...textOf(from).matchAll(new RegExp(`\`((?:${folders})/[^\`\\s<*]*)\``, 'g'))]
  const links = [...textOf(from).matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)/g)]
  if (links.length + paths.length === 0) continue
  t.test(from, async (t) => {
    for (const [link, path, anchor] of links) {
      const to = path === '' ? from : join(dirname(from), path!)
      if (!existsSync(join(root, to))) t.fail(`${link} leads to no file`)
      else if (anchor !== undefined) t.ok(anchorsOf(to).includes(anchor), link)
      else t.pass(link)
    }
    for (const [, path] of paths) t.ok(existsSync(join(root, path!)), path!)
  })
}
