/**
 * TLS to Postgres as in libpq, configured by URL parameters or by PGSSLMODE and related variables.
 * postgres.js 3.4 reads no certificate files, and for an IP address its verify-full checks that the
 * certificate names "localhost".
 */
import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { type ConnectionOptions, checkServerIdentity, createSecureContext } from 'node:tls'

/** Values from the environment. The URL takes precedence. */
export interface SslSettings {
  sslmode?: string | undefined
  sslrootcert?: string | undefined
  sslcert?: string | undefined
  sslkey?: string | undefined
}

export interface Ssl {
  /** Continue without TLS if the server offers none. */
  optional: boolean
  options(host: string): ConnectionOptions
}

const modes = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full']

interface Setting {
  text: string
  /** The name by which an operator knows it. */
  label: string
}

/** Null means no TLS, which is the default. Throws an error that names the invalid setting. */
export function readSsl(params: URLSearchParams, env: SslSettings): Ssl | null {
  const setting = (name: keyof SslSettings): Setting | null => {
    const inUrl = params.get(name)
    if (inUrl) return { text: inUrl, label: `${name} in DATABASE_URL` }
    return env[name] ? { text: env[name], label: `PG${name.toUpperCase()}` } : null
  }
  const [root, cert, key] = [setting('sslrootcert'), setting('sslcert'), setting('sslkey')]
  const mode = readMode(setting('sslmode'), root)
  if (mode === null && (root ?? cert ?? key))
    throw new Error(`${(root ?? cert ?? key)!.label} needs an sslmode, such as verify-full`)
  if (mode === null || mode === 'disable') return null

  const optional = mode === 'allow' || mode === 'prefer'
  const ca = root && root.text !== 'system' && !optional ? readRoots(root) : undefined
  // As in libpq, `require` also checks the chain if there is a root certificate.
  const verifies = mode.startsWith('verify') || ca !== undefined
  const client = readClientCertificate(cert, key)
  return {
    optional,
    options: (host) => ({
      ...(isIP(host) === 0 && { servername: host }),
      ...(ca && { ca }),
      ...client,
      rejectUnauthorized: verifies,
      checkServerIdentity: (_, certificate) =>
        mode === 'verify-full' ? checkServerIdentity(host, certificate) : undefined,
    }),
  }
}

function readMode(mode: Setting | null, root: Setting | null): string | null {
  if (mode && !modes.includes(mode.text)) throw new Error(`${mode.label} must be one of ${modes.join(', ')}`)
  if (root?.text === 'system') {
    // Anyone can get a certificate from a public authority, so it proves something only together
    // with the host name.
    if (mode && mode.text !== 'verify-full')
      throw new Error(`${mode.label} must be verify-full with sslrootcert=system`)
    return 'verify-full'
  }
  if (mode?.text === 'verify-ca' && !root) throw new Error(`${mode.label}: verify-ca needs sslrootcert`)
  return mode?.text ?? null
}

function readRoots(root: Setting): Buffer {
  const ca = readFile(root)
  // Node would accept a file without any certificate, and then trust nobody.
  checked(root, () => new X509Certificate(ca))
  return ca
}

function readClientCertificate(cert: Setting | null, key: Setting | null) {
  if (!cert && !key) return {}
  if (!cert) throw new Error(`${key!.label} needs sslcert`)
  if (!key) throw new Error(`${cert.label} needs sslkey`)
  const client = { cert: readFile(cert), key: readFile(key) }
  checked(cert, () => new X509Certificate(client.cert))
  checked(key, () => createSecureContext(client))
  return client
}

function readFile({ text, label }: Setting): Buffer {
  try {
    return readFileSync(text)
  } catch (error) {
    throw new Error(`${label}: the file cannot be read (${(error as NodeJS.ErrnoException).code})`)
  }
}

function checked({ label }: Setting, use: () => unknown) {
  try {
    use()
  } catch (error) {
    throw new Error(`${label}: the file cannot be used (${(error as NodeJS.ErrnoException).code})`)
  }
}
