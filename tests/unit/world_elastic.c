/* SPDX-License-Identifier: Apache-2.0 */
/* Generations of an elastic test world: what hvdrun and its agents do about
 * them in a job. */
#include "tests/unit/world_impl.h"

#include "lib/base/sys/clock.h"

#include <string.h>
#include <sys/mman.h>

static struct conn *ready_conn(struct agent *a, int rank)
{
    for (int i = 0; i < a->conn_count; i++)
        if (a->conns[i].fd >= 0 && a->conns[i].rank == rank &&
            a->conns[i].is_ready)
            return &a->conns[i];
    return NULL;
}

static int is_late(const struct agent *a, int rank)
{
    return rank >= a->world->size - a->world->late && !a->was_member[rank];
}

/* Returns whether all living ranks wait for a generation; those that come late
 * need not.  *waiting: how many ranks do that were in none before. */
static int all_ready(struct agent *a, int *waiting)
{
    int missing = 0, ready = 0;

    *waiting = 0;
    for (int r = 0; r < a->world->size; r++) {
        int is_ready = ready_conn(a, r) != NULL;

        ready += is_ready && !is_late(a, r);
        missing += a->pidfds[r] >= 0 && !is_ready && !is_late(a, r);
        *waiting += is_ready && !a->was_member[r];
    }
    return ready > 0 && missing == 0;
}

int world_elastic_ended(const struct agent *a, const struct conn *c)
{
    struct worker_abort m = {.rank = (uint32_t)(a->dead - 1)};
    struct hb_buf out = HB_BUF_INIT;

    if (!a->world->elastic || !a->dead)
        return 0;
    snprintf(m.text, sizeof(m.text), "%s", a->why);
    need(worker_encode_abort(&out, &m) == 0, "abort");
    world_say(c, &out, -1);
    hb_buf_free(&out);
    return 1;
}

static void clear_hosts(struct agent *a)
{
    for (int i = 0; i < a->host_count; i++) {
        struct host *h = &a->hosts[i];

        if (h->head)
            munmap(h->head, h->head_bytes);
        memset(h, 0, sizeof(*h));
    }
}

/* Tells the rank that is to be removed, if there is one, and forgets that it is
 * ready. */
static void remove_rank(struct agent *a)
{
    int rank = atomic_exchange(&world_board->remove, 0) - 1;
    struct conn *c = rank < 0 ? NULL : ready_conn(a, rank);
    struct hb_buf out = HB_BUF_INIT;

    a->removed = c != NULL;
    if (!c)
        return;
    snprintf(a->why, sizeof(a->why), "rank %d is asked to leave", rank);
    need(worker_encode_removed(&out, a->why) == 0, "removed");
    world_say(c, &out, -1);
    hb_buf_free(&out);
    c->is_ready = 0;
}

static void begin(struct agent *a)
{
    struct conn *members[WORLD_RANKS_MAX];
    int spare = atomic_exchange(&world_board->spare, 0) - 1;

    clear_hosts(a);
    remove_rank(a);
    a->size = a->joined = 0;
    a->generation++;
    for (int r = 0; r < a->world->size; r++) {
        struct conn *c = ready_conn(a, r);

        a->number[r] = -1;
        if (r == spare)
            a->was_member[r] = 0;
        if (!c || r == spare)
            continue;
        a->joined += !a->was_member[r];
        a->was_member[r] = 1;
        a->number[r] = a->size;
        members[a->size++] = c;
        world_place(a, r);
    }
    for (int i = 0; i < a->size; i++) {
        members[i]->is_ready = 0;
        world_say_welcome(a, members[i]);
    }
    a->why[0] = '\0';
    a->dead = 0;
}

/* Tells the rank that is to be removed that it has a minute. */
static void give_notice(struct agent *a)
{
    int rank = atomic_load(&world_board->remove) - 1;
    struct host *h;

    if (rank < 0)
        return;
    h = &a->hosts[world_host_of(a->world, rank)];
    for (int i = 0; h->head && i < h->size; i++)
        if (h->ranks[i] == rank)
            segment_notice(h->head, (uint32_t)i,
                           hb_now_ns() + UINT64_C(60000000000));
}

void world_elastic_turn(struct agent *a)
{
    int waiting;

    if (all_ready(a, &waiting)) {
        begin(a);
        return;
    }
    if (!atomic_exchange(&world_board->change, 0) &&
        (waiting == 0 || a->generation == 0))
        return;
    give_notice(a);
    for (int i = 0; i < a->host_count; i++)
        if (a->hosts[i].head)
            segment_change(a->hosts[i].head);
}
