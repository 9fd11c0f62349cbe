/* SPDX-License-Identifier: Apache-2.0 */
/* Reads fields of JSON control messages; see control_json.h. */
#include "lib/protocol/control/control_json.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/netaddr.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char hex_digits[] = "0123456789abcdef";

static void store_int(const struct control_field *field, void *at, int64_t v)
{
    int narrow = (int)v;

    if (field->size == sizeof(v)) {
        memcpy(at, &v, sizeof(v));
        return;
    }
    assert(field->size == sizeof(narrow));
    memcpy(at, &narrow, sizeof(narrow));
}

int control_refuse(struct control_fields *f, const char *name, const char *why)
{
    if (f->rc == 0)
        f->rc = hb_error_set(f->err, HVD_EPROTO, "%s: field '%s' %s", f->what,
                             name, why);
    return f->rc;
}

static void no_memory(struct control_fields *f)
{
    if (f->rc == 0)
        f->rc = hb_error_set(f->err, HVD_ENOMEM, "%s: out of memory", f->what);
}

void control_check_range(struct control_fields *f, const char *name, int64_t v,
                         int64_t min, int64_t max)
{
    if ((v < min || v > max) && f->rc == 0)
        f->rc = hb_error_set(f->err, HVD_EPROTO,
                             "%s: field '%s' is %" PRId64 ", not from %" PRId64
                             " to %" PRId64,
                             f->what, name, v, min, max);
}

json_t *control_take(struct control_fields *f, const char *name)
{
    json_t *value;

    if (f->rc < 0)
        return NULL;
    value = json_object_get(f->object, name);
    if (!value) {
        control_refuse(f, name, "is missing");
        return NULL;
    }
    json_incref(value);
    json_object_del(f->object, name);
    return value;
}

static void nothing_left(struct control_fields *f)
{
    void *first = json_object_iter(f->object);

    if (f->rc == 0 && first)
        f->rc = hb_error_set(f->err, HVD_EPROTO, "%s: unknown field '%.64s'",
                             f->what, json_object_iter_key(first));
}

/* ---- Values ----
 *
 * The functions below decode the value of a field with that name.  After a
 * refusal the result is of no use. */

static int64_t decode_int(struct control_fields *f,
                          const struct control_field *field, json_t *value)
{
    if (json_is_integer(value))
        control_check_range(f, field->name, json_integer_value(value),
                            field->min, field->max);
    else
        control_refuse(f, field->name, "is not an integer");
    return f->rc < 0 ? field->min : json_integer_value(value);
}

static int decode_bool(struct control_fields *f, const char *name,
                       json_t *value)
{
    if (!json_is_boolean(value))
        control_refuse(f, name, "is not true or false");
    return json_is_true(value);
}

static int hex_value(char c)
{
    const char *p = c ? strchr(hex_digits, c) : NULL;

    return p ? (int)(p - hex_digits) : -1;
}

int control_decode_hex(const char *text, size_t len, unsigned char *out)
{
    size_t i;

    for (i = 0; i < len; i++) {
        int high = hex_value(text[2 * i]);
        int low = high < 0 ? -1 : hex_value(text[2 * i + 1]);

        if (low < 0)
            return -HVD_EPROTO;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return text[2 * len] == '\0' ? 0 : -HVD_EPROTO;
}

/* Copies a string in either of its forms (heap); NULL after a refusal. */
static char *decode_string(struct control_fields *f, const char *name,
                           json_t *value)
{
    json_t *hex = json_object_get(value, "hex");
    const char *text = json_string_value(hex ? hex : value);
    size_t len = json_string_length(hex ? hex : value);
    char *copy;

    if (!text || (hex && (len % 2 != 0 || json_object_size(value) != 1))) {
        control_refuse(f, name, "is not a string");
        return NULL;
    }
    copy = hb_malloc(len + 1);
    if (!copy) {
        no_memory(f);
        return NULL;
    }
    if (!hex) {
        memcpy(copy, text, len + 1);
        return copy;
    }
    copy[len / 2] = '\0';
    if (control_decode_hex(text, len / 2, (unsigned char *)copy) < 0 ||
        strlen(copy) != len / 2) {
        control_refuse(f, name, "has bad hex digits");
        hb_free(copy);
        return NULL;
    }
    return copy;
}

static char *decode_nonempty(struct control_fields *f, const char *name,
                             json_t *value)
{
    char *s = decode_string(f, name, value);

    if (s && s[0] == '\0')
        control_refuse(f, name, "is empty");
    return s;
}

/* Writes the name of element i of an array. */
static void name_element(const char *array, int i, char name[CONTROL_WHAT_MAX])
{
    snprintf(name, CONTROL_WHAT_MAX, "%s[%d]", array, i);
}

static void decode_strv(struct control_fields *f, const char *name,
                        json_t *array, struct hb_strv *v)
{
    if (!json_is_array(array))
        control_refuse(f, name, "is not an array");
    for (size_t i = 0; f->rc == 0 && i < json_array_size(array); i++) {
        char one[CONTROL_WHAT_MAX], *s;

        name_element(name, (int)i, one);
        s = decode_string(f, one, json_array_get(array, i));
        if (s && hb_strv_add(v, s) < 0)
            no_memory(f);
        hb_free(s);
    }
}

static int decode_word(struct control_fields *f,
                       const struct control_field *field, json_t *value)
{
    char *s = decode_string(f, field->name, value);
    int i = 0;

    while (s && i <= field->max && strcmp(s, field->words[i]) != 0)
        i++;
    if (s && i > field->max)
        control_refuse(f, field->name, "has an unknown value");
    hb_free(s);
    return f->rc < 0 ? 0 : i;
}

static void decode_hex(struct control_fields *f,
                       const struct control_field *field, json_t *value,
                       unsigned char *bytes)
{
    char *text = decode_string(f, field->name, value);
    char why[40];

    snprintf(why, sizeof(why), "is not %zu hex digits", 2 * field->size);
    if (text && (strlen(text) != 2 * field->size ||
                 control_decode_hex(text, field->size, bytes) < 0))
        control_refuse(f, field->name, why);
    if (text)
        explicit_bzero(text, strlen(text));
    hb_free(text);
}

static void decode_address(struct control_fields *f, const char *name,
                           json_t *value, struct hb_netaddr *address)
{
    const char *text = json_string_value(value);

    if (!text || hb_netaddr_parse(text, address) < 0)
        control_refuse(f, name, "is not a numeric address");
}

/* ---- Arrays ---- */

static void decode_field(struct control_fields *f,
                         const struct control_field *field, json_t *value,
                         char *m);

void control_element_open(const struct control_fields *f, const char *name,
                          int i, struct control_fields *one,
                          char what[CONTROL_WHAT_MAX])
{
    snprintf(what, CONTROL_WHAT_MAX, "%s: %s[%d]", f->what, name, i);
    *one = (struct control_fields){NULL, what, f->err, f->rc};
}

/* Decodes element i of an array into the struct at `m`, which is 0. */
static void decode_element(struct control_fields *f,
                           const struct control_field *array, int i,
                           json_t *value, char *m)
{
    struct control_field bare = *array->element;
    struct control_fields one;
    char what[CONTROL_WHAT_MAX];

    if (!bare.name[0]) {
        name_element(array->name, i, what);
        bare.name = what;
        decode_field(f, &bare, value, m);
        return;
    }
    if (!json_is_object(value)) {
        control_refuse(f, array->name, "holds something other than objects");
        return;
    }
    control_element_open(f, array->name, i, &one, what);
    one.object = value;
    control_take_table(&one, array->element, m);
    nothing_left(&one);
    f->rc = one.rc;
}

/* Allocates the elements only when their number has been checked. */
static void decode_array(struct control_fields *f,
                         const struct control_field *field, json_t *array,
                         char *m)
{
    size_t size = json_array_size(array);
    char *items;
    int count = (int)size;

    if (json_is_array(array) && count == 0 && field->min > 0) {
        control_refuse(f, field->name, "is empty");
        return;
    }
    if (!json_is_array(array) || size < (size_t)field->min ||
        size > (size_t)field->max) {
        control_refuse(f, field->name, "is not an array of a possible length");
        return;
    }
    if (count == 0)
        return;
    items = hb_calloc(size, field->size);
    if (!items) {
        no_memory(f);
        return;
    }
    memcpy(m + field->at, &items, sizeof(items));
    memcpy(m + field->count_at, &count, sizeof(count));
    for (int i = 0; f->rc == 0 && i < count; i++)
        decode_element(f, field, i, json_array_get(array, (size_t)i),
                       items + (size_t)i * field->size);
}

/* ---- Tables ---- */

static void store_flag(const struct control_field *field, void *at, int set)
{
    int64_t others = control_load_int(field, at) & ~field->max;

    store_int(field, at, others | (set ? field->max : 0));
}

static void decode_field(struct control_fields *f,
                         const struct control_field *field, json_t *value,
                         char *m)
{
    void *at = m + field->at;

    switch (field->kind) {
    case CONTROL_INT:
        store_int(field, at, decode_int(f, field, value));
        break;
    case CONTROL_BOOL:
        store_int(field, at, decode_bool(f, field->name, value));
        break;
    case CONTROL_FLAG:
        store_flag(field, at, decode_bool(f, field->name, value));
        break;
    case CONTROL_WORD:
        store_int(field, at, decode_word(f, field, value));
        break;
    case CONTROL_STRING:
        *(char **)at = decode_string(f, field->name, value);
        break;
    case CONTROL_NONEMPTY:
        *(char **)at = decode_nonempty(f, field->name, value);
        break;
    case CONTROL_STRV:
        decode_strv(f, field->name, value, at);
        break;
    case CONTROL_HEX:
        decode_hex(f, field, value, at);
        break;
    case CONTROL_ADDRESS:
        decode_address(f, field->name, value, at);
        break;
    case CONTROL_ARRAY:
        decode_array(f, field, value, m);
        break;
    }
}

static void take_field(struct control_fields *f,
                       const struct control_field *field, void *m)
{
    json_t *value = control_take(f, field->name);

    if (value)
        decode_field(f, field, value, m);
    json_decref(value);
}

void control_take_table(struct control_fields *f,
                        const struct control_field *fields, void *m)
{
    for (; fields->name; fields++)
        take_field(f, fields, m);
}

/* Returns whether control_free_table frees fields of that kind. */
static int is_freed(enum control_kind kind)
{
    return kind == CONTROL_STRING || kind == CONTROL_NONEMPTY ||
           kind == CONTROL_STRV || kind == CONTROL_ARRAY;
}

void control_take_present(struct control_fields *f,
                          const struct control_field *fields, void *m)
{
    for (; fields->name; fields++) {
        assert(!is_freed(fields->kind));
        if (json_object_get(f->object, fields->name))
            take_field(f, fields, m);
    }
}

static void free_array(const struct control_field *field, const char *m)
{
    int count;
    char *items = control_load_array(field, m, &count);

    for (int i = 0; i < count; i++)
        control_free_table(field->element, items + (size_t)i * field->size);
    hb_free(items);
}

void control_free_table(const struct control_field *fields, void *m)
{
    for (; fields->name; fields++) {
        void *at = (char *)m + fields->at;

        if (fields->kind == CONTROL_STRING || fields->kind == CONTROL_NONEMPTY)
            hb_free(*(char **)at);
        else if (fields->kind == CONTROL_STRV)
            hb_strv_free(at);
        else if (fields->kind == CONTROL_ARRAY)
            free_array(fields, m);
    }
}

/* Bounds the number of values and names in p from above: one more than there
 * are brackets, commas and colons outside strings. */
static size_t count_values(const char *p, size_t len)
{
    size_t count = 1;
    int quoted = 0;

    for (size_t i = 0; i < len; i++) {
        if (p[i] == '"')
            quoted = !quoted;
        else if (quoted)
            i += p[i] == '\\';
        else
            count += p[i] == '[' || p[i] == '{' || p[i] == ',' || p[i] == ':';
    }
    return count;
}

int control_json_load(const char *what, const void *p, size_t len,
                      size_t max_values, json_t **out, struct hb_error *err)
{
    json_error_t why;
    json_t *v;

    if (count_values(p, len) > max_values)
        return hb_error_set(err, HVD_EPROTO, "%s: more than %zu values", what,
                            max_values);
    v = json_loadb(p, len, JSON_REJECT_DUPLICATES, &why);
    if (!v && json_error_code(&why) == json_error_out_of_memory)
        return hb_error_set(err, HVD_ENOMEM, "%s: out of memory", what);
    if (!v || !json_is_object(v)) {
        json_decref(v);
        return hb_error_set(err, HVD_EPROTO, "%s: not a JSON object: %s", what,
                            v ? "another value" : why.text);
    }
    *out = v;
    return 0;
}

void control_fields_open(struct control_fields *f, const char *what,
                         const void *p, size_t len, size_t max_values,
                         struct hb_error *err)
{
    *f = (struct control_fields){.what = what, .err = err};
    f->rc = control_json_load(what, p, len, max_values, &f->object, err);
}

int control_fields_close(struct control_fields *f)
{
    nothing_left(f);
    json_decref(f->object);
    f->object = NULL;
    return f->rc;
}

/* ---- Messages that are a table ---- */

int control_decode_message(const struct control_message *w, const void *p,
                           size_t len, void *m, struct hb_error *err)
{
    struct control_fields f;
    int rc;

    memset(m, 0, w->size);
    control_fields_open(&f, w->what, p, len, CONTROL_VALUES_MAX, err);
    control_take_table(&f, w->fields, m);
    if (w->check && f.rc == 0)
        w->check(&f, m);
    rc = control_fields_close(&f);
    if (rc < 0)
        control_message_fini(w, m);
    return rc;
}

void control_message_fini(const struct control_message *w, void *m)
{
    control_free_table(w->fields, m);
    explicit_bzero(m, w->size);
}
