/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A config file as a tree with line numbers, the same whether it was YAML
 * or JSON.  Both readers bound its depth and its sections and refuse duplicate
 * keys, so what they give is small and finite.
 */
#ifndef HVDRUN_CONFIG_TREE_H
#define HVDRUN_CONFIG_TREE_H

#include "lib/base/error.h"

#include <stddef.h>

enum { CONFIG_DEPTH_MAX = 8, CONFIG_KEYS_MAX = 4096 };

enum config_kind {
    CONFIG_NULL,   /* empty, ~ or null: as if the key were not there */
    CONFIG_BOOL,   /* true, false and YAML's other words for them */
    CONFIG_NUMBER, /* looks like one; text as written */
    CONFIG_STRING,
    CONFIG_LIST,
    CONFIG_MAP,
};

struct config_node {
    enum config_kind kind;
    int line;
    char *key;  /* in a map, else NULL */
    char *text; /* of a scalar; BOOL: "true" or "false"; owned */
    size_t text_len;
    struct config_node *items; /* items of a list or map */
    size_t count, cap;
};

void config_node_fini(struct config_node *n);

/* Appends an item to `parent` and returns it; `key` (copied) must be NULL in a
 * list.  The pointer is valid until the next item is added. */
struct config_node *config_node_add(struct config_node *parent, const char *key,
                                    int line);
void config_node_text(struct config_node *n, enum config_kind kind,
                      const char *text, size_t len);
const struct config_node *config_node_find(const struct config_node *map,
                                           const char *key);
/* Returns "a number", "a list", ... */
const char *config_kind_name(enum config_kind kind);

/* Parses text into *root, which the caller must release even after an error.
 * Errors begin with `path:line: `. */
int config_read_yaml(const char *path, const char *text, size_t len,
                     struct config_node *root, struct hb_error *err);
int config_read_json(const char *path, const char *text, size_t len,
                     struct config_node *root, struct hb_error *err);

#endif
