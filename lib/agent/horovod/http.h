/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of HTTP/1.1 that Horovod's rendezvous needs: one request per
 * connection, PUT, GET or DELETE of /scope/key, its length given by
 * Content-Length.  Pure.
 */
#ifndef HVD_AGENT_HTTP_H
#define HVD_AGENT_HTTP_H

#include <stddef.h>

enum {
    HTTP_HEAD_MAX = 8 << 10, /* request line and headers */
    HTTP_BODY_MAX = 1 << 20,
    HTTP_NAME_BYTES = 240, /* a scope or a key, with its final 0 */
    HTTP_REPLY_HEAD_MAX = 128,
};

enum http_method { HTTP_GET = 1, HTTP_PUT, HTTP_DELETE };

struct http_request {
    enum http_method method;
    char scope[HTTP_NAME_BYTES], key[HTTP_NAME_BYTES];
    size_t head_len, body_len; /* the body follows the head */
};

/* Parses the head at the start of the bytes.  1: *out is set, and the request
 * is whole once head_len + body_len bytes are there; 0: the head is not
 * complete; negative: the status code to refuse the request with, as -400. */
int http_parse(const char *bytes, size_t len, struct http_request *out);

/* Writes the head of a reply with that body to `head`; returns its length.
 * Horovod's client compares the name Content-Length with regard to case, and
 * accepts no codes but 200 and 404. */
size_t http_reply_head(char head[HTTP_REPLY_HEAD_MAX], int code,
                       size_t body_len);

#endif
