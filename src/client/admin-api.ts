// Made by `npm run generate` from the API document. Do not edit.
export interface components {
    schemas: {
        Alive: {
            /** @constant */
            status: "ok";
        };
        /**
         * @example {
         *       "status": "ready",
         *       "redis": "local",
         *       "redis_cause": "refused",
         *       "postgres": "ok"
         *     }
         */
        Readiness: {
            /** @enum {string} */
            status: "starting" | "ready" | "draining";
            /**
             * @description How the instance counts: in Redis, on its own because a Redis server is down, or without Redis.
             * @example shared
             * @enum {string}
             */
            redis: "shared" | "local" | "memory";
            /**
             * @description Why a Redis server is not counting. Only if `redis` is `local`.
             * @example refused
             * @enum {string}
             */
            redis_cause?: "wrong_password" | "no_permission" | "certificate" | "tls" | "unknown_host" | "refused" | "unreachable" | "disconnected" | "timeout" | "loading" | "read_only" | "out_of_memory" | "cluster_down" | "other";
            /**
             * @description Whether the last look-up of a key and the last report of the instance succeeded.
             * @example ok
             * @enum {string}
             */
            postgres: "ok" | "down";
        };
        /** @description Send a JSON object with at least `name`. */
        CreateUserBody: {
            /**
             * @description A label for people, stored as sent. It must not contain an API key. Send 1 to 255 characters, not only blanks, without control characters or lone surrogates.
             * @example nightly export
             */
            name: string;
            /**
             * @description What your own system calls this user. No two users have the same. Send 1 to 255 characters, not only blanks, without control characters or lone surrogates.
             * @example crm-7
             */
            external_id?: string | null;
        };
        User: {
            /**
             * @description Begins with `usr_`.
             * @example usr_0mwpfal3g00000q7v0awobx4c0
             */
            id: string;
            /** @example Ada */
            name: string;
            /** @example crm-7 */
            external_id: string | null;
            /**
             * @description Unix seconds.
             * @example 1795205988
             */
            created_at: number;
            /** @description Unix seconds of the deletion; null if not deleted. */
            deleted_at: number | null;
        };
        UserList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["User"][];
            has_more: boolean;
            /** @description Send it as `starting_after` for the next page; null on the last one. */
            next_cursor: string | null;
        };
        /** @description Send a JSON object with at least one of `name` and `external_id`. */
        PatchUserBody: {
            /**
             * @description A label for people, stored as sent. It must not contain an API key. Send 1 to 255 characters, not only blanks, without control characters or lone surrogates.
             * @example nightly export
             */
            name?: string;
            /**
             * @description What your own system calls this user. No two users have the same. Send 1 to 255 characters, not only blanks, without control characters or lone surrogates.
             * @example crm-7
             */
            external_id?: string | null;
        };
        RevokedKeys: {
            /**
             * @description How many keys this request revoked.
             * @example 3
             */
            revoked: number;
        };
        /** @description Send a JSON object with at least `user_id` and `name`. */
        AdminCreateKeyBody: {
            /**
             * @description Begins with `usr_`. Send the id of a user.
             * @example usr_0mwpfal3g00000q7v0awobx4c0
             */
            user_id: string;
            /**
             * @description A label for people, stored as sent. It must not contain an API key. Send 1 to 255 characters, not only blanks, without control characters or lone surrogates.
             * @example nightly export
             */
            name: string;
            /**
             * @description Allowed requests per minute. Send a whole number from 1 to 1000000000, without quotes.
             * @example 60
             */
            rate_limit_rpm?: number;
            /**
             * @description Unix seconds from which the key is refused; null for no expiry. Send a time in the future and before 2100 in whole Unix seconds, or null for a key that does not expire.
             * @example 2051222400
             */
            expires_at?: number | null;
        };
        AdminCreatedKey: {
            /**
             * @description Begins with `apk_`.
             * @example apk_0mwpfalq000000q7v0awobx4c0
             */
            id: string;
            /** @example nightly export */
            name: string;
            /**
             * @description The first characters of the key, to recognise it by.
             * @example lk_6losLXU
             */
            key_prefix: string;
            /**
             * @description Allowed requests per minute.
             * @example 60
             */
            rate_limit_rpm: number;
            /** @description Unix seconds of the last use; null if never used. */
            last_used_at: number | null;
            /** @description Unix seconds from which the key is refused; null for never. */
            expires_at: number | null;
            /**
             * @description Unix seconds.
             * @example 1795205988
             */
            created_at: number;
            /** @description Unix seconds of the revocation; null if not revoked. */
            revoked_at: number | null;
            /**
             * @description The secret. Shown once, here.
             * @example lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8
             */
            plain_key: string;
            /**
             * @description Begins with `usr_`.
             * @example usr_0mwpfal3g00000q7v0awobx4c0
             */
            user_id: string;
        };
        AdminKey: {
            /**
             * @description Begins with `apk_`.
             * @example apk_0mwpfalq000000q7v0awobx4c0
             */
            id: string;
            /** @example nightly export */
            name: string;
            /**
             * @description The first characters of the key, to recognise it by.
             * @example lk_6losLXU
             */
            key_prefix: string;
            /**
             * @description Allowed requests per minute.
             * @example 60
             */
            rate_limit_rpm: number;
            /** @description Unix seconds of the last use; null if never used. */
            last_used_at: number | null;
            /** @description Unix seconds from which the key is refused; null for never. */
            expires_at: number | null;
            /**
             * @description Unix seconds.
             * @example 1795205988
             */
            created_at: number;
            /** @description Unix seconds of the revocation; null if not revoked. */
            revoked_at: number | null;
            /**
             * @description Begins with `usr_`.
             * @example usr_0mwpfal3g00000q7v0awobx4c0
             */
            user_id: string;
        };
        AdminKeyList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["AdminKey"][];
            has_more: boolean;
            /** @description Send it as `starting_after` for the next page; null on the last one. */
            next_cursor: string | null;
        };
        /** @description Send a JSON object with at least one of `name`, `rate_limit_rpm` and `expires_at`. */
        PatchKeyBody: {
            /**
             * @description A label for people, stored as sent. It must not contain an API key. Send 1 to 255 characters, not only blanks, without control characters or lone surrogates.
             * @example nightly export
             */
            name?: string;
            /**
             * @description Allowed requests per minute. Send a whole number from 1 to 1000000000, without quotes.
             * @example 60
             */
            rate_limit_rpm?: number;
            /**
             * @description Unix seconds from which the key is refused; null for no expiry. Send a time in the future and before 2100 in whole Unix seconds, or null for a key that does not expire.
             * @example 2051222400
             */
            expires_at?: number | null;
        };
        RotateKeyBody: {
            /**
             * @description Seconds for which the old key keeps working, unless it expires sooner; 0 revokes it at once. Send whole seconds from 0 to 31536000, or nothing to revoke the old key at once.
             * @example 3600
             */
            expires_in?: number;
        };
        /** @description Send a JSON object with at least `text`. */
        ScanBody: {
            /**
             * @description Anything that may contain keys: a file, a log, a diff. Send at most 1048576 characters; `latchkey keys scan` takes files of any size.
             * @example API_KEY=lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8
             */
            text: string;
            /** @description Whether to revoke the keys found. Send true or false, or nothing to only look. */
            revoke?: boolean;
        };
        ScanResult: {
            /** @description Those of this service, each once. */
            keys: {
                /**
                 * @description Begins with `apk_`.
                 * @example apk_0mwpfalq000000q7v0awobx4c0
                 */
                id: string;
                /**
                 * @description The first characters of the key.
                 * @example lk_6losLXU
                 */
                key_prefix: string;
                /**
                 * @description Begins with `usr_`.
                 * @example usr_0mwpfal3g00000q7v0awobx4c0
                 */
                user_id: string;
                /**
                 * @description After the scan. A key that is `active` still works.
                 * @enum {string}
                 */
                state: "active" | "revoked" | "expired" | "owner_deleted";
                /** @description Whether this scan revoked it. */
                revoked: boolean;
            }[];
            /**
             * @description How many other tokens have the right shape and checksum: perhaps of another environment.
             * @example 0
             */
            unknown: number;
        };
        /** @description Send an array of matches as GitHub does. */
        GithubScanBody: ({
            /**
             * @description What the pattern matched.
             * @example lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8
             */
            token: string;
            /**
             * @description The name under which GitHub knows the pattern.
             * @example latchkey_api_key
             */
            type: string;
            /**
             * @description Where it was found. May be empty.
             * @example https://github.com/octocat/hello/blob/main/config.env
             */
            url?: string | null;
            /**
             * @description What it was found in.
             * @example content
             */
            source?: string | null;
        } & {
            [key: string]: unknown;
        })[];
        /** @description One for each match, in the same order. */
        GithubScanResult: {
            /**
             * @description The SHA-256 of the token, in hexadecimal.
             * @example 3f7b2a0c5d1e4f6890abcdef1234567890abcdef1234567890abcdef12345678
             */
            token_hash: string;
            /**
             * @description The `type` of the match.
             * @example latchkey_api_key
             */
            token_type: string;
            /**
             * @description Whether the token is a key of this service, in whatever state.
             * @enum {string}
             */
            label: "true_positive" | "false_positive";
        }[];
        Usage: {
            /** @constant */
            object: "usage";
            /**
             * @description Begins with `apk_`.
             * @example apk_0mwpfalq000000q7v0awobx4c0
             */
            key_id: string;
            /** @enum {string} */
            step: "minute" | "hour" | "day";
            /**
             * @description Unix seconds at which the first step begins.
             * @example 1795319160
             */
            since: number;
            /**
             * @description Unix seconds at which the last step ends.
             * @example 1795322760
             */
            until: number;
            /** @description Oldest first. Steps without requests are left out. */
            data: {
                /**
                 * @description Unix seconds at which the step begins.
                 * @example 1795322700
                 */
                start: number;
                /**
                 * @description Requests with this key, those over its limit included.
                 * @example 64
                 */
                requests: number;
                /**
                 * @description Those of them that were over the limit of their minute.
                 * @example 4
                 */
                limited: number;
            }[];
            /** @description The starts of the steps whose numbers may be too low: some requests were not stored, or are no longer stored. */
            incomplete: number[];
        };
        AuditEntry: {
            /**
             * @description Begins with `aud_`.
             * @example aud_0mwpfiltg0000056vp5cg366jr
             */
            id: string;
            /**
             * @description ISO 8601 with milliseconds, UTC.
             * @example 2026-11-20T20:26:01.594Z
             */
            occurred_at: string;
            /** @example req_0mwpfiltf0000056vp5cg366jr */
            request_id: string;
            /** @enum {string} */
            event: "auth.refused" | "operator.refused" | "key.created" | "key.updated" | "key.rotated" | "key.revoked" | "user.created" | "user.updated" | "user.keys_revoked" | "user.deleted";
            /** @enum {string|null} */
            reason: "missing_header" | "wrong_scheme" | "wrong_prefix" | "unknown_key" | "revoked" | "expired" | "owner_deleted" | "missing_token" | "wrong_token" | "foreign_origin" | "foreign_host" | "missing_signature" | "unknown_signer" | "wrong_signature" | null;
            key_id: string | null;
            user_id: string | null;
            /** @description Who made a change: `key:apk_…`, `operator:<name>`, `cli:<os user>` or `partner:github`; null for refusals. */
            actor: string | null;
            method: string | null;
            path: string | null;
            ip: string | null;
            user_agent: string | null;
            details: {
                [key: string]: unknown;
            } | null;
        };
        AuditList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["AuditEntry"][];
            has_more: boolean;
            /** @description Send it as `starting_after` for the next page; null on the last one. */
            next_cursor: string | null;
        };
        LookupBody: {
            /**
             * @description Send a key, the beginning of a key, an id (`apk_`, `usr_` or `req_`), or an external id.
             * @example usr_0mwpfal3g00000q7v0awobx4c0
             */
            query: string;
        };
        FoundKey: {
            /** @constant */
            type: "key";
            /** @enum {string} */
            state: "active" | "revoked" | "expired" | "owner_deleted";
            key: components["schemas"]["AdminKey"];
            user: components["schemas"]["User"];
            counters?: {
                /**
                 * @description redis: all instances. local: at least one Redis server does not count or answer, and the counts are what this instance knows. memory: there is no Redis.
                 * @enum {string}
                 */
                source: "redis" | "local" | "memory";
                current: {
                    /**
                     * @description When the minute began, Unix seconds.
                     * @example 1795323180
                     */
                    minute: number;
                    /**
                     * @description Requests in the minute, including those beyond the limit.
                     * @example 1012
                     */
                    used: number;
                    /**
                     * @description Allowed requests per minute.
                     * @example 1000
                     */
                    limit: number | null;
                    /**
                     * @description Requests beyond the present limit. After a change of the limit, not how many were refused.
                     * @example 12
                     */
                    limited: number | null;
                    /**
                     * @description Whether this instance has noticed that requests of the minute are missing: Redis has lost counts, or was down for this instance or another, or a process that counted in memory was killed. Counts are then lower bounds.
                     * @example false
                     */
                    lost: boolean;
                };
                last: {
                    /**
                     * @description When the minute began, Unix seconds.
                     * @example 1795323180
                     */
                    minute: number;
                    /**
                     * @description Requests in the minute, including those beyond the limit.
                     * @example 1012
                     */
                    used: number;
                    /**
                     * @description Allowed requests per minute.
                     * @example 1000
                     */
                    limit: number | null;
                    /**
                     * @description Requests beyond the present limit. After a change of the limit, not how many were refused.
                     * @example 12
                     */
                    limited: number | null;
                    /**
                     * @description Whether this instance has noticed that requests of the minute are missing: Redis has lost counts, or was down for this instance or another, or a process that counted in memory was killed. Counts are then lower bounds.
                     * @example false
                     */
                    lost: boolean;
                };
            };
            refusals: components["schemas"]["AuditEntry"][];
        };
        FoundKeys: {
            /** @constant */
            type: "keys";
            keys: components["schemas"]["AdminKey"][];
        };
        FoundUser: {
            /** @constant */
            type: "user";
            /** @enum {string} */
            state: "active" | "deleted";
            user: components["schemas"]["User"];
            refusals: components["schemas"]["AuditEntry"][];
        };
        FoundRequest: {
            /** @constant */
            type: "request";
            /** @enum {string} */
            state?: "active" | "revoked" | "expired" | "owner_deleted";
            key?: components["schemas"]["AdminKey"];
            user?: components["schemas"]["User"];
            entries: components["schemas"]["AuditEntry"][];
            /** @description Whether the audit log has more entries of it. */
            has_more: boolean;
        };
        Lookup: components["schemas"]["FoundKey"] | components["schemas"]["FoundKeys"] | components["schemas"]["FoundUser"] | components["schemas"]["FoundRequest"];
        Counters: {
            /**
             * @description When the minute began, Unix seconds.
             * @example 1795323180
             */
            minute: number;
            /**
             * @description When it ends, Unix seconds.
             * @example 1795323240
             */
            resets_at: number;
            /**
             * @description No count is older than this, if `complete`. Unix seconds.
             * @example 1795323202
             */
            as_of: number;
            /**
             * @description redis: all instances. local: at least one Redis server does not count or answer, and the counts are what this instance knows. memory: there is no Redis.
             * @enum {string}
             */
            source: "redis" | "local" | "memory";
            /**
             * @description Whether all counters of the minute have been read.
             * @example true
             */
            complete: boolean;
            /**
             * @description Counters read so far.
             * @example 5120
             */
            scanned: number;
            /**
             * @description Why a Redis server was not read, as in `latchkey_redis_degraded_cause`.
             * @example null
             * @enum {string|null}
             */
            fault: "wrong_password" | "no_permission" | "certificate" | "tls" | "unknown_host" | "refused" | "unreachable" | "disconnected" | "timeout" | "loading" | "read_only" | "out_of_memory" | "cluster_down" | "other" | null;
            /**
             * @description Whether this instance has noticed that requests of the minute are missing: Redis has lost counts, or was down for this instance or another, or a process that counted in memory was killed. Counts are then lower bounds.
             * @example false
             */
            lost: boolean;
            /**
             * @description Whether Postgres answered. If not, keys have only an id and a count, sorted by use.
             * @example true
             */
            named: boolean;
            keys: {
                /** @example apk_0mwrd2g2s00000ea31nqggsiwl */
                id: string;
                /** @example nightly export */
                name: string | null;
                /** @example lk_6losLXU */
                key_prefix: string | null;
                /** @example usr_0mwrd2g2o00000ea31nqggsiwl */
                user_id: string | null;
                /** @example Ada */
                user_name: string | null;
                /**
                 * @description Requests in the minute, including those beyond the limit.
                 * @example 1012
                 */
                used: number;
                /**
                 * @description Allowed requests per minute.
                 * @example 1000
                 */
                limit: number | null;
                /**
                 * @description Requests beyond the present limit. After a change of the limit, not how many were refused.
                 * @example 12
                 */
                limited: number | null;
            }[];
        };
        InstanceList: {
            /**
             * @description Whether Postgres answered. If not, only the instance that was asked is here.
             * @example true
             */
            complete: boolean;
            instances: {
                /** @example ins_0mwrd2g2s00000ea31nqggsiwl */
                id: string;
                /** @example 0.1.0 */
                version: string;
                /**
                 * @description Unix seconds.
                 * @example 1795323180
                 */
                started_at: number;
                /**
                 * @description When it last reported itself, Unix seconds.
                 * @example 1795323180
                 */
                seen_at: number;
                /**
                 * @description Seconds since then, by the clock of Postgres, as the other times are.
                 * @example 0
                 */
                silent_s: number;
                /**
                 * @description Whether it reported itself in the last 5 s.
                 * @example true
                 */
                alive: boolean;
                /**
                 * @description How the instance counts: in Redis, on its own because a Redis server is down, or without Redis.
                 * @example shared
                 * @enum {string}
                 */
                redis: "shared" | "local" | "memory";
                /**
                 * @description Whether the last look-up of a key and the last report of the instance succeeded.
                 * @example ok
                 * @enum {string}
                 */
                postgres: "ok" | "down";
            }[];
        };
        /**
         * @description An OpenAPI 3.1 document.
         * @example {
         *       "openapi": "3.1.0"
         *     }
         */
        OpenApiDocument: {
            [key: string]: unknown;
        };
        ErrorEnvelope: {
            error: {
                /**
                 * @description The family of the error.
                 * @enum {string}
                 */
                type: "invalid_request_error" | "authentication_error" | "not_found_error" | "conflict_error" | "rate_limit_error" | "api_error";
                /**
                 * @description The exact error, for programs.
                 * @enum {string}
                 */
                code: "invalid_json" | "missing_parameter" | "unknown_parameter" | "invalid_parameter" | "bad_request" | "unauthorized" | "operator_unauthorized" | "not_found" | "route_not_found" | "method_not_allowed" | "request_timeout" | "key_not_active" | "key_already_rotated" | "key_limit_reached" | "external_id_taken" | "payload_too_large" | "unsupported_media_type" | "rate_limit_exceeded" | "headers_too_large" | "internal_error" | "service_unavailable";
                /** @description What happened, for a person. */
                message: string;
                /** @description The field that the error is about, as a dotted path; "" if there is none. */
                param: string;
                /**
                 * Format: uri
                 * @description A page about this code.
                 */
                docs_url: string;
                /** @description The same as the x-request-id header. */
                request_id: string;
                /** @description What to do about it, for a person. */
                suggestion: string;
            };
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export interface operations {
    healthz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Say that the process is alive */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "status": "ok"
                     *     }
                     */
                    "application/json": components["schemas"]["Alive"];
                };
            };
        };
    };
    readyz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Say whether to send requests here */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "status": "ready",
                     *       "redis": "local",
                     *       "redis_cause": "refused",
                     *       "postgres": "ok"
                     *     }
                     */
                    "application/json": components["schemas"]["Readiness"];
                };
            };
        };
    };
    metrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Metrics for Prometheus */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /** @example latchkey_redis_degraded 0 */
                    "text/plain": string;
                };
            };
        };
    };
    listUsers: {
        parameters: {
            query?: {
                /**
                 * @description What your own system calls this user. No two users have the same. Send 1 to 255 characters, not only blanks, without control characters or lone surrogates.
                 * @example crm-7
                 */
                external_id?: string;
                /** @description Entries in one page. Send a whole number from 1 to 100, once. */
                limit?: number;
                /** @description Send the `next_cursor` of the previous page, once. */
                starting_after?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description List users */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "object": "list",
                     *       "data": [
                     *         {
                     *           "id": "usr_0mwpfal3g00000q7v0awobx4c0",
                     *           "name": "Ada",
                     *           "external_id": "crm-7",
                     *           "created_at": 1795205988,
                     *           "deleted_at": null
                     *         }
                     *       ],
                     *       "has_more": false,
                     *       "next_cursor": null
                     *     }
                     */
                    "application/json": components["schemas"]["UserList"];
                };
            };
        };
    };
    createUser: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "name": "nightly export",
                 *       "external_id": "crm-7"
                 *     }
                 */
                "application/json": components["schemas"]["CreateUserBody"];
            };
        };
        responses: {
            /** @description Create a user */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "usr_0mwpfal3g00000q7v0awobx4c0",
                     *       "name": "Ada",
                     *       "external_id": "crm-7",
                     *       "created_at": 1795205988,
                     *       "deleted_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["User"];
                };
            };
        };
    };
    getUser: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description Begins with `usr_`.
                 * @example usr_0mwpfal3g00000q7v0awobx4c0
                 */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Get a user */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "usr_0mwpfal3g00000q7v0awobx4c0",
                     *       "name": "Ada",
                     *       "external_id": "crm-7",
                     *       "created_at": 1795205988,
                     *       "deleted_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["User"];
                };
            };
        };
    };
    deleteUser: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description Begins with `usr_`.
                 * @example usr_0mwpfal3g00000q7v0awobx4c0
                 */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Delete a user */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "usr_0mwpfal3g00000q7v0awobx4c0",
                     *       "name": "Ada",
                     *       "external_id": "crm-7",
                     *       "created_at": 1795205988,
                     *       "deleted_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["User"];
                };
            };
        };
    };
    updateUser: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description Begins with `usr_`.
                 * @example usr_0mwpfal3g00000q7v0awobx4c0
                 */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "name": "nightly export",
                 *       "external_id": "crm-7"
                 *     }
                 */
                "application/json": components["schemas"]["PatchUserBody"];
            };
        };
        responses: {
            /** @description Change a user */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "usr_0mwpfal3g00000q7v0awobx4c0",
                     *       "name": "Ada",
                     *       "external_id": "crm-7",
                     *       "created_at": 1795205988,
                     *       "deleted_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["User"];
                };
            };
        };
    };
    revokeKeysOfUser: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description Begins with `usr_`.
                 * @example usr_0mwpfal3g00000q7v0awobx4c0
                 */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Revoke all keys of a user */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "revoked": 3
                     *     }
                     */
                    "application/json": components["schemas"]["RevokedKeys"];
                };
            };
        };
    };
    listKeys: {
        parameters: {
            query?: {
                /** @description Entries in one page. Send a whole number from 1 to 100, once. */
                limit?: number;
                /** @description Send the `next_cursor` of the previous page, once. */
                starting_after?: string;
                /** @description Only keys in this state. Send one of active, revoked, expired, once. */
                status?: "active" | "revoked" | "expired";
                /** @description Send one id that begins with `usr_`. */
                user_id?: string;
                /** @description Only keys with this `key_prefix`. Send the `key_prefix` of a key, once: its first characters, never a whole key. */
                key_prefix?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description List keys of any user */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "object": "list",
                     *       "data": [
                     *         {
                     *           "id": "apk_0mwpfalq000000q7v0awobx4c0",
                     *           "name": "nightly export",
                     *           "key_prefix": "lk_6losLXU",
                     *           "rate_limit_rpm": 60,
                     *           "last_used_at": null,
                     *           "expires_at": null,
                     *           "created_at": 1795205988,
                     *           "revoked_at": null,
                     *           "user_id": "usr_0mwpfal3g00000q7v0awobx4c0"
                     *         }
                     *       ],
                     *       "has_more": false,
                     *       "next_cursor": null
                     *     }
                     */
                    "application/json": components["schemas"]["AdminKeyList"];
                };
            };
        };
    };
    createKey: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "user_id": "usr_0mwpfal3g00000q7v0awobx4c0",
                 *       "name": "nightly export",
                 *       "rate_limit_rpm": 60,
                 *       "expires_at": 2051222400
                 *     }
                 */
                "application/json": components["schemas"]["AdminCreateKeyBody"];
            };
        };
        responses: {
            /** @description Create a key for a user */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "apk_0mwpfalq000000q7v0awobx4c0",
                     *       "name": "nightly export",
                     *       "key_prefix": "lk_6losLXU",
                     *       "rate_limit_rpm": 60,
                     *       "last_used_at": null,
                     *       "expires_at": null,
                     *       "created_at": 1795205988,
                     *       "revoked_at": null,
                     *       "plain_key": "lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8",
                     *       "user_id": "usr_0mwpfal3g00000q7v0awobx4c0"
                     *     }
                     */
                    "application/json": components["schemas"]["AdminCreatedKey"];
                };
            };
        };
    };
    getKey: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description Begins with `apk_`.
                 * @example apk_0mwpfalq000000q7v0awobx4c0
                 */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Get a key */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "apk_0mwpfalq000000q7v0awobx4c0",
                     *       "name": "nightly export",
                     *       "key_prefix": "lk_6losLXU",
                     *       "rate_limit_rpm": 60,
                     *       "last_used_at": null,
                     *       "expires_at": null,
                     *       "created_at": 1795205988,
                     *       "revoked_at": null,
                     *       "user_id": "usr_0mwpfal3g00000q7v0awobx4c0"
                     *     }
                     */
                    "application/json": components["schemas"]["AdminKey"];
                };
            };
        };
    };
    revokeKey: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description Begins with `apk_`.
                 * @example apk_0mwpfalq000000q7v0awobx4c0
                 */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Revoke a key */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "apk_0mwpfalq000000q7v0awobx4c0",
                     *       "name": "nightly export",
                     *       "key_prefix": "lk_6losLXU",
                     *       "rate_limit_rpm": 60,
                     *       "last_used_at": null,
                     *       "expires_at": null,
                     *       "created_at": 1795205988,
                     *       "revoked_at": null,
                     *       "user_id": "usr_0mwpfal3g00000q7v0awobx4c0"
                     *     }
                     */
                    "application/json": components["schemas"]["AdminKey"];
                };
            };
        };
    };
    updateKey: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description Begins with `apk_`.
                 * @example apk_0mwpfalq000000q7v0awobx4c0
                 */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "name": "nightly export",
                 *       "rate_limit_rpm": 60,
                 *       "expires_at": 2051222400
                 *     }
                 */
                "application/json": components["schemas"]["PatchKeyBody"];
            };
        };
        responses: {
            /** @description Change a key */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "apk_0mwpfalq000000q7v0awobx4c0",
                     *       "name": "nightly export",
                     *       "key_prefix": "lk_6losLXU",
                     *       "rate_limit_rpm": 60,
                     *       "last_used_at": null,
                     *       "expires_at": null,
                     *       "created_at": 1795205988,
                     *       "revoked_at": null,
                     *       "user_id": "usr_0mwpfal3g00000q7v0awobx4c0"
                     *     }
                     */
                    "application/json": components["schemas"]["AdminKey"];
                };
            };
        };
    };
    rotateKey: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description Begins with `apk_`.
                 * @example apk_0mwpfalq000000q7v0awobx4c0
                 */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                /**
                 * @example {
                 *       "expires_in": 3600
                 *     }
                 */
                "application/json": components["schemas"]["RotateKeyBody"];
            };
        };
        responses: {
            /** @description Rotate a key */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "apk_0mwpfalq000000q7v0awobx4c0",
                     *       "name": "nightly export",
                     *       "key_prefix": "lk_6losLXU",
                     *       "rate_limit_rpm": 60,
                     *       "last_used_at": null,
                     *       "expires_at": null,
                     *       "created_at": 1795205988,
                     *       "revoked_at": null,
                     *       "plain_key": "lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8",
                     *       "user_id": "usr_0mwpfal3g00000q7v0awobx4c0"
                     *     }
                     */
                    "application/json": components["schemas"]["AdminCreatedKey"];
                };
            };
        };
    };
    scanForKeys: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "text": "API_KEY=lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8",
                 *       "revoke": false
                 *     }
                 */
                "application/json": components["schemas"]["ScanBody"];
            };
        };
        responses: {
            /** @description Find leaked keys in a text */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "keys": [
                     *         {
                     *           "id": "apk_0mwpfalq000000q7v0awobx4c0",
                     *           "key_prefix": "lk_6losLXU",
                     *           "user_id": "usr_0mwpfal3g00000q7v0awobx4c0",
                     *           "state": "active",
                     *           "revoked": false
                     *         }
                     *       ],
                     *       "unknown": 0
                     *     }
                     */
                    "application/json": components["schemas"]["ScanResult"];
                };
            };
        };
    };
    revokeReportedKeys: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example [
                 *       {
                 *         "token": "lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8",
                 *         "type": "latchkey_api_key",
                 *         "url": "https://github.com/octocat/hello/blob/main/config.env",
                 *         "source": "content"
                 *       }
                 *     ]
                 */
                "application/json": components["schemas"]["GithubScanBody"];
            };
        };
        responses: {
            /** @description Revoke keys that GitHub has found */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example [
                     *       {
                     *         "token_hash": "3f7b2a0c5d1e4f6890abcdef1234567890abcdef1234567890abcdef12345678",
                     *         "token_type": "latchkey_api_key",
                     *         "label": "true_positive"
                     *       }
                     *     ]
                     */
                    "application/json": components["schemas"]["GithubScanResult"];
                };
            };
        };
    };
    getKeyUsage: {
        parameters: {
            query?: {
                /** @description Unix seconds. Default: 60 minutes, 48 hours or 30 days before `until`. Send whole Unix seconds, once. */
                since?: number;
                /** @description Unix seconds: only steps that begin before. Default: now. Send whole Unix seconds, once. */
                until?: number;
                /** @description The length of a step. Default: minute. Send one of minute, hour, day, once. */
                step?: "minute" | "hour" | "day";
            };
            header?: never;
            path: {
                /**
                 * @description Begins with `apk_`.
                 * @example apk_0mwpfalq000000q7v0awobx4c0
                 */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Get the usage of any key */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "object": "usage",
                     *       "key_id": "apk_0mwpfalq000000q7v0awobx4c0",
                     *       "step": "minute",
                     *       "since": 1795319160,
                     *       "until": 1795322760,
                     *       "data": [
                     *         {
                     *           "start": 1795322700,
                     *           "requests": 64,
                     *           "limited": 4
                     *         }
                     *       ],
                     *       "incomplete": [
                     *         1795320000
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Usage"];
                };
            };
        };
    };
    listAuditEntries: {
        parameters: {
            query?: {
                /** @description Send one request id, as in a response's `x-request-id`. */
                request_id?: string;
                /** @description Send one id that begins with `apk_`. */
                key_id?: string;
                /** @description Send one id that begins with `usr_`. */
                user_id?: string;
                /** @description Send one of missing_header, wrong_scheme, wrong_prefix, unknown_key, revoked, expired, owner_deleted, missing_token, wrong_token, foreign_origin, foreign_host, missing_signature, unknown_signer, wrong_signature, once. */
                reason?: "missing_header" | "wrong_scheme" | "wrong_prefix" | "unknown_key" | "revoked" | "expired" | "owner_deleted" | "missing_token" | "wrong_token" | "foreign_origin" | "foreign_host" | "missing_signature" | "unknown_signer" | "wrong_signature";
                /** @description Send one of auth.refused, operator.refused, key.created, key.updated, key.rotated, key.revoked, user.created, user.updated, user.keys_revoked, user.deleted, once. */
                event?: "auth.refused" | "operator.refused" | "key.created" | "key.updated" | "key.rotated" | "key.revoked" | "user.created" | "user.updated" | "user.keys_revoked" | "user.deleted";
                /** @description Unix seconds: only entries from then on. Send whole Unix seconds, once. */
                since?: number;
                /** @description Unix seconds: only entries before. Send whole Unix seconds, once. */
                until?: number;
                /** @description Entries in one page. Send a whole number from 1 to 100, once. */
                limit?: number;
                /** @description Send the `next_cursor` of the previous page, once. */
                starting_after?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description List the audit log */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "object": "list",
                     *       "data": [
                     *         {
                     *           "id": "aud_0mwpfiltg0000056vp5cg366jr",
                     *           "occurred_at": "2026-11-20T20:26:01.594Z",
                     *           "request_id": "req_0mwpfiltf0000056vp5cg366jr",
                     *           "event": "auth.refused",
                     *           "reason": "missing_header",
                     *           "key_id": null,
                     *           "user_id": null,
                     *           "actor": null,
                     *           "method": null,
                     *           "path": null,
                     *           "ip": null,
                     *           "user_agent": null,
                     *           "details": null
                     *         }
                     *       ],
                     *       "has_more": false,
                     *       "next_cursor": null
                     *     }
                     */
                    "application/json": components["schemas"]["AuditList"];
                };
            };
        };
    };
    lookup: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "query": "usr_0mwpfal3g00000q7v0awobx4c0"
                 *     }
                 */
                "application/json": components["schemas"]["LookupBody"];
            };
        };
        responses: {
            /** @description Find out what something is */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "type": "key",
                     *       "state": "active",
                     *       "key": {
                     *         "id": "apk_0mwpfalq000000q7v0awobx4c0",
                     *         "name": "nightly export",
                     *         "key_prefix": "lk_6losLXU",
                     *         "rate_limit_rpm": 60,
                     *         "last_used_at": null,
                     *         "expires_at": null,
                     *         "created_at": 1795205988,
                     *         "revoked_at": null,
                     *         "user_id": "usr_0mwpfal3g00000q7v0awobx4c0"
                     *       },
                     *       "user": {
                     *         "id": "usr_0mwpfal3g00000q7v0awobx4c0",
                     *         "name": "Ada",
                     *         "external_id": "crm-7",
                     *         "created_at": 1795205988,
                     *         "deleted_at": null
                     *       },
                     *       "counters": {
                     *         "source": "redis",
                     *         "current": {
                     *           "minute": 1795323180,
                     *           "used": 1012,
                     *           "limit": 1000,
                     *           "limited": 12,
                     *           "lost": false
                     *         },
                     *         "last": {
                     *           "minute": 1795323180,
                     *           "used": 1012,
                     *           "limit": 1000,
                     *           "limited": 12,
                     *           "lost": false
                     *         }
                     *       },
                     *       "refusals": [
                     *         {
                     *           "id": "aud_0mwpfiltg0000056vp5cg366jr",
                     *           "occurred_at": "2026-11-20T20:26:01.594Z",
                     *           "request_id": "req_0mwpfiltf0000056vp5cg366jr",
                     *           "event": "auth.refused",
                     *           "reason": "missing_header",
                     *           "key_id": null,
                     *           "user_id": null,
                     *           "actor": null,
                     *           "method": null,
                     *           "path": null,
                     *           "ip": null,
                     *           "user_agent": null,
                     *           "details": null
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Lookup"];
                };
            };
        };
    };
    listCounters: {
        parameters: {
            query?: {
                /** @description Send one of current, last, once. */
                minute?: "current" | "last";
                /** @description Send one of used, share, once. */
                sort?: "used" | "share";
                /** @description Entries in one page. Send a whole number from 1 to 100, once. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description List the busiest keys of a minute */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "minute": 1795323180,
                     *       "resets_at": 1795323240,
                     *       "as_of": 1795323202,
                     *       "source": "redis",
                     *       "complete": true,
                     *       "scanned": 5120,
                     *       "fault": null,
                     *       "lost": false,
                     *       "named": true,
                     *       "keys": [
                     *         {
                     *           "id": "apk_0mwrd2g2s00000ea31nqggsiwl",
                     *           "name": "nightly export",
                     *           "key_prefix": "lk_6losLXU",
                     *           "user_id": "usr_0mwrd2g2o00000ea31nqggsiwl",
                     *           "user_name": "Ada",
                     *           "used": 1012,
                     *           "limit": 1000,
                     *           "limited": 12
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Counters"];
                };
            };
        };
    };
    listInstances: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description List the running instances */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "complete": true,
                     *       "instances": [
                     *         {
                     *           "id": "ins_0mwrd2g2s00000ea31nqggsiwl",
                     *           "version": "0.1.0",
                     *           "started_at": 1795323180,
                     *           "seen_at": 1795323180,
                     *           "silent_s": 0,
                     *           "alive": true,
                     *           "redis": "shared",
                     *           "postgres": "ok"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["InstanceList"];
                };
            };
        };
    };
    watchEvents: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Watch what the dashboard shows */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example event: servers
                     *     data: {"redis":"shared","postgres":"ok"}
                     */
                    "text/event-stream": string;
                };
            };
        };
    };
    getDocument: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Get this document */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "openapi": "3.1.0"
                     *     }
                     */
                    "application/json": components["schemas"]["OpenApiDocument"];
                };
            };
        };
    };
}
