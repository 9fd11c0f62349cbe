/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and connects the ranks on other hosts; see hosts.h. */
#include "runtime/core/world/hosts.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"
#include "runtime/plane/shm/shm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A rank's card, which it contributes to the fence: the wire format it speaks,
 * its host and port, and the host's name. */
enum { CARD_NUMBERS = 3, CARD_BYTES_MAX = 4 * CARD_NUMBERS + HVD__HOST_BYTES };

/* As --heartbeat; the limit is a day. */
enum { HEARTBEAT_MS = 15000, HEARTBEAT_MAX_MS = 86400000 };

/* Returns protocol version and byte order: data is sent as it is in memory. */
static uint32_t own_wire(void)
{
    const uint16_t one = 1;
    unsigned char first;

    memcpy(&first, &one, 1);
    return (uint32_t)TCP_AUTH_VERSION << 8 | (first ? 0 : 1);
}

struct card {
    uint32_t wire, host, port;
    char name[HVD__HOST_BYTES];
};

static int read_card(const void *p, size_t len, struct card *c)
{
    struct hb_reader r;
    size_t name = len - 4 * CARD_NUMBERS;

    if (len < 4 * CARD_NUMBERS || name >= sizeof(c->name))
        return -HVD_EPROTO;
    hb_reader_init(&r, p, len);
    c->wire = hb_read_u32(&r);
    c->host = hb_read_u32(&r);
    c->port = hb_read_u32(&r);
    memcpy(c->name, hb_read_bytes(&r, name), name);
    c->name[name] = '\0';
    return c->port > 0 && c->port < 65536 ? 0 : -HVD_EPROTO;
}

/* The state of hvd__hosts_join. */
struct search {
    struct hvd__hosts *h;
    const struct worker_welcome *w;
    uint32_t epoch;
    uint64_t deadline_ns;
    int forced;
    uint32_t hosts, own; /* number of hosts; this host */
    int listener;
    uint16_t port;
    struct card *cards; /* [size] */
    uint32_t *host_of;  /* [size] */
};

/* What connecting a lane needs. */
struct lane {
    struct hvd__hosts *h, *world;
    int me;                /* this rank in h->map */
    const uint32_t *ports; /* by rank in h->map */
    uint32_t group;
    int listener; /* closed in any case */
    uint64_t deadline_ns;
};

/* ---- Who is where -------------------------------------------------------- */

static int check_card(const struct search *s, uint32_t rank,
                      const struct card *c, struct hb_error *err)
{
    if (c->host >= s->hosts)
        return hb_error_set(err, HVD_EPROTO, "rank %u is on host %u of %u",
                            rank, c->host, s->hosts);
    if (c->wire == own_wire())
        return 0;
    if ((c->wire ^ own_wire()) & 1)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "rank %u on host %s has another byte order than "
                            "rank %u; use hosts of one kind",
                            rank, c->name, s->w->rank);
    return hb_error_set(err, HVD_EPROTO,
                        "rank %u on host %s speaks version %u between hosts, "
                        "rank %u version %u; use one release of libhvd",
                        rank, c->name, c->wire >> 8, s->w->rank,
                        own_wire() >> 8);
}

/* Checks that this rank is where its agent says. */
static int sits_well(const struct search *s)
{
    const struct hvd__map *map = &s->h->map;
    uint32_t local = s->forced ? 0 : s->w->local_rank;

    return s->host_of[s->w->rank] == s->own &&
           (int)local < hvd__map_local_size(map, (int)s->own) &&
           hvd__map_rank(map, (int)s->own, (int)local) == s->w->rank;
}

static int make_map(struct search *s, struct hb_error *err)
{
    struct hvd__map *map = &s->h->map;
    int size = (int)s->w->size, rc = 0;

    for (int r = 0; r < size && rc == 0; r++) {
        rc = check_card(s, (uint32_t)r, &s->cards[r], err);
        s->host_of[r] = s->cards[r].host;
    }
    if (rc == 0)
        rc = hvd__map_init(map, size, (int)s->hosts, s->host_of,
                           HVD__SHM_LOCAL_MAX, err);
    for (int r = 0; r < size && rc == 0; r++)
        hvd__map_name(map, (int)s->host_of[r], s->cards[r].name);
    if (rc == 0 && !sits_well(s))
        rc = hb_error_set(err, HVD_EPROTO,
                          "agent: what the ranks say of their hosts does not "
                          "fit");
    return rc;
}

/* ---- Connections --------------------------------------------------------- */

static int local_place(const struct hvd__map *map, int me)
{
    int host = (int)map->host_of[me], l = 0;

    while ((int)hvd__map_rank(map, host, l) != me)
        l++;
    return l;
}

/* Fills in peers[hosts], which borrow addresses of the world's hosts. */
static void find_peers(const struct lane *lane, struct hvd__tcp_peer *peers)
{
    const struct hvd__map *map = &lane->h->map, *world = &lane->world->map;
    int local = local_place(map, lane->me);

    for (int i = 0; i < map->hosts; i++) {
        uint32_t rank = hvd__map_rank(map, i, local);

        peers[i].rank = map->world[rank];
        peers[i].host = map->names[i];
        peers[i].address =
            lane->world->addresses[world->host_of[map->world[rank]]];
        peers[i].port = (uint16_t)lane->ports[rank];
    }
}

/* Tells the agent that the host of `rank` does not answer.  Returns whether the
 * job may go on without one of both. */
static int tell_no_answer(void *arg, uint32_t rank)
{
    const struct hvd__hosts *h = arg;
    const struct worker_no_answer m = {rank, h->generation};
    unsigned char frame[WORKER_NO_ANSWER_BYTES];

    worker_write_no_answer(frame, &m);
    hvd__agent_say(h->agent, frame, sizeof(frame));
    return h->generation > 0;
}

/* Connects the lane, if this rank has one, and closes the listener in any
 * case. */
static int connect_lane(struct lane *lane, struct hb_error *err)
{
    const struct hvd__map *map = &lane->h->map;
    struct hvd__tcp_peer *peers;
    struct tcp_auth auth = lane->world->auth;
    struct hvd__tcp_config config = {.count = map->hosts,
                                     .me = (int)map->host_of[lane->me],
                                     .auth = &auth,
                                     .listener = lane->listener,
                                     .deadline_ns = lane->deadline_ns,
                                     .agent_fd = lane->h->agent->fd,
                                     .agent_lost = hvd__hosts_lost,
                                     .host_of = hvd__hosts_name,
                                     .silence_ms = lane->world->silence_ms,
                                     .no_answer = tell_no_answer,
                                     .arg = lane->h};
    int rc;

    if (local_place(map, lane->me) >= map->lanes) {
        close(lane->listener);
        return 0;
    }
    peers = hb_calloc((size_t)map->hosts, sizeof(*peers));
    if (!peers) {
        close(lane->listener);
        return hb_error_set(err, HVD_ENOMEM, "no memory for %d hosts",
                            map->hosts);
    }
    find_peers(lane, peers);
    config.peers = peers;
    auth.group = lane->group;
    lane->h->generation = lane->world->generation;
    rc = hvd__tcp_open(&config, &lane->h->tcp, err);
    explicit_bzero(&auth, sizeof(auth));
    hb_free(peers);
    return rc;
}

static int connect_world(struct search *s, struct hb_error *err)
{
    struct lane lane = {.h = s->h,
                        .world = s->h,
                        .me = (int)s->w->rank,
                        .listener = s->listener,
                        .deadline_ns = s->deadline_ns};
    uint32_t *ports = s->host_of; /* the map has a copy by now */

    for (uint32_t r = 0; r < s->w->size; r++)
        ports[r] = s->cards[r].port;
    lane.ports = ports;
    s->listener = -1;
    return connect_lane(&lane, err);
}

static int make_room(struct search *s, struct hb_error *err)
{
    s->cards = hb_calloc(s->w->size, sizeof(*s->cards));
    s->host_of = hb_calloc(s->w->size, sizeof(*s->host_of));
    s->h->addresses = hb_calloc(s->hosts, sizeof(*s->h->addresses));
    return s->cards && s->host_of && s->h->addresses
               ? 0
               : hb_error_set(err, HVD_ENOMEM, "no memory for %u ranks",
                              s->w->size);
}

/* ---- What the agent is asked --------------------------------------------- */

/* Asks the agent for addresses; fails where hvdrun found no route to a host. */
static int ask_routes(struct search *s, struct hb_error *err)
{
    uint32_t own = s->w->host_index;
    int rc = hvd__agent_routes(s->h->agent, s->deadline_ns, s->w->host_count,
                               s->h->addresses, err);

    for (uint32_t i = 0; i < s->w->host_count && rc == 0; i++)
        if (i != own && !s->h->addresses[i][0])
            rc = hb_error_set(err, HVD_EPROTO,
                              "agent: no address for host %u of %u", i,
                              s->w->host_count);
    return rc;
}

/* Fills in addresses for HVD_FORCE_TCP, where each rank of this host is a
 * host. */
static int own_routes(struct search *s, struct hb_error *err)
{
    if (s->w->local_size != s->w->size)
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "HVD_FORCE_TCP is for jobs on one host; this one "
                            "is on %u",
                            s->w->host_count);
    for (uint32_t i = 0; i < s->hosts; i++)
        snprintf(s->h->addresses[i], sizeof(s->h->addresses[i]), "127.0.0.1");
    return 0;
}

static int take_cards(void *arg, const struct worker_value *values,
                      struct hb_error *err)
{
    struct search *s = arg;

    for (uint32_t r = 0; r < s->w->size; r++)
        if (read_card(values[r].value, values[r].len, &s->cards[r]) < 0)
            return hb_error_set(err, HVD_EPROTO,
                                "what rank %u says of itself is malformed", r);
    return 0;
}

static void put_u32(unsigned char *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(v >> (24 - 8 * i));
}

/* Tells all ranks where this one is, and learns where they are. */
static int show_card(struct search *s, struct hb_error *err)
{
    unsigned char card[CARD_BYTES_MAX];
    size_t name = strnlen(s->w->host, HVD__HOST_BYTES - 1);
    char scope[WORKER_SCOPE_MAX];
    struct hvd__fence fence = {.scope = scope,
                               .value = card,
                               .len = 4 * CARD_NUMBERS + name,
                               .size = s->w->size,
                               .take = take_cards,
                               .arg = s};

    put_u32(card, own_wire());
    put_u32(card + 4, s->own);
    put_u32(card + 8, s->port);
    memcpy(card + 4 * CARD_NUMBERS, s->w->host, name);
    snprintf(scope, sizeof(scope), "hosts.%u", s->epoch);
    return hvd__agent_fence(s->h->agent, &fence, s->deadline_ns, err);
}

/* ---- The world ----------------------------------------------------------- */

int hvd__hosts_forced(struct hb_error *err)
{
    int forced = 0, rc = hb_knob_bool("FORCE_TCP", &forced, err);

    return rc < 0 ? rc : forced;
}

static int search(struct search *s, struct hb_error *err)
{
    struct hvd__hosts *h = s->h;
    int rc;

    if (s->hosts < 2)
        return hb_error_set(err, HVD_EPROTO,
                            "%u of %u ranks are on host %s, and hvdrun did "
                            "not say where the others are",
                            s->w->local_size, s->w->size, s->w->host);
    rc = make_room(s, err);
    if (rc == 0)
        rc = s->forced ? own_routes(s, err) : ask_routes(s, err);
    if (rc == 0)
        rc = hvd__tcp_listen(h->addresses[s->own], &s->listener, &s->port, err);
    if (rc == 0)
        rc = show_card(s, err);
    if (rc == 0)
        rc = make_map(s, err);
    return rc == 0 ? connect_world(s, err) : rc;
}

/* Reads HVD_HEARTBEAT (hvdrun's --heartbeat) into *ms; 0: no limit. */
static int read_heartbeat(int64_t *ms, struct hb_error *err)
{
    const char *text = hb_knob("HEARTBEAT");

    *ms = HEARTBEAT_MS;
    if (text && hb_parse_duration_ms(text, ms, err) < 0)
        return hb_error_context(err, "HVD_HEARTBEAT");
    if (*ms > HEARTBEAT_MAX_MS)
        *ms = HEARTBEAT_MAX_MS;
    return 0;
}

int hvd__hosts_join(struct hvd__hosts *h, struct hvd__agent *agent,
                    const struct worker_welcome *w, uint32_t epoch,
                    uint64_t deadline_ns, struct hb_error *err)
{
    int forced = hvd__hosts_forced(err), codes = 1, rc;
    int64_t silence_ms;
    struct search s = {.h = h,
                       .w = w,
                       .epoch = epoch,
                       .deadline_ns = deadline_ns,
                       .forced = forced,
                       .hosts = forced ? w->size : w->host_count,
                       .own = forced ? w->rank : w->host_index,
                       .listener = -1};

    if (forced < 0)
        return forced;
    rc = hb_knob_bool("TCP_MAC", &codes, err);
    if (rc == 0)
        rc = read_heartbeat(&silence_ms, err);
    if (rc < 0)
        return rc;
    memset(h, 0, sizeof(*h));
    h->generation = w->generation;
    h->silence_ms = (uint32_t)silence_ms;
    h->agent = agent;
    h->rank = w->rank;
    h->auth.epoch = epoch;
    h->auth.codes = codes;
    memcpy(h->auth.secret, w->secret, sizeof(h->auth.secret));
    snprintf(h->auth.job_id, sizeof(h->auth.job_id), "%s", w->job_id);
    rc = search(&s, err);
    if (s.listener >= 0)
        close(s.listener);
    if (rc < 0)
        hvd__hosts_fini(h);
    hb_free(s.cards);
    hb_free(s.host_of);
    return rc;
}

/* ---- Process sets -------------------------------------------------------- */

/* What each rank of the world tells the others: where it listens, or why it
 * cannot. */
struct listen_report {
    int32_t status;
    uint32_t port; /* 0: not a member, or without a lane */
    char text[HB_ERROR_TEXT_MAX];
};

static int member_place(const struct hvd__subset *s, uint32_t rank)
{
    for (int i = 0; i < s->n; i++)
        if ((uint32_t)s->ranks[i] == rank)
            return i;
    return -1;
}

int hvd__subset_hosts(const struct hvd__subset *s)
{
    const uint32_t *host_of = s->world->map.host_of;
    int hosts = 0;

    for (int i = 0; i < s->n; i++) {
        int seen = 0;

        for (int k = 0; k < i && !seen; k++)
            seen = host_of[s->ranks[k]] == host_of[s->ranks[i]];
        hosts += !seen;
    }
    return hosts;
}

/* Makes a member's map, and listens if the member has a lane. */
static int prepare(struct lane *lane, const struct hvd__subset *s,
                   struct listen_report *mine, struct hb_error *err)
{
    struct hvd__hosts *world = lane->world;
    const char *address = world->addresses[world->map.host_of[world->rank]];
    uint16_t port = 0;
    int rc;

    rc = hvd__map_subset(&lane->h->map, &world->map, s->ranks, s->n, err);
    if (rc == 0 && local_place(&lane->h->map, lane->me) < lane->h->map.lanes)
        rc = hvd__tcp_listen(address, &lane->listener, &port, err);
    mine->port = port;
    return rc;
}

/* Reads the members' ports, or fails with the first rank's failure, on all
 * ranks alike. */
static int read_reports(const struct hvd__subset *s,
                        const struct listen_report *all, uint32_t *ports,
                        struct hb_error *err)
{
    const struct hvd__map *map = &s->world->map;

    for (int r = 0; r < map->size; r++) {
        if (all[r].status >= 0)
            continue;
        if (!err->status)
            err->is_told = r != (int)s->world->rank;
        return hb_error_set(err, hb_status_told(all[r].status),
                            "rank %d on host %s: %.*s", r,
                            hvd__map_host_name(map, (uint32_t)r),
                            (int)sizeof(all[r].text) - 1, all[r].text);
    }
    for (int i = 0; i < s->n; i++)
        ports[i] = all[s->ranks[i]].port;
    return 0;
}

/* Exchanges reports: tells all ranks where this one listens, or its failure so
 * far in err, and learns theirs.  Called even without memory to learn it, so
 * that no rank waits.  Returns 0, or the first failure of all ranks. */
static int exchange_reports(const struct hvd__subset *s,
                            struct listen_report *mine, uint32_t *ports,
                            struct hb_error *err)
{
    size_t size = (size_t)s->world->map.size;
    struct listen_report *all = hb_calloc(size, sizeof(*all));
    int rc;

    if ((!all || !ports) && !err->status)
        hb_error_set(err, HVD_ENOMEM, "no memory for %zu ranks", size);
    mine->status = err->status;
    snprintf(mine->text, sizeof(mine->text), "%s", err->text);
    hb_error_clear(err);
    rc = s->exchange(s->arg, mine, sizeof(*mine), all, err);
    if (rc == 0 && all && ports)
        rc = read_reports(s, all, ports, err);
    else if (rc == 0)
        rc = hb_error_set(err, (enum hvd_status) - mine->status, "%s",
                          mine->text);
    hb_free(all);
    return rc;
}

int hvd__hosts_subset(struct hvd__hosts *h, const struct hvd__subset *s,
                      struct hb_error *err)
{
    uint32_t *ports = hb_calloc((size_t)s->n, sizeof(*ports));
    struct hb_error own = HB_ERROR_INIT;
    struct listen_report mine = {0};
    struct lane lane = {.h = h,
                        .world = s->world,
                        .me = member_place(s, s->world->rank),
                        .ports = ports,
                        .group = s->group ? s->group : ++s->world->subsets,
                        .listener = -1,
                        .deadline_ns = s->deadline_ns};
    int rc;

    memset(h, 0, sizeof(*h));
    h->agent = s->world->agent;
    h->rank = s->world->rank;
    if (lane.me >= 0)
        prepare(&lane, s, &mine, &own);
    rc = exchange_reports(s, &mine, ports, &own);
    if (rc == 0 && lane.listener >= 0)
        rc = connect_lane(&lane, &own);
    else if (lane.listener >= 0)
        close(lane.listener);
    if (rc < 0) {
        hvd__hosts_fini(h);
        *err = own;
    }
    hb_free(ports);
    return rc;
}

/* ---- For planes ---------------------------------------------------------- */

int hvd__hosts_lost(void *arg, struct hb_error *err)
{
    struct hvd__hosts *h = arg;

    return hvd__agent_check(h->agent, err);
}

const char *hvd__hosts_name(void *arg, uint32_t rank)
{
    const struct hvd__hosts *h = arg;

    return hvd__map_host_name(&h->map, rank);
}

void hvd__hosts_fini(struct hvd__hosts *h)
{
    hvd__map_fini(&h->map);
    hb_free(h->addresses);
    explicit_bzero(h->auth.secret, sizeof(h->auth.secret));
    h->addresses = NULL;
}
