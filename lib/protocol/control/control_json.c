/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of JSON control messages; see control_json.h. */
#include "lib/protocol/control/control_json.h"

#include "lib/base/alloc.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static const char hex_digits[] = "0123456789abcdef";

json_t *control_json_hex(const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    struct hb_buf b = HB_BUF_INIT;
    json_t *value = NULL;
    size_t i;

    if (hb_buf_reserve(&b, 2 * len) == 0) {
        for (i = 0; i < len; i++) {
            hb_buf_putc(&b, hex_digits[p[i] >> 4]);
            hb_buf_putc(&b, hex_digits[p[i] & 15]);
        }
        value = json_stringn_nocheck(hb_buf_data(&b), hb_buf_len(&b));
    }
    hb_buf_free(&b);
    return value;
}

static json_t *encode_string(const char *s)
{
    json_t *value, *wrapped;

    if (!s)
        s = "";
    value = json_string(s);
    if (value)
        return value;
    /* Not UTF-8, or out of memory, which the next calls then report. */
    wrapped = json_object();
    if (json_object_set_new(wrapped, "hex", control_json_hex(s, strlen(s))) <
        0) {
        json_decref(wrapped);
        return NULL;
    }
    return wrapped;
}

json_t *control_json_strv(const struct hb_strv *v)
{
    json_t *array = json_array();
    size_t i;

    for (i = 0; array && i < v->count; i++) {
        if (json_array_append_new(array, encode_string(v->items[i])) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

void control_builder_init(struct control_builder *b)
{
    b->object = json_object();
    b->failed = !b->object;
}

void control_put(struct control_builder *b, const char *name, json_t *value)
{
    if (json_object_set_new(b->object, name, value) < 0)
        b->failed = 1;
}

void control_put_int(struct control_builder *b, const char *name, json_int_t v)
{
    control_put(b, name, json_integer(v));
}

void control_put_string(struct control_builder *b, const char *name,
                        const char *s)
{
    control_put(b, name, encode_string(s));
}

void control_put_bool(struct control_builder *b, const char *name, int v)
{
    control_put(b, name, json_boolean(v));
}

static int dump_to_buf(const char *bytes, size_t len, void *arg)
{
    return hb_buf_append(arg, bytes, len);
}

static int64_t load_int(const struct control_field *field, const void *at)
{
    int64_t wide;
    int narrow;

    if (field->size == sizeof(wide)) {
        memcpy(&wide, at, sizeof(wide));
        return wide;
    }
    assert(field->size == sizeof(narrow));
    memcpy(&narrow, at, sizeof(narrow));
    return narrow;
}

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

static void put_field(struct control_builder *b,
                      const struct control_field *field, const void *at)
{
    int64_t v;

    switch (field->kind) {
    case CONTROL_INT:
        control_put_int(b, field->name, load_int(field, at));
        break;
    case CONTROL_BOOL:
        control_put_bool(b, field->name, load_int(field, at) != 0);
        break;
    case CONTROL_WORD:
        v = load_int(field, at);
        assert(v >= 0 && v <= field->max);
        control_put_string(b, field->name, field->words[v]);
        break;
    case CONTROL_STRING:
    case CONTROL_NONEMPTY:
        control_put_string(b, field->name, *(char *const *)at);
        break;
    case CONTROL_STRV:
        control_put(b, field->name, control_json_strv(at));
        break;
    }
}

void control_put_table(struct control_builder *b,
                       const struct control_field *fields, const void *m)
{
    for (; fields->name; fields++)
        put_field(b, fields, (const char *)m + fields->at);
}

int control_builder_finish(struct control_builder *b, struct hb_buf *out,
                           uint8_t type)
{
    struct hb_buf text = HB_BUF_INIT;
    int rc = -HVD_ENOMEM;

    if (!b->failed &&
        json_dump_callback(b->object, dump_to_buf, &text, JSON_COMPACT) == 0)
        rc = frame_encode(out, type, hb_buf_data(&text), hb_buf_len(&text));
    hb_buf_free(&text);
    json_decref(b->object);
    return rc;
}

int control_refuse(struct control_fields *f, const char *name, const char *why)
{
    if (f->rc == 0)
        f->rc = hb_error_set(f->err, HVD_EPROTO, "%s: field '%s' %s", f->what,
                             name, why);
    return f->rc;
}

int control_no_memory(struct control_fields *f)
{
    if (f->rc == 0)
        f->rc = hb_error_set(f->err, HVD_ENOMEM, "%s: out of memory", f->what);
    return f->rc;
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

int64_t control_take_i64(struct control_fields *f, const char *name,
                         int64_t min, int64_t max)
{
    json_t *value = control_take(f, name);
    json_int_t v = json_integer_value(value);

    if (!value)
        return min;
    if (!json_is_integer(value)) {
        control_refuse(f, name, "is not an integer");
    } else if ((v < min || v > max) && f->rc == 0) {
        f->rc = hb_error_set(f->err, HVD_EPROTO,
                             "%s: field '%s' is %" JSON_INTEGER_FORMAT
                             ", not from %" PRId64 " to %" PRId64,
                             f->what, name, v, min, max);
    }
    json_decref(value);
    return f->rc < 0 ? min : v;
}

int control_take_int(struct control_fields *f, const char *name, int min,
                     int max)
{
    return (int)control_take_i64(f, name, min, max);
}

int control_take_bool(struct control_fields *f, const char *name)
{
    json_t *value = control_take(f, name);
    int v = json_is_true(value);

    if (value && !json_is_boolean(value))
        control_refuse(f, name, "is not true or false");
    json_decref(value);
    return v;
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
static char *copy_string(struct control_fields *f, const char *name,
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
        control_no_memory(f);
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

char *control_take_string(struct control_fields *f, const char *name)
{
    json_t *value = control_take(f, name);
    char *copy = value ? copy_string(f, name, value) : NULL;

    json_decref(value);
    return copy;
}

char *control_take_nonempty(struct control_fields *f, const char *name)
{
    char *s = control_take_string(f, name);

    if (s && s[0] == '\0')
        control_refuse(f, name, "is empty");
    return s;
}

void control_take_strv(struct control_fields *f, const char *name,
                       struct hb_strv *v)
{
    json_t *array = control_take(f, name);
    size_t i;

    if (array && !json_is_array(array))
        control_refuse(f, name, "is not an array");
    for (i = 0; f->rc == 0 && i < json_array_size(array); i++) {
        char *s = copy_string(f, name, json_array_get(array, i));

        if (s && hb_strv_add(v, s) < 0)
            control_no_memory(f);
        hb_free(s);
    }
    json_decref(array);
}

int control_take_word(struct control_fields *f, const char *name,
                      const char *const *words, int count)
{
    char *s = control_take_string(f, name);
    int i, found = 0;

    for (i = 0; s && i < count; i++) {
        if (strcmp(s, words[i]) == 0)
            break;
    }
    if (s && i == count)
        control_refuse(f, name, "has an unknown value");
    else if (s)
        found = i;
    hb_free(s);
    return found;
}

static void take_field(struct control_fields *f,
                       const struct control_field *field, void *at)
{
    switch (field->kind) {
    case CONTROL_INT:
        store_int(field, at,
                  control_take_i64(f, field->name, field->min, field->max));
        break;
    case CONTROL_BOOL:
        store_int(field, at, control_take_bool(f, field->name));
        break;
    case CONTROL_WORD:
        store_int(field, at,
                  control_take_word(f, field->name, field->words,
                                    (int)field->max + 1));
        break;
    case CONTROL_STRING:
        *(char **)at = control_take_string(f, field->name);
        break;
    case CONTROL_NONEMPTY:
        *(char **)at = control_take_nonempty(f, field->name);
        break;
    case CONTROL_STRV:
        control_take_strv(f, field->name, at);
        break;
    }
}

void control_take_table(struct control_fields *f,
                        const struct control_field *fields, void *m)
{
    for (; fields->name; fields++)
        take_field(f, fields, (char *)m + fields->at);
}

void control_take_present(struct control_fields *f,
                          const struct control_field *fields, void *m)
{
    for (; fields->name; fields++)
        if (json_object_get(f->object, fields->name))
            take_field(f, fields, (char *)m + fields->at);
}

void control_free_table(const struct control_field *fields, void *m)
{
    for (; fields->name; fields++) {
        char *at = (char *)m + fields->at;

        if (fields->kind == CONTROL_STRING || fields->kind == CONTROL_NONEMPTY)
            hb_free(*(char **)(void *)at);
        else if (fields->kind == CONTROL_STRV)
            hb_strv_free((struct hb_strv *)(void *)at);
    }
}

void control_nothing_left(struct control_fields *f)
{
    void *first = json_object_iter(f->object);

    if (f->rc == 0 && first)
        f->rc = hb_error_set(f->err, HVD_EPROTO, "%s: unknown field '%.64s'",
                             f->what, json_object_iter_key(first));
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

void control_fields_open_max(struct control_fields *f, const char *what,
                             const void *p, size_t len, size_t max_values,
                             struct hb_error *err)
{
    *f = (struct control_fields){.what = what, .err = err};
    f->rc = control_json_load(what, p, len, max_values, &f->object, err);
}

void control_fields_open(struct control_fields *f, const char *what,
                         const void *p, size_t len, struct hb_error *err)
{
    control_fields_open_max(f, what, p, len, CONTROL_VALUES_MAX, err);
}

int control_fields_close(struct control_fields *f)
{
    control_nothing_left(f);
    json_decref(f->object);
    f->object = NULL;
    return f->rc;
}

/* ---- Messages that are a table ---- */

int control_encode_message(struct hb_buf *out, const struct control_message *w,
                           const void *m)
{
    struct control_builder b;

    control_builder_init(&b);
    control_put_table(&b, w->fields, m);
    return control_builder_finish(&b, out, w->type);
}

int control_decode_message(const struct control_message *w, const void *p,
                           size_t len, void *m, struct hb_error *err)
{
    struct control_fields f;
    int rc;

    memset(m, 0, w->size);
    control_fields_open(&f, w->what, p, len, err);
    control_take_table(&f, w->fields, m);
    rc = control_fields_close(&f);
    if (rc < 0)
        control_message_fini(w, m);
    return rc;
}

void control_message_fini(const struct control_message *w, void *m)
{
    control_free_table(w->fields, m);
    memset(m, 0, w->size);
}
