/** Why a request was not authenticated. For the audit log, never for a response. */
export const refusalReasons = [
  'missing_header',
  'wrong_scheme',
  'wrong_prefix',
  'unknown_key',
  'revoked',
  'expired',
  'owner_deleted',
] as const
export type RefusalReason = (typeof refusalReasons)[number]

/** Why the ops listener refused a request. */
export const operatorRefusalReasons = [
  'missing_token',
  'wrong_token',
  'foreign_origin',
  'foreign_host',
  'missing_signature',
  'unknown_signer',
  'wrong_signature',
] as const
export type OperatorRefusalReason = (typeof operatorRefusalReasons)[number]
