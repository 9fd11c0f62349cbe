/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of JSON control messages.  Internal to lib/protocol.
 *
 * Writing: jansson's setters take a NULL value for a failure, so the builder
 * collects failures and reports them once, in control_builder_finish.
 *
 * A table of struct control_field describes the plain fields of a message once,
 * for both directions (control_put_table, control_take_table).  Functions of
 * their own write and read arrays of objects and what depends on another field.
 *
 * Reading: fields are taken out of the object one by one; what is left at the
 * end is unknown.  The first error stays in the struct and later takes do
 * nothing, so a decoder reads like the message that it fills.  Strings taken
 * are the caller's (hb_free), also after an error.
 */
#ifndef HVD_PROTOCOL_CONTROL_JSON_H
#define HVD_PROTOCOL_CONTROL_JSON_H

#include "lib/base/buf.h"
#include "lib/base/error.h"
#include "lib/base/strv.h"
#include "lib/protocol/frame.h"

#include <jansson.h>
#include <stddef.h>

struct control_builder {
    json_t *object;
    int failed;
};

enum control_kind {
    CONTROL_INT, /* of 4 or 8 bytes, also an unsigned one up to INT64_MAX */
    CONTROL_BOOL,
    CONTROL_WORD, /* an enum, as the word of that index */
    CONTROL_STRING,
    CONTROL_NONEMPTY, /* a string that is not "" */
    CONTROL_STRV,
};

/* A field whose name is that of a member of the message's struct. */
struct control_field {
    const char *name;
    enum control_kind kind;
    size_t at, size;
    int64_t min, max; /* of a number, or of the index of a word */
    const char *const *words;
};

#define CONTROL_MEMBER(type, member) \
    offsetof(struct type, member), sizeof(((struct type *)NULL)->member)
/* clang-format off */
#define CONTROL_FIELD(type, member, kind) \
    { #member, kind, CONTROL_MEMBER(type, member), 0, 0, NULL }
#define CONTROL_FIELD_INT(type, member, min, max) \
    { #member, CONTROL_INT, CONTROL_MEMBER(type, member), min, max, NULL }
#define CONTROL_FIELD_WORD(type, member, words, count) \
    { #member, CONTROL_WORD, CONTROL_MEMBER(type, member), 0, (count) - 1, \
      words }
#define CONTROL_FIELDS_END { NULL, CONTROL_INT, 0, 0, 0, 0, NULL }
/* clang-format on */

/* A message that its table describes whole. */
struct control_message {
    uint8_t type;
    const char *what; /* for errors */
    size_t size;      /* of its struct */
    const struct control_field *fields;
};

int control_encode_message(struct hb_buf *out, const struct control_message *w,
                           const void *m);
int control_decode_message(const struct control_message *w, const void *p,
                           size_t len, void *m, struct hb_error *err);
void control_message_fini(const struct control_message *w, void *m);

void control_builder_init(struct control_builder *b);
/* Writes the fields of the struct at `m`. */
void control_put_table(struct control_builder *b,
                       const struct control_field *fields, const void *m);
void control_put(struct control_builder *b, const char *name, json_t *value);
void control_put_int(struct control_builder *b, const char *name, json_int_t v);
void control_put_bool(struct control_builder *b, const char *name, int v);
void control_put_string(struct control_builder *b, const char *name,
                        const char *s);
/* Returns a new value; NULL if out of memory. */
json_t *control_json_hex(const void *bytes, size_t len);
json_t *control_json_strv(const struct hb_strv *v);
/* Appends the object to out as a frame, and frees the builder. */
int control_builder_finish(struct control_builder *b, struct hb_buf *out,
                           uint8_t type);

enum {
    /* For an agent's message: twice what the longest can hold. */
    CONTROL_VALUES_MAX = 64 << 10,
    /* For an ANSWER: 19 for each process, so enough for 50000. */
    CONTROL_ANSWER_VALUES_MAX = 1 << 20,
};

struct control_fields {
    json_t *object;
    const char *what; /* the message, for errors */
    struct hb_error *err;
    int rc; /* 0 or the first failure */
};

/* Parses len bytes as JSON with at most max_values values and names, each of
 * which costs memory for a hundred bytes.  0 and a new reference, -HVD_EPROTO
 * or -HVD_ENOMEM. */
int control_json_load(const char *what, const void *p, size_t len,
                      size_t max_values, json_t **out, struct hb_error *err);

/* Parses a payload that must be one object.  End with _close, which refuses
 * fields that were not taken, and returns the first failure. */
void control_fields_open(struct control_fields *f, const char *what,
                         const void *p, size_t len, struct hb_error *err);
/* Parses as control_fields_open, with another limit than CONTROL_VALUES_MAX. */
void control_fields_open_max(struct control_fields *f, const char *what,
                             const void *p, size_t len, size_t max_values,
                             struct hb_error *err);
int control_fields_close(struct control_fields *f);
void control_nothing_left(struct control_fields *f);

int control_refuse(struct control_fields *f, const char *name, const char *why);
int control_no_memory(struct control_fields *f);

/* Takes the field's value, a new reference for the caller, or NULL. */
json_t *control_take(struct control_fields *f, const char *name);
/* Takes a number in min .. max; min after a failure. */
int64_t control_take_i64(struct control_fields *f, const char *name,
                         int64_t min, int64_t max);
int control_take_int(struct control_fields *f, const char *name, int min,
                     int max);
int control_take_bool(struct control_fields *f, const char *name);
char *control_take_string(struct control_fields *f, const char *name);
char *control_take_nonempty(struct control_fields *f, const char *name);
void control_take_strv(struct control_fields *f, const char *name,
                       struct hb_strv *v);
/* Takes the fields into the struct at `m`, which is 0. */
void control_take_table(struct control_fields *f,
                        const struct control_field *fields, void *m);
/* Takes those of the fields that are there; others keep their defaults. */
void control_take_present(struct control_fields *f,
                          const struct control_field *fields, void *m);
/* Frees the strings and lists of the struct at `m`. */
void control_free_table(const struct control_field *fields, void *m);
/* Takes a word: its index in words, or 0 after a failure. */
int control_take_word(struct control_fields *f, const char *name,
                      const char *const *words, int count);
/* Decodes exactly len bytes from 2 * len lower-case digits: 0 or
 * -HVD_EPROTO. */
int control_decode_hex(const char *text, size_t len, unsigned char *out);

#endif
