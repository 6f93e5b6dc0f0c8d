/**
 * Why a request was not authenticated (spec section 5.5). For the audit log, never for a response.
 */
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
