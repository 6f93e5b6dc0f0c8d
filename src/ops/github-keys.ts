/** GitHub's public keys, read from a file. They verify its reports of leaked keys. */
import { createPublicKey, type KeyObject } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'

/** GitHub's own takes less than 1 KB. */
const fileMaxBytes = 65_536

const variable = 'GITHUB_SCANNING_KEYS_FILE'

/** By their identifiers. Rejects with one line that names the variable, and never the path. */
export async function readGithubKeys(file: string): Promise<Map<string, KeyObject>> {
  const text = await textOf(file).catch(({ code }: NodeJS.ErrnoException) => {
    throw new Error(`${variable} cannot be read (${code})`)
  })
  const keys = text === null ? null : parse(text)
  if (keys === null || keys.size === 0) {
    throw new Error(
      `${variable} must name a file with the answer of https://api.github.com/meta/public_keys/secret_scanning: P-256 keys, at most ${fileMaxBytes} bytes`,
    )
  }
  return keys
}

/** null: too large, or something that might never end. */
async function textOf(file: string): Promise<string | null> {
  const found = await stat(file)
  return found.isFile() && found.size <= fileMaxBytes ? readFile(file, 'utf8') : null
}

function parse(text: string): Map<string, KeyObject> | null {
  try {
    const { public_keys: listed } = JSON.parse(text) as {
      public_keys: { key_identifier: string; key: string }[]
    }
    return new Map(listed.map(({ key_identifier, key }) => [key_identifier, p256(key)]))
  } catch {
    return null
  }
}

function p256(pem: string): KeyObject {
  const key = createPublicKey(pem)
  if (key.asymmetricKeyDetails?.namedCurve !== 'prime256v1') throw new Error('not on P-256')
  return key
}
