/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads YAML by libyaml's events, not as documents: depth is checked before
 * anything is built, and aliases are refused rather than expanded, so a few
 * lines cannot become gigabytes.
 */
#include "cmd/hvdrun/options/config_tree.h"

#include <string.h>
#include <strings.h>
#include <yaml.h>

struct reader {
    yaml_parser_t yaml;
    const char *path;
    struct hb_error *err;
};

static int line_of(const yaml_mark_t *mark)
{
    return (int)mark->line + 1;
}

static int fail(struct reader *r, int line, const char *what)
{
    return hb_error_set(r->err, HVD_EINVAL, "%s:%d: %s", r->path, line, what);
}

static int next_event(struct reader *r, yaml_event_t *event)
{
    const yaml_parser_t *y = &r->yaml;

    if (yaml_parser_parse(&r->yaml, event))
        return 0;
    /* A byte that is not UTF-8 has an offset, not a line. */
    if (y->error == YAML_READER_ERROR)
        return hb_error_set(r->err, HVD_EINVAL, "%s: byte %zu: %s", r->path,
                            y->problem_offset, y->problem);
    return fail(r, line_of(&y->problem_mark),
                y->problem ? y->problem : "not YAML");
}

static int is_word(const char *text, const char *words)
{
    size_t len = strlen(text);

    while (*words) {
        size_t n = strcspn(words, " ");

        if (n == len && !strncasecmp(words, text, n))
            return 1;
        words += n + (words[n] == ' ');
    }
    return 0;
}

static int looks_like_number(const char *s)
{
    s += *s == '-' || *s == '+';
    return *s && s[strspn(s, "0123456789.eE+-")] == '\0' &&
           strpbrk(s, "0123456789");
}

/* Takes a scalar into n: a plain one has a type, a quoted one is a string. */
static int take_scalar(struct reader *r, const yaml_event_t *event,
                       struct config_node *n)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;
    int plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

    if (strlen(text) != len)
        return fail(r, line_of(&event->start_mark), "a zero byte");
    if (plain && (!len || is_word(text, "~ null")))
        config_node_text(n, CONFIG_NULL, "", 0);
    else if (plain && is_word(text, "true yes on"))
        config_node_text(n, CONFIG_BOOL, "true", 4);
    else if (plain && is_word(text, "false no off"))
        config_node_text(n, CONFIG_BOOL, "false", 5);
    else if (plain && looks_like_number(text))
        config_node_text(n, CONFIG_NUMBER, text, len);
    else
        config_node_text(n, CONFIG_STRING, text, len);
    return 0;
}

static int take_node(struct reader *r, const yaml_event_t *event,
                     struct config_node *n, int depth);

static int take_list(struct reader *r, struct config_node *n, int depth)
{
    for (;;) {
        yaml_event_t event;
        int end, rc = next_event(r, &event);

        if (rc < 0)
            return rc;
        end = event.type == YAML_SEQUENCE_END_EVENT;
        if (!end)
            rc = take_node(r, &event,
                           config_node_add(n, NULL, line_of(&event.start_mark)),
                           depth);
        yaml_event_delete(&event);
        if (end || rc < 0)
            return rc;
    }
}

/* Reads a key and its value; sets *end at the end of the map. */
static int take_pair(struct reader *r, struct config_node *n, int depth,
                     int *end)
{
    yaml_event_t key, value;
    const struct config_node *twin;
    const char *name;
    int line, rc = next_event(r, &key);

    if (rc < 0)
        return rc;
    line = line_of(&key.start_mark);
    name = (const char *)key.data.scalar.value;
    *end = key.type == YAML_MAPPING_END_EVENT;
    if (*end)
        goto out;
    if (key.type != YAML_SCALAR_EVENT ||
        strlen(name) != key.data.scalar.length) {
        rc = fail(r, line, "a key must be a plain word");
        goto out;
    }
    if (n->count == CONFIG_KEYS_MAX) {
        rc = fail(r, line, "more than 4096 keys in one section");
        goto out;
    }
    twin = config_node_find(n, name);
    if (twin) {
        rc = hb_error_set(r->err, HVD_EINVAL,
                          "%s:%d: '%s' is given twice, first on line %d",
                          r->path, line, name, twin->line);
        goto out;
    }
    rc = next_event(r, &value);
    if (rc < 0)
        goto out;
    rc = take_node(r, &value, config_node_add(n, name, line), depth);
    yaml_event_delete(&value);
out:
    yaml_event_delete(&key);
    return rc;
}

static int take_map(struct reader *r, struct config_node *n, int depth)
{
    int end = 0, rc = 0;

    while (!end && !rc)
        rc = take_pair(r, n, depth, &end);
    return rc;
}

static int take_node(struct reader *r, const yaml_event_t *event,
                     struct config_node *n, int depth)
{
    int line = line_of(&event->start_mark);

    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return take_scalar(r, event, n);
    case YAML_ALIAS_EVENT:
        return fail(r, line, "aliases (*name) are not supported");
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        break;
    default:
        return fail(r, line, "a value was expected");
    }
    if (depth == CONFIG_DEPTH_MAX)
        return fail(r, line, "nested too deeply");
    if (event->type == YAML_SEQUENCE_START_EVENT) {
        n->kind = CONFIG_LIST;
        return take_list(r, n, depth + 1);
    }
    n->kind = CONFIG_MAP;
    return take_map(r, n, depth + 1);
}

static int take_stream(struct reader *r, struct config_node *root)
{
    int documents = 0, rc = 0, end = 0;

    while (!rc && !end) {
        yaml_event_t event;

        rc = next_event(r, &event);
        if (rc < 0)
            break;
        switch (event.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            break;
        case YAML_STREAM_END_EVENT:
            end = 1;
            break;
        case YAML_DOCUMENT_START_EVENT:
            if (documents++)
                rc = fail(r, line_of(&event.start_mark),
                          "a second document; one file is one");
            break;
        default:
            root->line = line_of(&event.start_mark);
            rc = take_node(r, &event, root, 0);
        }
        yaml_event_delete(&event);
    }
    return rc;
}

int config_read_yaml(const char *path, const char *text, size_t len,
                     struct config_node *root, struct hb_error *err)
{
    struct reader r = {.path = path, .err = err};
    int rc;

    if (!yaml_parser_initialize(&r.yaml))
        return hb_error_set(err, HVD_ENOMEM, "%s: out of memory", path);
    yaml_parser_set_input_string(&r.yaml, (const unsigned char *)text, len);
    yaml_parser_set_encoding(&r.yaml, YAML_UTF8_ENCODING);
    rc = take_stream(&r, root);
    yaml_parser_delete(&r.yaml);
    return rc;
}
