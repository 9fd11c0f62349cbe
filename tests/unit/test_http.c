/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/horovod/http.h: what is a request, and how it is refused. */
#include "lib/agent/horovod/http.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static struct http_request r;

static int parse(const char *text)
{
    return http_parse(text, strlen(text), &r);
}

/* The bytes of Horovod's client, as captured. */
START_TEST(requests_of_horovod)
{
    const char put[] = "PUT /global/rank_1 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                       "Content-Length: 2\r\n\r\nvm";

    ck_assert_int_eq(parse(put), 1);
    ck_assert_int_eq(r.method, HTTP_PUT);
    ck_assert_str_eq(r.scope, "global");
    ck_assert_str_eq(r.key, "rank_1");
    ck_assert_uint_eq(r.head_len, sizeof(put) - 1 - 2);
    ck_assert_uint_eq(r.body_len, 2);
    ck_assert_int_eq(parse("GET /local_n1_process_set_hash_7d48/0 HTTP/1.1\r\n"
                           "Host: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"),
                     1);
    ck_assert_int_eq(r.method, HTTP_GET);
    ck_assert_str_eq(r.scope, "local_n1_process_set_hash_7d48");
    ck_assert_str_eq(r.key, "0");
    ck_assert_uint_eq(r.body_len, 0);
    ck_assert_int_eq(parse("DELETE /cross_1/0 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                           "Content-Length: 0\r\n\r\n"),
                     1);
    ck_assert_int_eq(r.method, HTTP_DELETE);
}
END_TEST

START_TEST(other_clients)
{
    ck_assert_int_eq(parse("GET /s/k HTTP/1.0\r\n\r\n"), 1);
    ck_assert_int_eq(parse("PUT /s/k HTTP/1.1\r\ncontent-LENGTH:\t1048576 \r\n"
                           "X: a:b\r\nEmpty:\r\n\r\n"),
                     1);
    ck_assert_uint_eq(r.body_len, HTTP_BODY_MAX);
}
END_TEST

START_TEST(a_head_in_pieces)
{
    const char text[] = "GET /s/k HTTP/1.1\r\nHost: x\r\n\r\n";

    for (size_t i = 0; i < sizeof(text) - 1; i++)
        ck_assert_int_eq(http_parse(text, i, &r), 0);
    ck_assert_int_eq(parse(text), 1);
}
END_TEST

START_TEST(refusals)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"\r\n\r\n", 400},
        {"GET\r\n\r\n", 400},
        {"GET /s/k\r\n\r\n", 400},
        {"GET /s/k HTTP/2\r\n\r\n", 505},
        {"GET /s/k HTTP/1.1 \r\n\r\n", 505},
        {"GET  /s/k HTTP/1.1\r\n\r\n", 505},
        {"POST /s/k HTTP/1.1\r\n\r\n", 501},
        {"get /s/k HTTP/1.1\r\n\r\n", 501},
        {"GET /s HTTP/1.1\r\n\r\n", 400},
        {"GET s/k HTTP/1.1\r\n\r\n", 400},
        {"GET /s/ HTTP/1.1\r\n\r\n", 400},
        {"GET //k HTTP/1.1\r\n\r\n", 400},
        {"GET /s/k/x HTTP/1.1\r\n\r\n", 400},
        {"GET /s/\xc3\xa4 HTTP/1.1\r\n\r\n", 400},
        {"GET /s/k\x7f HTTP/1.1\r\n\r\n", 400},
        {"GET /s/k HTTP/1.1\nHost: x\r\n\r\n", 400},
        {"GET /s/k HTTP/1.1\r\nHost\r\n\r\n", 400},
        {"GET /s/k HTTP/1.1\r\n: x\r\n\r\n", 400},
        {"GET /s/k HTTP/1.1\r\nA: x\r\n folded\r\n\r\n", 400},
        {"GET /s/k HTTP/1.1\r\nA : x\r\n\r\n", 400},
        {"GET /s/k HTTP/1.1\r\nA: \x01\r\n\r\n", 400},
        {"GET /s/k HTTP/1.1\r\nContent-Length: 1\r\n\r\n", 400},
        {"PUT /s/k HTTP/1.1\r\n\r\n", 411},
        {"PUT /s/k HTTP/1.1\r\nContent-Length:\r\n\r\n", 400},
        {"PUT /s/k HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
        {"PUT /s/k HTTP/1.1\r\nContent-Length: 0x1\r\n\r\n", 400},
        {"PUT /s/k HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
         400},
        {"PUT /s/k HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n", 413},
        {"PUT /s/k HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
         413},
        {"PUT /s/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(parse(cases[i].text) == -cases[i].code, "%s: %d",
                      cases[i].text, parse(cases[i].text));
}
END_TEST

START_TEST(limits)
{
    static char text[HTTP_HEAD_MAX + 64];
    int n;

    memset(text, 'a', sizeof(text));
    ck_assert_int_eq(http_parse(text, HTTP_HEAD_MAX - 1, &r), 0);
    ck_assert_int_eq(http_parse(text, HTTP_HEAD_MAX, &r), -431);
    n = snprintf(text, sizeof(text), "GET /s/%0*d HTTP/1.1\r\n\r\n",
                 HTTP_NAME_BYTES - 1, 1);
    ck_assert_int_eq(http_parse(text, (size_t)n, &r), 1);
    ck_assert_uint_eq(strlen(r.key), HTTP_NAME_BYTES - 1);
    n = snprintf(text, sizeof(text), "GET /s/%0*d HTTP/1.1\r\n\r\n",
                 HTTP_NAME_BYTES, 1);
    ck_assert_int_eq(http_parse(text, (size_t)n, &r), -400);
}
END_TEST

START_TEST(replies)
{
    static const int codes[] = {200, 400, 404, 411, 413, 431, 501, 505};
    char head[HTTP_REPLY_HEAD_MAX];
    size_t len = http_reply_head(head, 200, 136);

    ck_assert_uint_eq(len, strlen(head));
    ck_assert_str_eq(head, "HTTP/1.1 200 OK\r\nContent-Length: 136\r\n"
                           "Connection: close\r\n\r\n");
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        len = http_reply_head(head, codes[i], HTTP_BODY_MAX);
        ck_assert_uint_lt(len, sizeof(head));
        ck_assert_int_eq(atoi(head + strlen("HTTP/1.1 ")), codes[i]);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http");
    TCase *c = tcase_create("http");

    tcase_add_test(c, requests_of_horovod);
    tcase_add_test(c, other_clients);
    tcase_add_test(c, a_head_in_pieces);
    tcase_add_test(c, refusals);
    tcase_add_test(c, limits);
    tcase_add_test(c, replies);
    suite_add_tcase(s, c);
    return unit_run(s);
}
