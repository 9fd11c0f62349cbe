/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes own their texts and items; recursion is bounded by the readers. */
#include "cmd/hvdrun/options/config_tree.h"

#include "lib/base/alloc.h"

#include <string.h>

void config_node_fini(struct config_node *n)
{
    for (size_t i = 0; i < n->count; i++)
        config_node_fini(&n->items[i]);
    hb_free(n->items);
    hb_free(n->key);
    hb_free(n->text);
    memset(n, 0, sizeof(*n));
}

struct config_node *config_node_add(struct config_node *parent, const char *key,
                                    int line)
{
    struct config_node *n;

    if (parent->count == parent->cap) {
        parent->cap = parent->cap ? parent->cap * 2 : 8;
        parent->items = hb_xrealloc_array(parent->items, parent->cap,
                                          sizeof(*parent->items));
    }
    n = &parent->items[parent->count++];
    memset(n, 0, sizeof(*n));
    n->line = line;
    n->key = key ? hb_xstrdup(key) : NULL;
    return n;
}

void config_node_text(struct config_node *n, enum config_kind kind,
                      const char *text, size_t len)
{
    n->kind = kind;
    n->text = hb_xmalloc(len + 1);
    memcpy(n->text, text, len);
    n->text[len] = '\0';
    n->text_len = len;
}

const struct config_node *config_node_find(const struct config_node *map,
                                           const char *key)
{
    for (size_t i = 0; i < map->count; i++) {
        if (!strcmp(map->items[i].key, key))
            return &map->items[i];
    }
    return NULL;
}

const char *config_kind_name(enum config_kind kind)
{
    static const char *const names[] = {
        [CONFIG_NULL] = "nothing",    [CONFIG_BOOL] = "true or false",
        [CONFIG_NUMBER] = "a number", [CONFIG_STRING] = "a string",
        [CONFIG_LIST] = "a list",     [CONFIG_MAP] = "a section",
    };

    return names[kind];
}
