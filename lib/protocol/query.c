/* SPDX-License-Identifier: Apache-2.0 */
/* See query.h. */
#include "lib/protocol/query.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/control/control_json.h"

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

int query_decode(const void *p, size_t len, int type, json_t **out,
                 struct hb_error *err)
{
    int is_answer = type == CONTROL_ANSWER;

    return control_json_load(
        is_answer ? "answer" : "query", p, len,
        is_answer ? CONTROL_ANSWER_VALUES_MAX : CONTROL_VALUES_MAX, out, err);
}

json_t *query_text(const char *s)
{
    char *copy = hb_xstrdup(s);
    json_t *v;

    hb_text_sanitize(copy);
    v = json_string(copy);
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
