/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of JSON control messages.  Internal to lib/protocol.
 *
 * Writing: jansson's setters take a NULL value for a failure, so the builder
 * collects failures and reports them once, in control_builder_finish.
 *
 * A table of struct control_field describes the fields of a message once, for
 * both directions.  The elements of an array have a table of their own.  What
 * depends on another field, control_message.check checks when all are decoded.
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

struct control_fields {
    json_t *object;
    const char *what; /* the message, for errors */
    struct hb_error *err;
    int rc; /* 0 or the first failure */
};

enum control_kind {
    CONTROL_INT, /* of 4 or 8 bytes, also an unsigned one up to INT64_MAX */
    CONTROL_BOOL,
    CONTROL_WORD, /* an enum, as the word of that index */
    CONTROL_STRING,
    CONTROL_NONEMPTY, /* a string that is not "" */
    CONTROL_STRV,
    CONTROL_HEX,     /* an array of bytes, two digits each; a secret */
    CONTROL_FLAG,    /* a bit of an unsigned, as true or false */
    CONTROL_ADDRESS, /* struct hb_netaddr */
    CONTROL_ARRAY,   /* of structs: a pointer to them, and their number */
};

/* A field, and the member of the message's struct that it stands for. */
struct control_field {
    const char *name; /* "": the element of an array itself, not an object */
    enum control_kind kind;
    size_t at, size; /* of an array: the pointer's offset, an element's size */
    /* of a number, of the index of a word, or of the number of elements; max of
     * a flag: its bit */
    int64_t min, max;
    const char *const *words;
    size_t count_at;                     /* of an array: an int */
    const struct control_field *element; /* of an array: its elements' table */
};

#define CONTROL_MEMBER(type, member) \
    offsetof(struct type, member), sizeof(((struct type *)NULL)->member)
/* Does not compile if the member is not an int. */
#define CONTROL_COUNT(type, member) \
    _Generic(((struct type *)NULL)->member, int : offsetof(struct type, member))
/* clang-format off */
#define CONTROL_NAMED(name, type, member, kind) \
    { name, kind, CONTROL_MEMBER(type, member), 0, 0, NULL, 0, NULL }
#define CONTROL_NAMED_INT(name, type, member, min, max) \
    { name, CONTROL_INT, CONTROL_MEMBER(type, member), min, max, NULL, 0, NULL }
#define CONTROL_FIELD(type, member, kind) \
    CONTROL_NAMED(#member, type, member, kind)
#define CONTROL_FIELD_INT(type, member, min, max) \
    CONTROL_NAMED_INT(#member, type, member, min, max)
#define CONTROL_FIELD_WORD(type, member, words, count) \
    { #member, CONTROL_WORD, CONTROL_MEMBER(type, member), 0, (count) - 1, \
      words, 0, NULL }
#define CONTROL_FIELD_FLAG(name, type, member, bit) \
    { name, CONTROL_FLAG, CONTROL_MEMBER(type, member), 0, bit, NULL, 0, NULL }
/* min to max elements at m->items, m->count in number */
#define CONTROL_FIELD_ARRAY(name, type, items, count, min, max, element) \
    { name, CONTROL_ARRAY, offsetof(struct type, items), \
      sizeof(*((struct type *)NULL)->items), min, max, NULL, \
      CONTROL_COUNT(type, count), element }
/* The elements themselves, of a C type, instead of their fields. */
#define CONTROL_ELEMENT(type, kind, min, max) \
    { "", kind, 0, sizeof(type), min, max, NULL, 0, NULL }
#define CONTROL_FIELDS_END { NULL, CONTROL_INT, 0, 0, 0, 0, NULL, 0, NULL }
/* clang-format on */

/* A message that its table describes whole. */
struct control_message {
    uint8_t type;
    const char *what; /* for errors */
    size_t size;      /* of its struct */
    const struct control_field *fields;
    /* Refuses what the table cannot; may be NULL. */
    void (*check)(struct control_fields *f, const void *m);
};

int control_encode_message(struct hb_buf *out, const struct control_message *w,
                           const void *m);
int control_decode_message(const struct control_message *w, const void *p,
                           size_t len, void *m, struct hb_error *err);
void control_message_fini(const struct control_message *w, void *m);

/* Reads a number, or where an array's elements are and how many, from a struct;
 * `at` is the number, `m` the struct. */
int64_t control_load_int(const struct control_field *field, const void *at);
char *control_load_array(const struct control_field *field, const char *m,
                         int *count);

void control_builder_init(struct control_builder *b);
/* Writes the fields of the struct at `m`. */
void control_put_table(struct control_builder *b,
                       const struct control_field *fields, const void *m);
void control_put(struct control_builder *b, const char *name, json_t *value);
/* Appends the object to out as a frame, and frees the builder. */
int control_builder_finish(struct control_builder *b, struct hb_buf *out,
                           uint8_t type);

enum {
    /* For an agent's message: twice what the longest can hold. */
    CONTROL_VALUES_MAX = 64 << 10,
    /* For an ANSWER: 19 for each process, so enough for 50000. */
    CONTROL_ANSWER_VALUES_MAX = 1 << 20,
};

/* Parses len bytes as JSON with at most max_values values and names, each of
 * which costs memory for a hundred bytes.  0 and a new reference, -HVD_EPROTO
 * or -HVD_ENOMEM. */
int control_json_load(const char *what, const void *p, size_t len,
                      size_t max_values, json_t **out, struct hb_error *err);

/* Parses a payload that must be one object of at most max_values values.  End
 * with _close, which refuses fields that were not taken, and returns the first
 * failure. */
void control_fields_open(struct control_fields *f, const char *what,
                         const void *p, size_t len, size_t max_values,
                         struct hb_error *err);
int control_fields_close(struct control_fields *f);

int control_refuse(struct control_fields *f, const char *name, const char *why);
/* Refuses a number that is not in min .. max. */
void control_check_range(struct control_fields *f, const char *name, int64_t v,
                         int64_t min, int64_t max);
/* Begins errors about element i of an array with the array's name: `one` is to
 * be used for them, and has `what` for memory. */
enum { CONTROL_WHAT_MAX = 64 };
void control_element_open(const struct control_fields *f, const char *name,
                          int i, struct control_fields *one,
                          char what[CONTROL_WHAT_MAX]);

/* Takes the field's value, a new reference for the caller, or NULL. */
json_t *control_take(struct control_fields *f, const char *name);
/* Takes the fields into the struct at `m`, which is 0. */
void control_take_table(struct control_fields *f,
                        const struct control_field *fields, void *m);
/* Takes those of the fields that are there; others keep their defaults.  None
 * may be of a kind that control_free_table frees. */
void control_take_present(struct control_fields *f,
                          const struct control_field *fields, void *m);
/* Frees the strings, lists and arrays of the struct at `m`. */
void control_free_table(const struct control_field *fields, void *m);
/* Decodes exactly len bytes from 2 * len lower-case digits: 0 or
 * -HVD_EPROTO. */
int control_decode_hex(const char *text, size_t len, unsigned char *out);

#endif
