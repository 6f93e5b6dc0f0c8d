/**
 * Every error that crosses the wire. The table makes both the envelope and the page behind its
 * `docs_url`, so the two cannot disagree.
 */
export interface ErrorRow {
  status: number
  type: string
  /** What happened, for a person. */
  message: string
  /** What to do about it. */
  suggestion: string
  /** The longer explanation on the error's page. */
  about: string
}

export const errorTable = {
  invalid_json: {
    status: 400,
    type: 'invalid_request_error',
    message: 'The request body is not valid JSON.',
    suggestion: 'Send the JSON object that the operation takes, encoded as UTF-8, such as {"name":"my key"}.',
    about:
      'The body is empty or cut short, is not valid UTF-8 (RFC 3629) or JSON (RFC 8259), has over 100,000 values, or has an object with the same member twice, which `param` then names. Nothing was changed.',
  },
  missing_parameter: {
    status: 400,
    type: 'invalid_request_error',
    message: 'A required parameter is missing.',
    suggestion: 'Send the parameter named by `param`.',
    about:
      'A member that the operation needs is missing. `param` names it; it is empty where any one of several members would do.',
  },
  unknown_parameter: {
    status: 400,
    type: 'invalid_request_error',
    message: 'This operation does not take that parameter.',
    suggestion: 'Remove the parameter named by `param`, or correct its spelling.',
    about:
      'Unknown members are rejected rather than ignored, so that a typo is noticed. `param` names the first of them.',
  },
  invalid_parameter: {
    status: 400,
    type: 'invalid_request_error',
    message: 'A parameter has a value that is not allowed.',
    suggestion: 'Correct the parameter named by `param`.',
    about:
      'The value has the wrong type or is out of bounds. Values are never converted: a number sent as a string is rejected. `param` names the member; it is empty where the body itself has the wrong type.',
  },
  bad_request: {
    status: 400,
    type: 'invalid_request_error',
    message: 'The request is not valid HTTP.',
    suggestion:
      'Check the request line and headers against RFC 9112; a proxy in between may have changed them.',
    about:
      'The bytes are not one valid HTTP/1.1 request: for example a control character in a header, two lengths for one body, or no Host. The connection is closed if the start of the next request would be in doubt.',
  },
  unauthorized: {
    status: 401,
    type: 'authentication_error',
    message: 'The API key is missing or invalid.',
    suggestion: 'Send `Authorization: Bearer <KEY_PREFIX>_...` and check that the key is active.',
    about:
      'No header, another scheme, another prefix, an unknown, revoked or expired key, and a deleted owner all get this same response. The operator finds the precise reason in the audit log by `request_id`: `latchkey audit find req_…`.',
  },
  operator_unauthorized: {
    status: 401,
    type: 'authentication_error',
    message: 'The operator token is missing or invalid.',
    suggestion:
      'Send `Authorization: Bearer …` with a token from OPS_TOKEN. If the service has none, send the request from its own machine to http://localhost and the ops port.',
    about:
      'Only the ops listener sends this. With OPS_TOKEN, everything there needs one of its tokens or a session, except the probes, the metrics, the login page and the reports of GitHub. Without it, the listener must be bound to a loopback address and the Host header must name one. A request that changes something must not carry the Origin of another site. METRICS_TOKEN guards the metrics in the same way. The audit log has the reason, as the event `operator.refused`.',
  },
  not_found: {
    status: 404,
    type: 'not_found_error',
    message: 'There is no such resource.',
    suggestion:
      'Check the id and its prefix (`apk_` for keys), and that it belongs to the user of this API key.',
    about:
      'The id named by `param` does not exist, is mistyped, or belongs to another user. The response is the same for all three.',
  },
  route_not_found: {
    status: 404,
    type: 'not_found_error',
    message: 'There is no such route.',
    suggestion: 'Check the path. All endpoints are under /v1, for example /v1/keys.',
    about: 'The service has no such path.',
  },
  method_not_allowed: {
    status: 405,
    type: 'invalid_request_error',
    message: 'This route does not support the method.',
    suggestion: 'Use one of the methods in the Allow header.',
    about: 'The path exists, but not with this method. The `Allow` header lists the methods it supports.',
  },
  request_timeout: {
    status: 408,
    type: 'invalid_request_error',
    message: 'The request took too long to arrive.',
    suggestion: 'Send the whole request promptly, and try again.',
    about: 'The headers or the body were not complete in time. The connection is closed.',
  },
  key_not_active: {
    status: 409,
    type: 'conflict_error',
    message: 'The key is revoked or expired and cannot be changed.',
    suggestion: 'Create a new key with POST /v1/keys.',
    about: 'Only an active key can be changed. A revoked or expired key never becomes active again.',
  },
  key_already_rotated: {
    status: 409,
    type: 'conflict_error',
    message: 'The key has already been rotated.',
    suggestion: 'Use the key that replaced it. If its secret is lost, rotate that one.',
    about:
      'A key is rotated at most once. Of several rotations of one key at the same time, one succeeds and the others get this response. `message` names the key that replaced it.',
  },
  key_limit_reached: {
    status: 409,
    type: 'conflict_error',
    message: 'The user already has as many usable keys as allowed.',
    suggestion: 'Revoke a key that is no longer needed with DELETE /v1/keys/{id}.',
    about:
      'Revoked and expired keys do not count. The operator sets the bound with MAX_KEYS_PER_USER. Rotations with a grace period may bring it up to twice as many.',
  },
  external_id_taken: {
    status: 409,
    type: 'conflict_error',
    message: 'Another user has this external_id.',
    suggestion: 'Find that user with GET /admin/users?external_id=…, or send another `external_id`.',
    about:
      'Only the admin API sends this. No two users have the same `external_id`. A deleted user keeps it until a PATCH sets it to null.',
  },
  payload_too_large: {
    status: 413,
    type: 'invalid_request_error',
    message: 'The request body is too large.',
    suggestion: 'Send at most 16 KiB.',
    about: 'A body may have at most 16384 bytes, unless the operation says otherwise.',
  },
  unsupported_media_type: {
    status: 415,
    type: 'invalid_request_error',
    message: 'The media type of the body is not supported.',
    suggestion: 'Send the body with one `Content-Type: application/json` and no Content-Encoding.',
    about:
      'Bodies must be uncompressed JSON in UTF-8, declared once as `application/json`. The only `charset` allowed is `utf-8`.',
  },
  rate_limit_exceeded: {
    status: 429,
    type: 'rate_limit_error',
    message: 'The key has used up its requests for this minute.',
    suggestion:
      'Wait for the number of seconds in Retry-After, or raise `rate_limit_rpm` with PATCH /v1/keys/{id}, or create another key.',
    about:
      'Each key may make `rate_limit_rpm` requests a minute. Every request counts, including those answered with an error. `Retry-After` is the number of seconds until the minute ends. Do not retry at fixed intervals. The ops listener sends this to an address that it has refused too often within a minute.',
  },
  headers_too_large: {
    status: 431,
    type: 'invalid_request_error',
    message: 'The request headers are too large.',
    suggestion: 'Send fewer or shorter headers, and a shorter URL.',
    about: 'The request line and the headers together may have at most 16 KiB. The connection is closed.',
  },
  internal_error: {
    status: 500,
    type: 'api_error',
    message: 'Something went wrong on our side.',
    suggestion: 'Try again. If it happens again, give the operator the request_id.',
    about: 'An unexpected fault. The log has one line with the `request_id`.',
  },
  service_unavailable: {
    status: 503,
    type: 'api_error',
    message: 'The service cannot process the request right now.',
    suggestion: 'Try again after the number of seconds in Retry-After.',
    about:
      'A server behind this one is down or overloaded, or this client address was refused too often within a minute. This says nothing about the key. A change that got this response may or may not have been made: read the resource before you repeat it.',
  },
} satisfies Record<string, ErrorRow>

export type ErrorCode = keyof typeof errorTable
