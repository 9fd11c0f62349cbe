/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of JSON control messages; see control_json.h. */
#include "lib/protocol/control_json.h"

#include "lib/base/alloc.h"

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
    /* Not UTF-8, or no memory, which the next calls find out. */
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

/* A heap copy of a string in either of its forms; NULL after a refusal. */
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

void control_nothing_left(struct control_fields *f)
{
    void *first = json_object_iter(f->object);

    if (f->rc == 0 && first)
        f->rc = hb_error_set(f->err, HVD_EPROTO, "%s: unknown field '%.64s'",
                             f->what, json_object_iter_key(first));
}

void control_fields_open(struct control_fields *f, const char *what,
                         const void *p, size_t len, struct hb_error *err)
{
    json_error_t why;

    f->what = what;
    f->err = err;
    f->rc = 0;
    f->object = json_loadb(p, len, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(f->object))
        return;
    if (!f->object && json_error_code(&why) == json_error_out_of_memory)
        control_no_memory(f);
    else
        f->rc = hb_error_set(err, HVD_EPROTO, "%s: not a JSON object: %s", what,
                             f->object ? "another value" : why.text);
}

int control_fields_close(struct control_fields *f)
{
    control_nothing_left(f);
    json_decref(f->object);
    f->object = NULL;
    return f->rc;
}
