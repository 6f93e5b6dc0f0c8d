/** The migrations: the files of sql/postgres, and which of them a database lacks. */
import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Query } from './pool.ts'

export interface Migration {
  version: number
  name: string
}

export interface MigrationFile extends Migration {
  md5: string
  script: string
}

export async function readMigrations(): Promise<MigrationFile[]> {
  const folder = dirname(fileURLToPath(import.meta.resolve('#sql/postgres/001.do.users-and-keys.sql')))
  const names = (await readdir(folder)).filter((file) => file.endsWith('.sql')).sort()
  return Promise.all(
    names.map(async (file) => {
      const [number, , name] = file.split('.')
      const script = await readFile(join(folder, file), 'utf8')
      return {
        version: Number(number),
        name: name!,
        script,
        md5: createHash('md5').update(script).digest('hex'),
      }
    }),
  )
}

export class MigrationChanged extends Error {}

/** Checksums of files that differ from those of today in a comment only, by version. */
const withOtherComments: Record<number, string> = {
  24: '6a71946b311da92b8afaae7c48af281c',
  27: '1eb0eac3f6d6af4ef9235b98ee227f9b',
  30: 'a42bb5f4f750316484125aa82402c8de',
}

/**
 * The files newer than the newest applied one, looking only in the first schema of the search path.
 * Throws if a file was changed after it was applied.
 */
export async function missingOf(sql: Query, files: MigrationFile[]): Promise<MigrationFile[]> {
  const [place] = await sql`
    select current_schema() as schema, to_regclass(quote_ident(current_schema()) || '.schema_version') as known`
  if (place!.schema === null)
    throw new Error('the Postgres of DATABASE_URL: the role can use none of the schemas in its search_path')
  if (place!.known === null) {
    await refuseSecond(sql, place!.schema)
    return files
  }
  const rows = await sql`select version::int, md5 from schema_version`
  const applied = new Map(rows.map(({ version, md5 }) => [version as number, md5 as string | null]))
  const newest = Math.max(0, ...applied.keys())
  for (const { version, name, md5 } of files) {
    const known = applied.get(version) ?? md5
    if (version <= newest && known !== md5 && known !== withOtherComments[version])
      throw new MigrationChanged(`migration ${version} (${name}) was changed after it was applied`)
  }
  return files.filter(({ version }) => version > newest)
}

/**
 * A pooler may drop the search_path of the URL, as PgBouncer does if it is configured to. Migrating
 * would make a second, empty Latchkey in another schema, to which every key is unknown.
 */
export async function requireSearchPath(sql: Query, url: string) {
  const asked = new URL(url).searchParams.getAll('search_path').at(-1)
  if (!asked) return
  const [row] = await sql`select current_setting('search_path') as path`
  if (row!.path !== asked)
    throw new Error(
      `the Postgres of DATABASE_URL: the search_path is ${row!.path}, because a pooler ignores the one in the URL (${asked}): remove it there, and set it for the role (alter role … set search_path)`,
    )
}

/** In another encoding, texts have other lengths, and some cannot be stored. */
export async function requireUtf8(sql: Query) {
  const [row] = await sql`select current_setting('server_encoding') as encoding`
  if (row!.encoding !== 'UTF8')
    throw new Error(
      `the Postgres of DATABASE_URL: the database has the encoding ${row!.encoding}; create it with encoding 'UTF8'`,
    )
}

/**
 * A schema with the role's name, or a change of the search path, hides an installation further back:
 * migrating would make a second, empty one. Other programs have a schema_version too, but without
 * md5 and api_keys.
 */
async function refuseSecond(sql: Query, schema: string) {
  const [existing] = await sql`
    select name, quote_ident(name) as in_use, quote_ident(${schema}) as empty
    from unnest(current_schemas(false)) with ordinality as path (name, place)
    join pg_attribute on attrelid = to_regclass(quote_ident(name) || '.schema_version') and attname = 'md5'
    where name <> ${schema} and to_regclass(quote_ident(name) || '.api_keys') is not null
    order by place limit 1`
  if (existing === undefined) return
  const [inUse, empty] = [existing.in_use, existing.empty].map(encodeURIComponent)
  throw new Error(
    `the Postgres of DATABASE_URL: schema "${schema}" is first in the search_path, but Latchkey is in "${existing.name}": add ?search_path=${inUse} to the URL, or ?search_path=${empty} for a second, empty Latchkey`,
  )
}

/** What the database and this package each lack. Throws if a file was changed after it was applied. */
export async function compareSchema(sql: Query) {
  const files = await readMigrations()
  const missing = (await missingOf(sql, files)).length
  if (missing > 0) return { version: files.length - missing, missing, unknown: 0 }
  const [row] = await sql`select max(version)::int as version from schema_version`
  const version: number = row!.version
  return { version, missing, unknown: version - files.at(-1)!.version }
}

export const countMissing = (count: number) =>
  count === 1 ? '1 migration is missing' : `${count} migrations are missing`
