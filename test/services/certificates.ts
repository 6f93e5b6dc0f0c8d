// Certificates for tests, made by the openssl binary: an authority and what it signs.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { makeTemporaryFolder, removeTemporaryFolder } from './folders.ts'
import { run } from './processes.ts'

export interface Certificate {
  cert: string
  key: string
}

export interface Authority {
  /** Path of its own certificate. */
  root: string
  /** `names` as in subjectAltName: `DNS:localhost`, `IP:127.0.0.1`. */
  sign(commonName: string, names?: string): Promise<Certificate>
}

const openssl = (...args: string[]) => run('openssl', args)
const newKey = ['req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-subj']

export async function createAuthority(folder: string, name: string): Promise<Authority> {
  const file = (end: string) => join(folder, `${name}${end}`)
  const root = file('.crt')
  await openssl(...newKey, `/CN=${name}`, '-x509', '-days', '2', '-keyout', file('.key'), '-out', root)
  let signed = 0
  return {
    root,
    async sign(commonName, names) {
      const n = signed++
      const [cert, key, request, extensions] = ['crt', 'key', 'csr', 'ext'].map((end) => file(`-${n}.${end}`))
      await openssl(...newKey, `/CN=${commonName}`, '-keyout', key!, '-out', request!)
      await writeFile(extensions!, names === undefined ? '' : `subjectAltName=${names}\n`)
      const from = ['-in', request!, '-CA', root, '-CAkey', file('.key'), '-CAcreateserial']
      await openssl('x509', '-req', ...from, '-days', '2', '-extfile', extensions!, '-out', cert!)
      return { cert: cert!, key: key! }
    },
  }
}

/** Paths of PEM files. */
export interface Certificates {
  authority: string
  certificate: string
  key: string
}

/**
 * A server's certificate and its authority. Null, with a skipped assertion, where there is no
 * openssl.
 */
export async function makeCertificates(t: Test, names: string[]): Promise<Certificates | null> {
  const folder = await makeTemporaryFolder('certificates')
  t.teardown(() => removeTemporaryFolder(folder))
  try {
    await openssl('version')
  } catch {
    t.pass('certificates', { skip: 'there is no openssl on this machine' })
    return null
  }
  const { root, sign } = await createAuthority(folder, 'authority')
  const { cert, key } = await sign('server', names.join(','))
  return { authority: root, certificate: cert, key }
}
