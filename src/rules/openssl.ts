/**
 * The words for people in an error of OpenSSL, which has them between codes and file names:
 * `80CC…:error:0A00010B:SSL routines:ssl3_get_record:wrong version number:../deps/…`.
 */
export const opensslReason = (message: string): string | undefined =>
  /:error:[0-9A-F]{8}:[^:]*:[^:]*:([^:]+)/.exec(message)?.[1]
