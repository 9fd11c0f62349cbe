/* SPDX-License-Identifier: Apache-2.0 */
/* Which address reaches whom; see route_choice.h. */
#include "lib/job/route/route_choice.h"

#include <limits.h>

_Static_assert(CONTROL_INTERFACES_MAX <= 64, "a bit per interface");

/* The quality of an address for a caller; more is better, and earlier members
 * count more. */
struct score {
    int loopback, real, speed, same_net, v4;
};

static uint64_t bit(int i)
{
    return UINT64_C(1) << i;
}

/* ---- Who tries whom ---- */

int route_targets(int host_count, int from, int targets[ROUTE_ALL_PAIRS])
{
    int all = host_count <= ROUTE_ALL_PAIRS;
    int near = all ? host_count - 1 : ROUTE_RING;
    int with_first = all || from == 0;
    int count = 0;

    for (int i = 1; i <= near; i++) {
        targets[count] = (from + i) % host_count;
        with_first |= targets[count] == 0;
        count++;
    }
    if (!with_first)
        targets[count++] = 0;
    return count;
}

int route_same_machine(const struct route_choice *c, int a, int b)
{
    int machine = c->hosts[a].machine;

    return a == b || (machine != 0 && machine == c->hosts[b].machine);
}

const struct route_try *route_find_try(const struct route_choice *c, int from,
                                       int to)
{
    const struct route_host *h = &c->hosts[from];

    for (int i = 0; i < h->try_count; i++)
        if (h->tries[i].to == to)
            return &h->tries[i];
    return NULL;
}

/* ---- The worth of an address ---- */

static int is_usable(const struct route_host *h, int i, unsigned without)
{
    return (h->usable & bit(i)) && !(h->interfaces->items[i].flags & without);
}

/* Returns the highest speed at which `from` can use an address: that of its
 * interface in the same network or, if there is a router between, of its
 * fastest.  Sets same_net. */
static int speed_of_caller(const struct route_host *from,
                           const struct hb_netaddr *address, int *same_net)
{
    int direct = 0, fastest = 0;

    *same_net = 0;
    for (int i = 0; i < from->interfaces->count; i++) {
        const struct control_interface *own = &from->interfaces->items[i];

        if (!is_usable(from, i, CONTROL_INTERFACE_LOOPBACK))
            continue;
        if (own->speed_mbps > fastest)
            fastest = own->speed_mbps;
        if (!hb_netaddr_same_net(&own->address, address, own->prefix))
            continue;
        *same_net = 1;
        if (own->speed_mbps > direct)
            direct = own->speed_mbps;
    }
    return *same_net ? direct : fastest;
}

static struct score score_for(const struct route_choice *c, int from, int to,
                              int i)
{
    const struct control_interface *there = &c->hosts[to].interfaces->items[i];
    struct score s = {
        .loopback = !!(there->flags & CONTROL_INTERFACE_LOOPBACK),
        .real = !(there->flags & CONTROL_INTERFACE_VIRTUAL),
        .speed = there->speed_mbps,
        .same_net = 1,
        .v4 = there->address.family == 4,
    };
    int speed;

    if (route_same_machine(c, from, to))
        return s;
    speed = speed_of_caller(&c->hosts[from], &there->address, &s.same_net);
    if (speed < s.speed)
        s.speed = speed;
    return s;
}

static int score_compare(const struct score *a, const struct score *b)
{
    if (a->loopback != b->loopback)
        return a->loopback - b->loopback;
    if (a->real != b->real)
        return a->real - b->real;
    if (a->speed != b->speed)
        return a->speed - b->speed;
    if (a->same_net != b->same_net)
        return a->same_net - b->same_net;
    return a->v4 - b->v4;
}

/* Returns the best address of `mask` for one caller; -1 if it is empty. */
static int best_for(const struct route_choice *c, int from, int to,
                    uint64_t mask)
{
    struct score best = {0};
    int found = -1;

    for (int i = 0; i < c->hosts[to].interfaces->count; i++) {
        struct score s;

        if (!(mask & bit(i)))
            continue;
        s = score_for(c, from, to, i);
        if (found < 0 || score_compare(&s, &best) > 0) {
            found = i;
            best = s;
        }
    }
    return found;
}

/* Returns the addresses of `to` that `from` can use, as far as is known without
 * a try. */
static uint64_t eligible(const struct route_choice *c, int from, int to)
{
    const struct route_host *a = &c->hosts[from], *b = &c->hosts[to];
    int one = route_same_machine(c, from, to);
    uint64_t mask = 0;

    for (int i = 0; i < b->interfaces->count; i++) {
        int own = 0;

        if (!is_usable(b, i, one ? 0 : CONTROL_INTERFACE_LOOPBACK))
            continue;
        /* An address that both hosts have leads back to the caller. */
        for (int k = 0; !one && a->machine && k < a->interfaces->count; k++)
            own |= hb_netaddr_equal(&a->interfaces->items[k].address,
                                    &b->interfaces->items[i].address);
        if (!own)
            mask |= bit(i);
    }
    return mask;
}

int route_candidates(const struct route_choice *c, int from, int to,
                     int candidates[ROUTE_CANDIDATES_MAX])
{
    uint64_t mask = eligible(c, from, to);
    int count = 0;

    while (mask && count < ROUTE_CANDIDATES_MAX) {
        candidates[count] = best_for(c, from, to, mask);
        mask &= ~bit(candidates[count++]);
    }
    return count;
}

/* ---- The choice ---- */

/* Returns the interfaces of `to` that `from` reaches; *known is 0 if it did not
 * try. */
static uint64_t reached_by(const struct route_choice *c, int from, int to,
                           int *known)
{
    const struct route_try *t;

    *known = from != to && !c->hosts[from].absent;
    if (!*known)
        return 0;
    if (route_same_machine(c, from, to))
        return eligible(c, from, to);
    t = route_find_try(c, from, to);
    *known = t != NULL;
    return t ? t->reached : 0;
}

/* Returns the address of `mask` whose lowest score, over those that reached it,
 * is highest. */
static int best_for_all(const struct route_choice *c, int to, uint64_t mask)
{
    struct score best = {0};
    int found = -1;

    for (int i = 0; i < c->hosts[to].interfaces->count; i++) {
        struct score least = {INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX};

        if (!(mask & bit(i)))
            continue;
        for (int from = 0; from < c->count; from++) {
            int known;
            struct score s;

            if (!(reached_by(c, from, to, &known) & bit(i)))
                continue;
            s = score_for(c, from, to, i);
            if (score_compare(&s, &least) < 0)
                least = s;
        }
        if (found < 0 || score_compare(&least, &best) > 0) {
            found = i;
            best = least;
        }
    }
    return found;
}

static void choose_one(struct route_choice *c, int to)
{
    struct route_host *h = &c->hosts[to];
    int counts[CONTROL_INTERFACES_MAX] = {0}, most = 0;
    uint64_t all = ~UINT64_C(0), top = 0;

    h->common = h->popular = -1;
    for (int from = 0; from < c->count; from++) {
        int known;
        uint64_t mask = reached_by(c, from, to, &known);

        /* A host that reaches nothing does not count here; it is reported
         * elsewhere. */
        if (!mask)
            continue;
        all &= mask;
        for (int i = 0; i < h->interfaces->count; i++) {
            counts[i] += !!(mask & bit(i));
            if (counts[i] > most)
                most = counts[i];
        }
    }
    if (most == 0)
        return;
    for (int i = 0; i < h->interfaces->count; i++)
        if (counts[i] == most)
            top |= bit(i);
    h->popular = best_for_all(c, to, top);
    if (all)
        h->common = h->popular;
}

void route_choose(struct route_choice *c)
{
    for (int to = 0; to < c->count; to++)
        choose_one(c, to);
}

/* Chooses for a pair that was not tried: an address that some host reached, in
 * a network of from's own if possible, else the one that most reached. */
static int guess(const struct route_choice *c, int from, int to)
{
    const struct route_host *b = &c->hosts[to];
    uint64_t near = 0;

    for (int k = 0; k < c->count; k++) {
        int known;
        uint64_t mask = reached_by(c, k, to, &known);

        for (int i = 0; mask && i < b->interfaces->count; i++) {
            int same_net = 0;

            if (mask & bit(i) & ~near)
                speed_of_caller(&c->hosts[from],
                                &b->interfaces->items[i].address, &same_net);
            if (same_net)
                near |= bit(i);
        }
    }
    near &= eligible(c, from, to);
    return near ? best_for(c, from, to, near) : b->popular;
}

int route_pick(const struct route_choice *c, int from, int to)
{
    const struct route_host *b = &c->hosts[to];
    uint64_t mask;
    int known;

    if (from == to)
        return b->common;
    mask = reached_by(c, from, to, &known);
    if (known && !mask)
        return -1;
    if (b->common >= 0)
        return b->common;
    return known ? best_for(c, from, to, mask) : guess(c, from, to);
}
