/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for the status; see serve_request.h. */
#include "lib/job/serve/serve_request.h"

#include "lib/base/alloc.h"
#include "lib/job/output/xbuf.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

static const struct {
    const char *path;
    enum serve_page page;
} pages[] = {
    {"/healthz", SERVE_HEALTH},  {"/", SERVE_LIVE},
    {"/events", SERVE_EVENTS},   {"/job.json", SERVE_JSON},
    {"/metrics", SERVE_METRICS},
};

/* ---- Tokens ---- */

/* Compares two tokens in a time that tells nothing but their lengths. */
static int is_token(const char *given, const char *token)
{
    size_t len = strlen(token);

    return given && strlen(given) == len &&
           sodium_memcmp(given, token, len) == 0;
}

/* Returns the token of the header "Bearer TOKEN"; NULL: it is another one. */
static const char *bearer(const char *authorization)
{
    static const char scheme[] = "Bearer ";

    if (!authorization ||
        strncasecmp(authorization, scheme, sizeof(scheme) - 1) != 0)
        return NULL;
    authorization += sizeof(scheme) - 1;
    return authorization + strspn(authorization, " ");
}

int serve_token_check(const char *token, struct hb_error *err)
{
    size_t len = strlen(token);

    if (len >= SERVE_TOKEN_MIN && len <= SERVE_TOKEN_MAX &&
        strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                      "0123456789-_.~") == len)
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "the token must have %d to %d letters, digits, or "
                        "- _ . ~",
                        SERVE_TOKEN_MIN, SERVE_TOKEN_MAX);
}

int serve_token_make(char token[SERVE_TOKEN_RANDOM + 1], struct hb_error *err)
{
    unsigned char random[SERVE_TOKEN_RANDOM / 2];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return hb_error_sys(err, errno, "random bytes for a token");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    explicit_bzero(random, sizeof(random));
    return 0;
}

/* ---- Requests ---- */

int serve_request_check(const struct serve_request *q, const char *token,
                        enum serve_page *page)
{
    int may =
        is_token(q->token, token) || is_token(bearer(q->authorization), token);

    if (strcmp(q->method, "GET") != 0 && strcmp(q->method, "HEAD") != 0)
        return 405;
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        if (strcmp(q->path, pages[i].path) != 0)
            continue;
        if (!may && pages[i].page != SERVE_HEALTH)
            return 401;
        *page = pages[i].page;
        return 200;
    }
    return may ? 404 : 401;
}

/* ---- Events ---- */

void serve_event(struct hb_buf *out, const char *name, const char *text)
{
    hb_must(hb_buf_printf(out, "event: %s\n", name));
    for (;;) {
        size_t len = strcspn(text, "\r\n");

        xbuf_puts(out, "data: ");
        xbuf_append(out, text, len);
        xbuf_puts(out, "\n");
        text += len;
        if (!*text)
            break;
        text += text[0] == '\r' && text[1] == '\n' ? 2 : 1;
    }
    xbuf_puts(out, "\n");
}
