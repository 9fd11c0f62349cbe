/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the hosts of one hvdrun share: options, the agent's image, and the queue
 * that limits how many are being reached at once; see remote_impl.h.
 *
 * sshd drops connections at random when ten are not yet authenticated
 * (MaxStartups 10:30:100), so at most eight go to one server, or through one
 * jump host, at a time.  A host holds its place from the start of its stream
 * until its shell has answered.
 */
#include "lib/remote/remote_impl.h"

#include "lib/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    CONFIGS_MAX = 16, /* `ssh -G` at once */
    GROUP_MAX = 8,
};

/* ---- Making ---- */

int remote_new(uv_loop_t *loop, const struct hb_log *log,
               const struct remote_options *options, struct remote **out,
               struct hb_error *err)
{
    struct remote *r = hb_xcalloc(1, sizeof(*r));
    int rc = 0;

    r->loop = loop;
    r->log = log;
    r->options = *options;
    r->last = &r->first;
    r->unready = r->holds_keys = 1;
    uv_update_time(loop);
    r->deadline_ms = uv_now(loop) + (uint64_t)options->start_timeout_ms;
    if (launcher_table[options->launcher].check)
        rc = launcher_table[options->launcher].check(r, err);
    if (rc < 0) {
        remote_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void remote_try_for(struct remote *r, int64_t timeout_ms)
{
    r->deadline_ms = uv_now(r->loop) + (uint64_t)timeout_ms;
}

void remote_ready(struct remote *r)
{
    r->unready--;
    if (r->unready == 0 && r->shared)
        r->plugin->forget_keys(r->shared);
}

void remote_release_keys(struct remote *r)
{
    if (r->holds_keys)
        remote_ready(r);
    r->holds_keys = 0;
}

void remote_free(struct remote *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->group_count; i++) {
        hb_free(r->groups[i]->key);
        hb_free(r->groups[i]);
    }
    hb_free(r->groups);
    if (r->shared)
        r->plugin->shared_free(r->shared);
    ssh_user_fini(&r->user);
    hb_strv_free(&r->rsh);
    agent_image_free(&r->image);
    hb_free(r);
}

const struct agent_image *remote_image(struct remote *r, struct hb_error *err)
{
    if (!r->image.bytes &&
        agent_image_read(r->options.agent_path, &r->image, err) < 0)
        return NULL;
    return &r->image;
}

/* ---- The queue ---- */

void remote_enqueue(struct remote_host *h)
{
    struct remote *r = h->remote;

    h->next = NULL;
    h->queued = 1;
    *r->last = h;
    r->last = &h->next;
}

void remote_dequeue(struct remote_host *h)
{
    struct remote *r = h->remote;
    struct remote_host **p = &r->first;

    if (!h->queued)
        return;
    while (*p != h)
        p = &(*p)->next;
    *p = h->next;
    if (r->last == &h->next)
        r->last = p;
    h->queued = 0;
    r->pump_again = 1; /* the current pass must not use h->next */
}

static int has_turn(const struct remote *r, const struct remote_host *h)
{
    int max = h->launcher->starts_max, option = r->options.max_startups;

    if (h->state == REMOTE_QUEUED_CONFIG)
        return r->configs < CONFIGS_MAX;
    if (h->group && h->group->starting >= GROUP_MAX)
        return 0;
    if (h->launcher->obeys_max_startups && option > 0 && option < max)
        max = option;
    return !max || r->starting < max;
}

static void take_place(struct remote_host *h)
{
    h->has_place = 1;
    h->remote->starting += h->launcher->starts_max > 0;
    if (h->group)
        h->group->starting++;
}

/* Starts hosts in one pass, until a turn changes the queue. */
static void pump_pass(struct remote *r)
{
    struct remote_host *h = r->first, *next;

    for (; h && !r->pump_again; h = next) {
        next = h->next;
        if (!has_turn(r, h))
            continue;
        remote_dequeue(h);
        r->pump_again = 0;
        if (h->state == REMOTE_QUEUED)
            take_place(h);
        remote_host_turn(h);
    }
}

void remote_pump(struct remote *r)
{
    r->pump_again = 1;
    if (r->pumping)
        return;
    r->pumping = 1;
    while (r->pump_again) {
        r->pump_again = 0;
        pump_pass(r);
    }
    r->pumping = 0;
}

void remote_leave(struct remote_host *h)
{
    struct remote *r = h->remote;

    if (!h->has_place)
        return;
    h->has_place = 0;
    r->starting -= h->launcher->starts_max > 0;
    if (h->group)
        h->group->starting--;
}

void remote_set_group(struct remote_host *h, const char *fmt, ...)
{
    struct remote *r = h->remote;
    char key[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(key, sizeof(key), fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < r->group_count; i++)
        if (strcmp(r->groups[i]->key, key) == 0) {
            h->group = r->groups[i];
            return;
        }
    r->groups = hb_xrealloc_array(r->groups, r->group_count + 1,
                                  sizeof(struct remote_group *));
    h->group = hb_xcalloc(1, sizeof(*h->group));
    h->group->key = hb_xstrdup(key);
    r->groups[r->group_count++] = h->group;
}
