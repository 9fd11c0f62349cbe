/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the ranks on other hosts; see hosts.h. */
#include "runtime/core/hosts.h"

#include "lib/base/alloc.h"
#include "runtime/plane/shm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What each rank contributes: the wire it speaks, its host and port, and
 * the host's name. */
enum { CARD_NUMBERS = 3, CARD_BYTES_MAX = 4 * CARD_NUMBERS + HVD__HOST_BYTES };

/* Data crosses as it is in memory. */
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

/* Where it all stands until the connections are made. */
struct search {
    struct hvd__hosts *h;
    const struct worker_welcome *w;
    uint32_t epoch;
    uint64_t deadline_ns;
    int listener;
    uint16_t port;
    struct card *cards;                    /* [size] */
    uint32_t *host_of;                     /* [size] */
    struct hvd__tcp_peer *peers;           /* [hosts] */
    char (*addresses)[WORKER_ADDRESS_MAX]; /* [hosts] */
};

/* ---- Who is where ----------------------------------------------------- */

static int check_card(const struct search *s, uint32_t rank,
                      const struct card *c, struct hb_error *err)
{
    if (c->host >= s->w->host_count)
        return hb_error_set(err, HVD_EPROTO, "rank %u is on host %u of %u",
                            rank, c->host, s->w->host_count);
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

static int make_map(struct search *s, struct hb_error *err)
{
    struct hvd__map *map = &s->h->map;
    int size = (int)s->w->size, rc = 0;

    for (int r = 0; r < size && rc == 0; r++) {
        rc = check_card(s, (uint32_t)r, &s->cards[r], err);
        s->host_of[r] = s->cards[r].host;
    }
    if (rc == 0)
        rc = hvd__map_init(map, size, (int)s->w->host_count, s->host_of,
                           HVD__SHM_LOCAL_MAX, err);
    for (int r = 0; r < size && rc == 0; r++)
        hvd__map_name(map, (int)s->host_of[r], s->cards[r].name);
    if (rc == 0 && (s->host_of[s->w->rank] != s->w->host_index ||
                    hvd__map_rank(map, (int)s->w->host_index,
                                  (int)s->w->local_rank) != s->w->rank))
        rc = hb_error_set(err, HVD_EPROTO,
                          "agent: what the ranks say of their hosts does not "
                          "fit");
    return rc;
}

/* ---- Connections ------------------------------------------------------ */

static int connect_lane(struct search *s, struct hb_error *err)
{
    const struct hvd__map *map = &s->h->map;
    struct tcp_auth auth = {.epoch = s->epoch};
    struct hvd__tcp_config config = {.peers = s->peers,
                                     .count = map->hosts,
                                     .me = (int)s->w->host_index,
                                     .auth = &auth,
                                     .listener = s->listener,
                                     .deadline_ns = s->deadline_ns,
                                     .agent_fd = s->h->agent->fd,
                                     .agent_lost = hvd__hosts_lost,
                                     .host_of = hvd__hosts_name,
                                     .arg = s->h};
    int rc;

    for (int i = 0; i < map->hosts; i++) {
        uint32_t rank = hvd__map_rank(map, i, (int)s->w->local_rank);

        s->peers[i].rank = rank;
        s->peers[i].host = map->names[i];
        s->peers[i].port = (uint16_t)s->cards[rank].port;
    }
    memcpy(auth.secret, s->w->secret, sizeof(auth.secret));
    snprintf(auth.job_id, sizeof(auth.job_id), "%s", s->w->job_id);
    s->listener = -1; /* theirs now */
    rc = hvd__tcp_open(&config, &s->h->tcp, err);
    explicit_bzero(&auth, sizeof(auth));
    return rc;
}

static int make_room(struct search *s, struct hb_error *err)
{
    s->cards = hb_calloc(s->w->size, sizeof(*s->cards));
    s->host_of = hb_calloc(s->w->size, sizeof(*s->host_of));
    s->peers = hb_calloc(s->w->host_count, sizeof(*s->peers));
    s->addresses = hb_calloc(s->w->host_count, sizeof(*s->addresses));
    return s->cards && s->host_of && s->peers && s->addresses
               ? 0
               : hb_error_set(err, HVD_ENOMEM, "no memory for %u ranks",
                              s->w->size);
}

/* ---- What the agent is asked ------------------------------------------ */

/* Without routes, which is when hvdrun could not find any, nothing works. */
static int ask_routes(struct search *s, struct hb_error *err)
{
    uint32_t own = s->w->host_index;
    int rc = hvd__agent_routes(s->h->agent, s->deadline_ns, s->w->host_count,
                               s->addresses, err);

    for (uint32_t i = 0; i < s->w->host_count && rc == 0; i++) {
        s->peers[i].address = s->addresses[i];
        if (i != own && !s->addresses[i][0])
            rc = hb_error_set(err, HVD_EPROTO,
                              "agent: no address for host %u of %u", i,
                              s->w->host_count);
    }
    return rc;
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

/* Tells all ranks where this one is, and learns it of them. */
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
    put_u32(card + 4, s->w->host_index);
    put_u32(card + 8, s->port);
    memcpy(card + 4 * CARD_NUMBERS, s->w->host, name);
    snprintf(scope, sizeof(scope), "hosts.%u", s->epoch);
    return hvd__agent_fence(s->h->agent, &fence, s->deadline_ns, err);
}

/* ---- All of it -------------------------------------------------------- */

int hvd__hosts_join(struct hvd__hosts *h, struct hvd__agent *agent,
                    const struct worker_welcome *w, uint32_t epoch,
                    uint64_t deadline_ns, struct hb_error *err)
{
    struct search s = {.h = h,
                       .w = w,
                       .epoch = epoch,
                       .deadline_ns = deadline_ns,
                       .listener = -1};
    int rc;

    memset(h, 0, sizeof(*h));
    h->agent = agent;
    if (w->host_count < 2)
        return hb_error_set(err, HVD_EPROTO,
                            "%u of %u ranks are on host %s, and hvdrun did "
                            "not say where the others are",
                            w->local_size, w->size, w->host);
    rc = make_room(&s, err);
    if (rc == 0)
        rc = ask_routes(&s, err);
    if (rc == 0)
        rc = hvd__tcp_listen(s.addresses[w->host_index], &s.listener, &s.port,
                             err);
    if (rc == 0)
        rc = show_card(&s, err);
    if (rc == 0)
        rc = make_map(&s, err);
    if (rc == 0 && (int)w->local_rank < h->map.lanes)
        rc = connect_lane(&s, err);
    if (s.listener >= 0)
        close(s.listener);
    if (rc < 0)
        hvd__hosts_fini(h);
    hb_free(s.cards);
    hb_free(s.host_of);
    hb_free(s.peers);
    hb_free(s.addresses);
    return rc;
}

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
}
