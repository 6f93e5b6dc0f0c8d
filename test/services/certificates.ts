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

const keyType = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']

export async function createAuthority(folder: string, name: string): Promise<Authority> {
  const root = join(folder, `${name}.crt`)
  const rootKey = join(folder, `${name}.key`)
  await openssl(
    'req',
    '-x509',
    ...keyType,
    '-subj',
    `/CN=${name}`,
    '-days',
    '2',
    '-keyout',
    rootKey,
    '-out',
    root,
  )
  let signed = 0
  return {
    root,
    async sign(commonName, names) {
      const [cert, key, request, extensions] = ['crt', 'key', 'csr', 'ext'].map((end) =>
        join(folder, `${name}-${signed}.${end}`),
      ) as [string, string, string, string]
      signed++
      await openssl('req', ...keyType, '-subj', `/CN=${commonName}`, '-keyout', key, '-out', request)
      await writeFile(extensions, names === undefined ? '' : `subjectAltName=${names}\n`)
      const from = ['-in', request, '-CA', root, '-CAkey', rootKey, '-CAcreateserial']
      await openssl('x509', '-req', ...from, '-days', '2', '-extfile', extensions, '-out', cert)
      return { cert, key }
    },
  }
}

const openssl = (...args: string[]) => run('openssl', args)

/** Paths of PEM files. */
export interface Certificates {
  authority: string
  certificate: string
  key: string
}

/** One server's certificate and its authority. Null where there is no openssl; the test then has a skipped assertion. */
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
