/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP requests of Horovod's ranks.  What the parser says of all bytes, it says
 * of the head alone, and it waits for more before the head ends.  What it
 * accepts, written anew in its simplest form, means the same.
 */
#include "lib/agent/horovod/http.h"
#include "tests/fuzz/fuzz.h"

static void check_request(const struct http_request *r)
{
    static const char *const methods[] = {
        [HTTP_GET] = "GET", [HTTP_PUT] = "PUT", [HTTP_DELETE] = "DELETE"};
    struct http_request again;
    char text[HTTP_HEAD_MAX];
    int n;

    FUZZ_CHECK(r->method >= HTTP_GET && r->method <= HTTP_DELETE);
    FUZZ_CHECK(strlen(r->scope) > 0 && strlen(r->scope) < HTTP_NAME_BYTES);
    FUZZ_CHECK(strlen(r->key) > 0 && strlen(r->key) < HTTP_NAME_BYTES);
    FUZZ_CHECK(r->body_len <= HTTP_BODY_MAX);
    FUZZ_CHECK(r->head_len <= HTTP_HEAD_MAX);
    fuzz_check_text(r->scope);
    fuzz_check_text(r->key);
    n = snprintf(text, sizeof(text),
                 "%s /%s/%s HTTP/1.1\r\nContent-Length: %zu\r\n\r\n",
                 methods[r->method], r->scope, r->key, r->body_len);
    FUZZ_CHECK(http_parse(text, (size_t)n, &again) == 1);
    FUZZ_CHECK(again.method == r->method && again.body_len == r->body_len &&
               strcmp(again.scope, r->scope) == 0 &&
               strcmp(again.key, r->key) == 0);
}

static void check_refusal(int code)
{
    char head[HTTP_REPLY_HEAD_MAX];
    size_t len = http_reply_head(head, code, 0);

    FUZZ_CHECK(code >= 400 && code < 600);
    FUZZ_CHECK(len < sizeof(head) && len == strlen(head));
}

/* Returns the length of the head with its empty line, or 0. */
static size_t find_head(const char *bytes, size_t size)
{
    for (size_t i = 4; i <= size && i <= HTTP_HEAD_MAX; i++)
        if (memcmp(bytes + i - 4, "\r\n\r\n", 4) == 0)
            return i;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_request r, short_r;
    char *copy, *alone;
    size_t head;
    int rc;

    if (size == 0)
        return 0;
    copy = fuzz_copy(data, size);
    rc = http_parse(copy, size, &r);
    head = find_head(copy, size);
    FUZZ_CHECK((rc == 0) == (head == 0 && size < HTTP_HEAD_MAX));
    if (rc < 0)
        check_refusal(-rc);
    if (head > 0) {
        alone = fuzz_copy(copy, head);
        FUZZ_CHECK(http_parse(alone, head - 1, &short_r) == 0);
        FUZZ_CHECK(http_parse(alone, head, &short_r) == rc);
        free(alone);
    }
    if (rc > 0) {
        FUZZ_CHECK(r.head_len == head);
        check_request(&r);
    }
    free(copy);
    return 0;
}
