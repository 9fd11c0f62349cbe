/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs from /proc and /dev; see gpu_list.h. */
#include "lib/agent/machine/gpu_list.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/env.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { NUMBER_MAX = 999999 };

static void add(struct gpu_list *l, int ordinal, int minor, const char *uuid)
{
    struct gpu *g;

    if (l->count == GPU_MAX)
        return;
    l->items =
        hb_xrealloc_array(l->items, (size_t)l->count + 1, sizeof(*l->items));
    g = &l->items[l->count++];
    g->ordinal = ordinal;
    g->minor = minor;
    snprintf(g->uuid, sizeof(g->uuid), "%s", uuid);
}

/* Returns a minor number or an index: s must be all digits; else -1. */
static int number(const char *s)
{
    int64_t v = -1;

    (void)hb_parse_i64(s, 0, NUMBER_MAX, &v, NULL);
    return (int)v;
}

/* Copies the value of a line "Label: \t value" into value: 1, or 0. */
static int field(const char *text, const char *label, char *value, size_t size)
{
    const char *p = strstr(text, label);
    size_t len;

    if (!p)
        return 0;
    p += strlen(label);
    p += strspn(p, " \t");
    len = strcspn(p, " \t\n");
    if (len == 0 || len >= size)
        return 0;
    memcpy(value, p, len);
    value[len] = '\0';
    return 1;
}

static void read_information(const char *path, struct gpu_list *l)
{
    char text[4096], uuid[96] = "", minor[16] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return;
    text[n] = '\0';
    field(text, "GPU UUID:", uuid, sizeof(uuid));
    if (strncmp(uuid, "GPU-", 4) != 0 || strchr(uuid, '?'))
        uuid[0] = '\0';
    if (field(text, "Device Minor:", minor, sizeof(minor)))
        add(l, 0, number(minor), uuid);
}

static void read_driver(const char *root, struct gpu_list *l)
{
    char path[PATH_MAX];
    struct dirent *e;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus", root);
    dir = opendir(path);
    if (!dir)
        return;
    while ((e = readdir(dir))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path),
                 "%s/proc/driver/nvidia/gpus/%s/information", root, e->d_name);
        read_information(path, l);
    }
    closedir(dir);
}

static int has_node(const char *root, int minor)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/dev/nvidia%d", root, minor);
    return access(path, F_OK) == 0;
}

/* Drops GPUs without a device node: in a container the driver may show GPUs
 * that the container does not have.  If none has a node, all stay: the nodes
 * are made when CUDA is first used. */
static void drop_others(const char *root, struct gpu_list *l)
{
    int kept = 0;

    for (int i = 0; i < l->count; i++)
        if (has_node(root, l->items[i].minor))
            l->items[kept++] = l->items[i];
    if (kept > 0)
        l->count = kept;
}

static void read_nodes(const char *root, struct gpu_list *l)
{
    char path[PATH_MAX];
    struct dirent *e;
    DIR *dir;

    /* Spares hosts without GPUs a walk over /dev. */
    snprintf(path, sizeof(path), "%s/dev/nvidiactl", root);
    if (access(path, F_OK) < 0)
        return;
    snprintf(path, sizeof(path), "%s/dev", root);
    dir = opendir(path);
    if (!dir)
        return;
    while ((e = readdir(dir)))
        if (strncmp(e->d_name, "nvidia", 6) == 0 && number(e->d_name + 6) >= 0)
            add(l, 0, number(e->d_name + 6), "");
    closedir(dir);
}

static int by_minor(const void *a, const void *b)
{
    const struct gpu *x = a, *y = b;

    return (x->minor > y->minor) - (x->minor < y->minor);
}

static const struct gpu *match(const struct gpu_list *all, const char *name)
{
    const struct gpu *found = NULL;
    int index = number(name);

    if (index >= 0)
        return index < all->count ? &all->items[index] : NULL;
    if (strncasecmp(name, "GPU-", 4) != 0)
        return NULL;
    for (int i = 0; i < all->count; i++) {
        if (strncasecmp(all->items[i].uuid, name, strlen(name)) != 0)
            continue;
        if (found)
            return NULL;
        found = &all->items[i];
    }
    return found;
}

static void select_visible(struct gpu_list *all, const char *visible)
{
    struct gpu_list chosen = {NULL, 0};
    char *copy = hb_xstrdup(visible), *rest = copy, *name;

    while ((name = strsep(&rest, ","))) {
        const struct gpu *g;

        name += strspn(name, " ");
        name[strcspn(name, " ")] = '\0';
        g = match(all, name);
        if (g)
            add(&chosen, g->ordinal, g->minor, g->uuid);
        else if (strncmp(name, "MIG-", 4) == 0)
            add(&chosen, -1, -1, name);
        else
            break;
    }
    hb_free(copy);
    hb_free(all->items);
    *all = chosen;
}

void gpu_list_read(const char *root, const char *visible, struct gpu_list *out)
{
    struct gpu_list l = {NULL, 0};

    read_driver(root, &l);
    drop_others(root, &l);
    if (l.count == 0)
        read_nodes(root, &l);
    if (l.count > 0)
        qsort(l.items, (size_t)l.count, sizeof(*l.items), by_minor);
    for (int i = 0; i < l.count; i++)
        l.items[i].ordinal = i;
    if (visible && l.count > 0)
        select_visible(&l, visible);
    *out = l;
}

void gpu_list_fini(struct gpu_list *l)
{
    hb_free(l->items);
    l->items = NULL;
    l->count = 0;
}

int gpu_of(const struct gpu_list *l, int local_rank, int per_rank, int i)
{
    return (int)(((long)local_rank * per_rank + i) % l->count);
}

char *gpu_visible(const struct gpu_list *l, int local_rank, int per_rank)
{
    struct hb_buf b = HB_BUF_INIT;

    for (int i = 0; i < per_rank; i++) {
        const struct gpu *g = &l->items[gpu_of(l, local_rank, per_rank, i)];

        if (i)
            hb_buf_putc(&b, ',');
        if (g->uuid[0])
            hb_buf_puts(&b, g->uuid);
        else
            hb_buf_printf(&b, "%d", g->ordinal);
    }
    return hb_buf_detach(&b);
}

int gpu_check(const struct gpu_list *l, int ranks, int per_rank, int share,
              struct hb_error *err)
{
    long needed = (long)(share ? 1 : ranks) * per_rank;
    const char *s = per_rank == 1 ? "" : "s";

    if (needed <= l->count)
        return 0;
    if (share || l->count < per_rank)
        return hb_error_set(err, HVD_EINVAL,
                            "a rank needs %d GPU%s, this host has %d; "
                            "nvidia-smi lists what its driver sees",
                            per_rank, s, l->count);
    return hb_error_set(err, HVD_EINVAL,
                        "%d ranks with %d GPU%s each need %ld GPUs, this "
                        "host has %d; use fewer ranks, or share them with "
                        "--oversubscribe-gpu",
                        ranks, per_rank, s, needed, l->count);
}
