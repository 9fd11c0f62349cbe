/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `hvdrun --http` answers to a request, and to whom.  Pure.
 *
 * Only GET and HEAD are answered, and all but /healthz only to those who know
 * the token.
 */
#ifndef HVD_JOB_SERVE_REQUEST_H
#define HVD_JOB_SERVE_REQUEST_H

#include "lib/base/buf.h"
#include "lib/base/error.h"

enum {
    SERVE_TOKEN_MIN = 16, /* characters of a token that the user chooses */
    SERVE_TOKEN_MAX = 256,
    SERVE_TOKEN_RANDOM = 32, /* hex digits of one that hvdrun makes */
};

struct serve_request {
    const char *method, *path;
    const char *authorization; /* the header; NULL: there is none */
    const char *token;         /* of the query; NULL: there is none */
};

enum serve_page {
    SERVE_HEALTH,  /* /healthz */
    SERVE_LIVE,    /* / */
    SERVE_EVENTS,  /* /events: what the page shows, as it changes */
    SERVE_JSON,    /* /job.json */
    SERVE_METRICS, /* /metrics */
};

/* Decides what a request gets, if `token` is the right one.  Returns 200 with
 * *page set, or the status of a refusal: 401, 404 or 405. */
int serve_request_check(const struct serve_request *q, const char *token,
                        enum serve_page *page);

/* Checks a token that the user has chosen: 0, or -HVD_EINVAL with err set. */
int serve_token_check(const char *token, struct hb_error *err);
/* Makes a random token: 0, or negative with err set. */
int serve_token_make(char token[SERVE_TOKEN_RANDOM + 1], struct hb_error *err);

/* Appends a server-sent event.  Running out of memory ends the program. */
void serve_event(struct hb_buf *out, const char *name, const char *text);

#endif
