/** How the embedded Postgres runs: small, local, and losing no change. */

/** For the command line, which overrides the postgresql.conf of the directory. */
export const settings = (port: number): string[] =>
  [
    'listen_addresses=127.0.0.1',
    `port=${port}`,
    // A socket's path may not exceed some 100 bytes, and DATA_DIR may.
    'unix_socket_directories=',
    'max_connections=60',
    // Its superuser cannot log in.
    'superuser_reserved_connections=0',
    'shared_buffers=64MB',
    'max_wal_size=256MB',
    // Changes and refusals are on disk before their response. Last uses are not (keys.ts in
    // src/postgres).
    'fsync=on',
    'full_page_writes=on',
    'synchronous_commit=on',
    'timezone=UTC',
    'log_timezone=UTC',
    'logging_collector=off',
    'log_destination=stderr',
    // The client learns of a failed statement. In this log they would grow without bound and quote
    // rows.
    'log_min_messages=log',
    'log_min_error_statement=panic',
    'log_checkpoints=off',
    'max_logical_replication_workers=0',
  ].flatMap((setting) => ['-c', setting])
