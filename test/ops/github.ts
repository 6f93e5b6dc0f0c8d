/** GitHub as a sender of signed reports, with key pairs of the test's own. */
import { createHash, generateKeyPairSync, type KeyObject, sign } from 'node:crypto'

export interface Signer {
  identifier: string
  pem: string
  privateKey: KeyObject
}

export function makeSigner(namedCurve = 'P-256'): Signer {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve })
  const pem = publicKey.export({ type: 'spki', format: 'pem' }).toString()
  return { identifier: createHash('sha256').update(pem).digest('hex'), pem, privateKey }
}

/** As GitHub's meta/public_keys/secret_scanning endpoint lists them. */
export const published = (...signers: Pick<Signer, 'identifier' | 'pem'>[]) =>
  JSON.stringify({
    public_keys: signers.map(({ identifier, pem }, i) => ({
      key_identifier: identifier,
      key: pem,
      is_current: i === signers.length - 1,
    })),
  })

/** The headers of a report with this body. */
export const signedBy = ({ identifier, privateKey }: Signer, body: string | Uint8Array) => ({
  'content-type': 'application/json',
  'github-public-key-identifier': identifier,
  'github-public-key-signature': sign('sha256', Buffer.from(body), privateKey).toString('base64'),
})

export const match = (token: string, more: object = {}) => ({
  token,
  type: 'latchkey_api_key',
  url: 'https://github.com/octocat/hello/blob/main/config.env',
  source: 'content',
  ...more,
})

export const answered = (token: string, label: 'true_positive' | 'false_positive') => ({
  token_hash: createHash('sha256').update(token).digest('hex'),
  token_type: 'latchkey_api_key',
  label,
})
