/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QUERY and ANSWER: what `hvdrun ps`, `kill`, `clean` and `doctor` ask an
 * agent instead of giving it a job.
 *
 * Both are one JSON object.  A question has the string "what" and what
 * that takes; an answer is whatever lib/agent/query.h says for it, or has
 * the string "error".  The side that reads an object takes every field as
 * untrusted: absent, of another type, or hostile text.
 */
#ifndef HVD_PROTOCOL_QUERY_H
#define HVD_PROTOCOL_QUERY_H

#include "lib/base/buf.h"
#include "lib/base/error.h"

#include <jansson.h>

/* Appends a frame of type CONTROL_QUERY or CONTROL_ANSWER: 0, -HVD_ENOMEM,
 * or -HVD_EINVAL when it would exceed FRAME_PAYLOAD_MAX. */
int query_encode(struct hb_buf *out, int type, const json_t *object);

/* A new reference to the object, or -HVD_EPROTO with one line in err. */
int query_decode(const void *p, size_t len, json_t **out, struct hb_error *err);

/* A JSON string of s, whatever bytes it holds: control bytes and what is
 * not UTF-8 become '?'. */
json_t *query_text(const char *s);

/* Fields of an object: the default where there is none of that type.
 * Strings are borrowed from the object, and never NULL. */
const char *query_string(const json_t *object, const char *name);
json_int_t query_int(const json_t *object, const char *name, json_int_t none);
int query_true(const json_t *object, const char *name);

#endif
