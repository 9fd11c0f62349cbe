/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QUERY and ANSWER: what `hvdrun ps`, `kill`, `clean` and `doctor` ask an agent
 * instead of giving it a job.
 *
 * Each is one JSON object.  A question has the string "what" and the fields for
 * it; an answer has the fields of lib/agent/query/agent_query.h, or the string
 * "error". Readers must not trust any field: it may be absent, of another type,
 * or hostile text.
 */
#ifndef HVD_PROTOCOL_QUERY_H
#define HVD_PROTOCOL_QUERY_H

#include "lib/base/buf.h"
#include "lib/base/error.h"

#include <jansson.h>

/* Appends a frame of type CONTROL_QUERY or CONTROL_ANSWER.  0, -HVD_ENOMEM, or
 * -HVD_EINVAL if it would exceed FRAME_PAYLOAD_MAX. */
int query_encode(struct hb_buf *out, int type, const json_t *object);

/* Decodes the payload of a frame of that type.  0 and a new reference to the
 * object, or -HVD_EPROTO or -HVD_ENOMEM with a line in err. */
int query_decode(const void *p, size_t len, int type, json_t **out,
                 struct hb_error *err);

/* Makes a JSON string of any bytes: control bytes and what is not UTF-8 become
 * '?'. */
json_t *query_text(const char *s);

/* Reads a field of an object; the default ("", `none`, 0) if there is none of
 * that type.  Strings are borrowed from the object and never NULL. */
const char *query_string(const json_t *object, const char *name);
json_int_t query_int(const json_t *object, const char *name, json_int_t none);
int query_true(const json_t *object, const char *name);

#endif
