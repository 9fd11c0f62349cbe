/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of JSON control messages.  Internal to lib/protocol.
 *
 * Writing: jansson's setters take a NULL value for a failure, so the
 * builder collects failures and is asked once, at the end.
 *
 * Reading: fields are taken out of the object one by one; what is left at
 * the end is unknown.  The first error stays in the struct and later takes
 * do nothing, so a decoder reads like the message that it fills.  Taken
 * strings are the caller's (hb_free), also after an error.
 */
#ifndef HVD_PROTOCOL_CONTROL_JSON_H
#define HVD_PROTOCOL_CONTROL_JSON_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/base/strv.h"
#include "lib/protocol/frame.h"

#include <jansson.h>

struct control_builder {
    json_t *object;
    int failed;
};

void control_builder_init(struct control_builder *b);
void control_put(struct control_builder *b, const char *name, json_t *value);
void control_put_int(struct control_builder *b, const char *name, json_int_t v);
void control_put_bool(struct control_builder *b, const char *name, int v);
void control_put_string(struct control_builder *b, const char *name,
                        const char *s);
/* New values, NULL when memory ran out. */
json_t *control_json_hex(const void *bytes, size_t len);
json_t *control_json_strv(const struct hb_strv *v);
/* Ends the builder: its object becomes one frame in out. */
int control_builder_finish(struct control_builder *b, struct hb_buf *out,
                           uint8_t type);

struct control_fields {
    json_t *object;
    const char *what; /* the message, for errors */
    struct hb_error *err;
    int rc; /* 0 or the first failure */
};

/* Parses a payload that must be one object.  Ends with _close, which
 * refuses what nobody took and returns the first failure. */
void control_fields_open(struct control_fields *f, const char *what,
                         const void *p, size_t len, struct hb_error *err);
int control_fields_close(struct control_fields *f);
void control_nothing_left(struct control_fields *f);

int control_refuse(struct control_fields *f, const char *name, const char *why);
int control_no_memory(struct control_fields *f);

/* The field's value with a reference for the caller, or NULL. */
json_t *control_take(struct control_fields *f, const char *name);
/* min after a failure. */
int64_t control_take_i64(struct control_fields *f, const char *name,
                         int64_t min, int64_t max);
int control_take_int(struct control_fields *f, const char *name, int min,
                     int max);
int control_take_bool(struct control_fields *f, const char *name);
char *control_take_string(struct control_fields *f, const char *name);
char *control_take_nonempty(struct control_fields *f, const char *name);
void control_take_strv(struct control_fields *f, const char *name,
                       struct hb_strv *v);
/* Index into words, or 0 after a failure. */
int control_take_word(struct control_fields *f, const char *name,
                      const char *const *words, int count);
/* Exactly len bytes from 2 * len lower-case digits: 0 or -HVD_EPROTO. */
int control_decode_hex(const char *text, size_t len, unsigned char *out);

#endif
