/* SPDX-License-Identifier: Apache-2.0 */
/* See query.h. */
#include "lib/protocol/query.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/protocol/frame.h"

#include <string.h>

int query_encode(struct hb_buf *out, int type, const json_t *object)
{
    size_t len = json_dumpb(object, NULL, 0, JSON_COMPACT);
    char *text;
    int rc;

    if (len == 0)
        return -HVD_ENOMEM;
    if (len > FRAME_PAYLOAD_MAX)
        return -HVD_EINVAL;
    text = hb_malloc(len);
    if (!text)
        return -HVD_ENOMEM;
    json_dumpb(object, text, len, JSON_COMPACT);
    rc = frame_encode(out, (uint8_t)type, text, len);
    hb_free(text);
    return rc;
}

int query_decode(const void *p, size_t len, json_t **out, struct hb_error *err)
{
    json_error_t why;
    json_t *v = json_loadb(p, len, JSON_REJECT_DUPLICATES, &why);

    if (!v)
        return hb_error_set(err, HVD_EPROTO, "query: %s", why.text);
    if (!json_is_object(v)) {
        json_decref(v);
        return hb_error_set(err, HVD_EPROTO, "query: is not an object");
    }
    *out = v;
    return 0;
}

json_t *query_text(const char *s)
{
    char *copy = hb_xstrdup(s);
    json_t *v;

    hb_text_sanitize(copy);
    v = json_string(copy);
    if (!v) {
        for (char *c = copy; *c; c++)
            if ((unsigned char)*c >= 0x80)
                *c = '?';
        v = json_string(copy);
    }
    hb_free(copy);
    return v;
}

const char *query_string(const json_t *object, const char *name)
{
    const char *s = json_string_value(json_object_get(object, name));

    return s ? s : "";
}

json_int_t query_int(const json_t *object, const char *name, json_int_t none)
{
    const json_t *v = json_object_get(object, name);

    return json_is_integer(v) ? json_integer_value(v) : none;
}

int query_true(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}
