/* SPDX-License-Identifier: Apache-2.0 */
/* struct hb_strv and hb_env_*; see strv.h. */
#include "lib/base/strv.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/hvd_status.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

static void shrink_to(struct hb_strv *v, size_t count)
{
    while (v->count > count) {
        v->count--;
        hb_free(v->items[v->count]);
        v->items[v->count] = NULL;
    }
}

void hb_strv_free(struct hb_strv *v)
{
    shrink_to(v, 0);
    hb_free(v->items);
    memset(v, 0, sizeof(*v));
}

/* Makes room for one more string and the final NULL. */
static int make_room(struct hb_strv *v)
{
    size_t cap = v->cap ? v->cap * 2 : 8;
    char **items;

    if (v->count + 2 <= v->cap)
        return 0;
    items = hb_realloc_array(v->items, cap, sizeof(*items));
    if (!items)
        return -HVD_ENOMEM;
    items[v->count] = NULL;
    v->items = items;
    v->cap = cap;
    return 0;
}

/* Appends s and takes it over; frees it on failure.  A NULL s counts as a
 * failed allocation. */
static int push(struct hb_strv *v, char *s)
{
    if (!s || make_room(v) < 0) {
        hb_free(s);
        return -HVD_ENOMEM;
    }
    v->items[v->count++] = s;
    v->items[v->count] = NULL;
    return 0;
}

int hb_strv_add(struct hb_strv *v, const char *s)
{
    return push(v, hb_strdup(s));
}

int hb_strv_addf(struct hb_strv *v, const char *fmt, ...)
{
    struct hb_buf b = HB_BUF_INIT;
    va_list ap;
    int rc;

    va_start(ap, fmt);
    rc = hb_buf_vprintf(&b, fmt, ap);
    va_end(ap);
    if (rc == 0)
        rc = push(v, hb_buf_detach(&b));
    hb_buf_free(&b);
    return rc;
}

int hb_strv_add_all(struct hb_strv *v, char *const *items)
{
    size_t before = v->count;

    for (; items && *items; items++) {
        if (hb_strv_add(v, *items) < 0) {
            shrink_to(v, before);
            return -HVD_ENOMEM;
        }
    }
    return 0;
}

int hb_strv_split(struct hb_strv *v, const char *s, const char *seps)
{
    size_t before = v->count;

    for (;;) {
        size_t len = strcspn(s, seps);

        if (push(v, hb_strndup(s, len)) < 0) {
            shrink_to(v, before);
            return -HVD_ENOMEM;
        }
        if (s[len] == '\0')
            return 0;
        s += len + 1;
    }
}

/* Returns the index of the first item name=... from `from` on, or count. */
static size_t find(const struct hb_strv *env, const char *name, size_t from)
{
    size_t len = strlen(name), i;

    for (i = from; i < env->count; i++) {
        if (strncmp(env->items[i], name, len) == 0 && env->items[i][len] == '=')
            break;
    }
    return i;
}

const char *hb_env_get(const struct hb_strv *env, const char *name)
{
    size_t i = find(env, name, 0);

    return i < env->count ? env->items[i] + strlen(name) + 1 : NULL;
}

/* Removes all items of that name: inherited environments may hold several. */
static void remove_from(struct hb_strv *env, const char *name, size_t from)
{
    size_t i = from;

    while ((i = find(env, name, i)) < env->count) {
        hb_free(env->items[i]);
        memmove(&env->items[i], &env->items[i + 1],
                (env->count - i) * sizeof(*env->items));
        env->count--;
    }
}

/* Sets a variable; takes over `item`, the whole name=value. */
static int set_item(struct hb_strv *env, const char *name, char *item)
{
    size_t i = find(env, name, 0);

    if (!item || i == env->count)
        return push(env, item);
    hb_free(env->items[i]);
    env->items[i] = item;
    remove_from(env, name, i + 1);
    return 0;
}

static int name_is_valid(const char *name)
{
    return name[0] != '\0' && !strchr(name, '=');
}

int hb_env_set(struct hb_strv *env, const char *name, const char *value)
{
    if (!name_is_valid(name))
        return -HVD_EINVAL;
    if (!value) {
        remove_from(env, name, 0);
        return 0;
    }
    return hb_env_setf(env, name, "%s", value);
}

int hb_env_setf(struct hb_strv *env, const char *name, const char *fmt, ...)
{
    struct hb_buf b = HB_BUF_INIT;
    va_list ap;
    int rc;

    if (!name_is_valid(name))
        return -HVD_EINVAL;
    rc = hb_buf_printf(&b, "%s=", name);
    if (rc == 0) {
        va_start(ap, fmt);
        rc = hb_buf_vprintf(&b, fmt, ap);
        va_end(ap);
    }
    if (rc == 0)
        rc = set_item(env, name, hb_buf_detach(&b));
    hb_buf_free(&b);
    return rc;
}
