/* SPDX-License-Identifier: Apache-2.0 */
/* Writes fields of JSON control messages; see control_json.h. */
#include "lib/protocol/control/control_json.h"

#include "lib/base/sys/netaddr.h"

#include <assert.h>
#include <string.h>

/* ---- Values ---- */

static json_t *encode_hex(const void *bytes, size_t len)
{
    static const char hex_digits[] = "0123456789abcdef";
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
    if (json_object_set_new(wrapped, "hex", encode_hex(s, strlen(s))) < 0) {
        json_decref(wrapped);
        return NULL;
    }
    return wrapped;
}

static json_t *encode_strv(const struct hb_strv *v)
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

static int dump_to_buf(const char *bytes, size_t len, void *arg)
{
    return hb_buf_append(arg, bytes, len);
}

static json_t *encode_address(const struct hb_netaddr *address)
{
    char text[HB_NETADDR_TEXT_MAX];

    return json_string(hb_netaddr_format(address, text));
}

int64_t control_load_int(const struct control_field *field, const void *at)
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

char *control_load_array(const struct control_field *field, const char *m,
                         int *count)
{
    char *items;

    memcpy(&items, m + field->at, sizeof(items));
    memcpy(count, m + field->count_at, sizeof(*count));
    return items;
}

static json_t *encode_field(const struct control_field *field, const char *m);

static json_t *encode_element(const struct control_field *fields, const char *m)
{
    struct control_builder b;

    if (!fields->name[0])
        return encode_field(fields, m);
    control_builder_init(&b);
    control_put_table(&b, fields, m);
    if (!b.failed)
        return b.object;
    json_decref(b.object);
    return NULL;
}

static json_t *encode_array(const struct control_field *field, const char *m)
{
    json_t *array = json_array();
    int count;
    const char *item = control_load_array(field, m, &count);

    for (int i = 0; array && i < count; i++, item += field->size) {
        if (json_array_append_new(array, encode_element(field->element, item)) <
            0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* Returns the field of the struct at `m` as a new value; NULL if out of
 * memory. */
static json_t *encode_field(const struct control_field *field, const char *m)
{
    const void *at = m + field->at;
    int64_t v;

    switch (field->kind) {
    case CONTROL_INT:
        return json_integer(control_load_int(field, at));
    case CONTROL_BOOL:
        return json_boolean(control_load_int(field, at) != 0);
    case CONTROL_FLAG:
        return json_boolean((control_load_int(field, at) & field->max) != 0);
    case CONTROL_WORD:
        v = control_load_int(field, at);
        assert(v >= 0 && v <= field->max);
        return encode_string(field->words[v]);
    case CONTROL_STRING:
    case CONTROL_NONEMPTY:
        return encode_string(*(char *const *)at);
    case CONTROL_STRV:
        return encode_strv(at);
    case CONTROL_HEX:
        return encode_hex(at, field->size);
    case CONTROL_ADDRESS:
        return encode_address(at);
    case CONTROL_ARRAY:
        return encode_array(field, m);
    }
    return NULL;
}

void control_put_table(struct control_builder *b,
                       const struct control_field *fields, const void *m)
{
    for (; fields->name; fields++)
        control_put(b, fields->name, encode_field(fields, m));
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

int control_encode_message(struct hb_buf *out, const struct control_message *w,
                           const void *m)
{
    struct control_builder b;

    control_builder_init(&b);
    control_put_table(&b, w->fields, m);
    return control_builder_finish(&b, out, w->type);
}
