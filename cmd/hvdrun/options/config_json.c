/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON with jansson.  Its values have no line numbers; but objects keep
 * their order and duplicates are refused, so a cursor that walks the text in
 * parallel meets the same items in the same order.
 */
#include "cmd/hvdrun/options/config_tree.h"

#include <jansson.h>
#include <string.h>

struct cursor {
    const char *p, *end;
    int line;
};

/* Skips to the next byte that is not blank, `,` or `:`. */
static void skip_between(struct cursor *c)
{
    while (c->p < c->end && strchr(" \t\r\n,:", *c->p)) {
        c->line += *c->p == '\n';
        c->p++;
    }
}

static void skip_string(struct cursor *c)
{
    for (c->p++; c->p < c->end && *c->p != '"'; c->p++)
        c->p += *c->p == '\\';
    c->p++;
}

/* Skips a string, a number or a word; the text is known to be valid. */
static void skip_scalar(struct cursor *c)
{
    if (*c->p == '"') {
        skip_string(c);
        return;
    }
    while (c->p < c->end && !strchr(" \t\r\n,:]}", *c->p))
        c->p++;
}

static void take_scalar(const json_t *v, struct cursor *c,
                        struct config_node *n)
{
    const char *start = c->p;

    skip_scalar(c);
    switch (json_typeof(v)) {
    case JSON_STRING:
        config_node_text(n, CONFIG_STRING, json_string_value(v),
                         json_string_length(v));
        break;
    case JSON_TRUE:
        config_node_text(n, CONFIG_BOOL, "true", 4);
        break;
    case JSON_FALSE:
        config_node_text(n, CONFIG_BOOL, "false", 5);
        break;
    case JSON_NULL:
        config_node_text(n, CONFIG_NULL, "", 0);
        break;
    default:
        config_node_text(n, CONFIG_NUMBER, start, (size_t)(c->p - start));
    }
}

static int take_value(const char *path, json_t *v, struct cursor *c,
                      struct config_node *n, int depth, struct hb_error *err);

static int take_object(const char *path, json_t *v, struct cursor *c,
                       struct config_node *n, int depth, struct hb_error *err)
{
    const char *key;
    json_t *item;
    int rc = 0;

    n->kind = CONFIG_MAP;
    if (json_object_size(v) > CONFIG_KEYS_MAX)
        return hb_error_set(err, HVD_EINVAL,
                            "%s:%d: more than 4096 keys in one section", path,
                            c->line);
    json_object_foreach(v, key, item)
    {
        struct config_node *child;

        skip_between(c);
        child = config_node_add(n, key, c->line);
        skip_string(c);
        rc = take_value(path, item, c, child, depth, err);
        if (rc < 0)
            break;
    }
    return rc;
}

static int take_array(const char *path, json_t *v, struct cursor *c,
                      struct config_node *n, int depth, struct hb_error *err)
{
    int rc = 0;

    n->kind = CONFIG_LIST;
    for (size_t i = 0; !rc && i < json_array_size(v); i++) {
        skip_between(c);
        rc = take_value(path, json_array_get(v, i), c,
                        config_node_add(n, NULL, c->line), depth, err);
    }
    return rc;
}

static int take_value(const char *path, json_t *v, struct cursor *c,
                      struct config_node *n, int depth, struct hb_error *err)
{
    int rc;

    skip_between(c);
    if (!json_is_object(v) && !json_is_array(v)) {
        take_scalar(v, c, n);
        return 0;
    }
    if (depth == CONFIG_DEPTH_MAX)
        return hb_error_set(err, HVD_EINVAL, "%s:%d: nested too deeply", path,
                            c->line);
    c->p++; /* the bracket */
    rc = json_is_object(v) ? take_object(path, v, c, n, depth + 1, err)
                           : take_array(path, v, c, n, depth + 1, err);
    skip_between(c);
    c->p++;
    return rc;
}

int config_read_json(const char *path, const char *text, size_t len,
                     struct config_node *root, struct hb_error *err)
{
    struct cursor c = {text, text + len, 1};
    json_error_t problem;
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES, &problem);
    int rc;

    if (!v)
        return hb_error_set(err, HVD_EINVAL, "%s:%d: %s", path,
                            problem.line > 0 ? problem.line : 1, problem.text);
    skip_between(&c);
    root->line = c.line;
    rc = take_value(path, v, &c, root, 0, err);
    json_decref(v);
    return rc;
}
