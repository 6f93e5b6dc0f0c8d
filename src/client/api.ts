// Made by `npm run generate` from the API document. Do not edit.
export interface components {
    schemas: {
        /**
         * @description An OpenAPI 3.1 document.
         * @example {
         *       "openapi": "3.1.0"
         *     }
         */
        OpenApiDocument: {
            [key: string]: unknown;
        };
        Verified: {
            /**
             * @description Begins with `apk_`.
             * @example apk_0mwpfalq000000q7v0awobx4c0
             */
            key_id: string;
            /**
             * @description Begins with `usr_`.
             * @example usr_0mwpfal3g00000q7v0awobx4c0
             */
            user_id: string;
            /** @example 60 */
            rate_limit_rpm: number;
            /** @description Unix seconds, or null. */
            expires_at: number | null;
        };
        /** @description Send a JSON object with at least `name`. */
        CreateKeyBody: {
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
        CreatedKey: {
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
        };
        Key: {
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
        };
        KeyList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["Key"][];
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
    verify: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Authenticate and count a request */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "key_id": "apk_0mwpfalq000000q7v0awobx4c0",
                     *       "user_id": "usr_0mwpfal3g00000q7v0awobx4c0",
                     *       "rate_limit_rpm": 60,
                     *       "expires_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["Verified"];
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
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description List keys */
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
                     *           "revoked_at": null
                     *         }
                     *       ],
                     *       "has_more": false,
                     *       "next_cursor": null
                     *     }
                     */
                    "application/json": components["schemas"]["KeyList"];
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
                 *       "name": "nightly export",
                 *       "rate_limit_rpm": 60,
                 *       "expires_at": 2051222400
                 *     }
                 */
                "application/json": components["schemas"]["CreateKeyBody"];
            };
        };
        responses: {
            /** @description Create a key */
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
                     *       "plain_key": "lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8"
                     *     }
                     */
                    "application/json": components["schemas"]["CreatedKey"];
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
                     *       "revoked_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["Key"];
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
                     *       "revoked_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["Key"];
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
                     *       "revoked_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["Key"];
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
                     *       "plain_key": "lk_6losLXUEssGyINc5iSAoyYqHITrdOwgy0oAdS8"
                     *     }
                     */
                    "application/json": components["schemas"]["CreatedKey"];
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
            /** @description Get the usage of a key */
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
}
