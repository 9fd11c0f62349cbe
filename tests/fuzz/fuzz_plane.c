/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations whose peers send nonsense.  Between hosts: the leaders' messages,
 * which come from a stand-in for TCP in this file.  In shared memory: a peer's
 * part of the segment.  Peers behave correctly except for the changes that the
 * input makes.  Without changes, results are right.  With changes, an operation
 * fails, is cut to what this rank can do, or succeeds with no more data than
 * recvbuf has room for.  Some gathers ask for recvbuf when the sizes are known,
 * and of these some do not get it.
 *
 * The input: one byte for the shape of the group, then operations.  Each is a
 * byte for the kind, two for the count, one for the number of changes, then the
 * changes: where, and eight bytes to write there.
 */
#include "runtime/plane/hier/hier_impl.h"
#include "runtime/plane/shm/shm_impl.h"
#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>

enum {
    SIZE_MAX_RANKS = 5,
    OPS_MAX = 4,
    CHANGES_MAX = 7,
    EXCHANGES_MAX = 24,
    TURNS_MAX = 60,
    ARENA_BYTES = 16 << 10,
    ROUNDS = 8,   /* done by peers in shared memory */
    IN_SLOTS = 1, /* an alltoall's data is: enum how of shm_alltoall.c */
    SIZE_MOST = 2 * ROUNDS * SHM_SLOT_BYTES, /* of what a peer has in slots */
    ASKED_MOST = 1 << 20, /* bytes that an operation gets when it asks */
    OWN_VALUE = 1,        /* of elements of this host */
    OTHER_VALUE = 34      /* of elements of other hosts */
};

static uint64_t take(struct fuzz_input *in, int bytes)
{
    uint64_t v = 0;

    while (bytes-- > 0)
        v = v << 8 | fuzz_take(in);
    return v;
}

struct change {
    unsigned which; /* exchange and peer to change */
    size_t at;
    uint64_t value;
};

static struct change changes[CHANGES_MAX];
static unsigned change_count;
static const struct hvd__op *current;

static void take_changes(struct fuzz_input *in)
{
    change_count = (unsigned)take(in, 1) % (CHANGES_MAX + 1);
    for (unsigned i = 0; i < change_count; i++)
        changes[i] = (struct change){(unsigned)take(in, 1), (size_t)take(in, 2),
                                     take(in, 8)};
}

/* ---- Operations ---- */

struct work {
    struct hvd__op op;
    struct hb_error err;
    unsigned char *send, *recv;
    size_t sendcounts[SIZE_MAX_RANKS], recvcounts[SIZE_MAX_RANKS];
    size_t room; /* bytes at recv */
    int asks;    /* for recv, once the sizes are known */
    int stingy;  /* it gets none */
    int rc;
};

static void *give_memory(void *arg, size_t member, size_t count,
                         const size_t *recvcounts)
{
    struct work *w = arg;
    size_t sum = 0;

    FUZZ_CHECK(member == 0 && recvcounts == w->recvcounts && !w->recv);
    for (int r = 0; r < SIZE_MAX_RANKS; r++)
        sum += recvcounts[r];
    FUZZ_CHECK(sum == count);
    if (w->stingy || count > ASKED_MOST)
        return NULL;
    w->room = count;
    w->recv = malloc(count ? count : 1);
    FUZZ_CHECK(w->recv);
    return w->recv;
}

static void work_init(struct work *w, unsigned how, size_t count, int n)
{
    static const enum hvd__kind kinds[] = {HVD__ALLREDUCE, HVD__BROADCAST,
                                           HVD__ALLGATHER, HVD__BARRIER,
                                           HVD__ALLTOALL,  HVD__REDUCESCATTER};
    size_t each = count;

    memset(w, 0, sizeof(*w));
    hb_error_clear(&w->err);
    w->op = (struct hvd__op){.kind = kinds[how % 6],
                             .dtype = HVD_UINT8,
                             .part_dtype = HVD_UINT8,
                             .elem_bytes = 1,
                             .row_elems = 1,
                             .prescale = 1.0,
                             .postscale = 1.0,
                             .name = "x",
                             .signature = 1000 + how,
                             .first_signature = 2000 + how,
                             .entries = 1 + how / 6 % 4,
                             .args = {1.0, 1.0, 1, 0},
                             .err = &w->err};
    w->room = (size_t)n * count;
    if (w->op.kind == HVD__BARRIER)
        each = 0;
    if (w->op.kind == HVD__BROADCAST)
        w->op.root = (int)(how / 24) % n;
    if (w->op.kind == HVD__ALLREDUCE || w->op.kind == HVD__REDUCESCATTER) {
        w->op.op = HVD_SUM;
        w->op.reduce = hvd__reduce_get(HVD_UINT8, HVD_SUM);
    }
    if (w->op.kind == HVD__ALLTOALL) {
        each = w->room;
        for (int r = 0; r < n; r++)
            w->sendcounts[r] = count;
        w->op.sendcounts = w->sendcounts;
    }
    if (w->op.kind == HVD__ALLGATHER || w->op.kind == HVD__ALLTOALL) {
        w->asks = how / 48 % 2 != 0;
        w->stingy = how / 96 != 0;
        w->op.recvcap = w->asks ? 0 : w->room;
        w->op.recvcounts = w->recvcounts;
    } else {
        w->room = count;
    }
    w->send = malloc(each ? each : 1);
    FUZZ_CHECK(w->send);
    memset(w->send, OWN_VALUE, each);
    if (w->asks) {
        w->room = 0;
        w->op.alloc.fn = give_memory;
        w->op.alloc.arg = w;
    } else {
        w->recv = malloc(w->room ? w->room : 1);
        FUZZ_CHECK(w->recv);
    }
    w->op.sendbuf = w->send;
    w->op.recvbuf = w->recv;
    w->op.count = each;
}

static void work_free(struct work *w)
{
    free(w->send);
    free(w->recv);
}

static void check_outcome(const struct work *w, int n)
{
    size_t sum = 0;

    if (w->rc == HVD__CUT) {
        FUZZ_CHECK(w->op.agreed_entries <= w->op.entries);
        return;
    }
    FUZZ_CHECK(w->rc >= 0 || -w->rc == -w->err.status ||
               (w->rc == -HVD_EMISMATCH && !w->err.status));
    if (w->err.status)
        FUZZ_CHECK(w->err.text[0] && !strchr(w->err.text, '\n'));
    if (w->rc != 1 || !w->op.recvcounts)
        return;
    if (w->op.kind != HVD__ALLGATHER && w->op.kind != HVD__ALLTOALL)
        return;
    for (int r = 0; r < n; r++)
        sum += w->recvcounts[r];
    FUZZ_CHECK(sum <= w->room);
}

/* ---- The stand-in for TCP ---- */

struct hvd__tcp {
    const struct hvd__map *map;
    struct hvd__hier *plane;
    struct hvd__tcp_model model;
    int me, exchanges; /* of this operation */
};

static unsigned char *put(unsigned char *at, uint64_t v)
{
    hier_put_u64(at, v);
    return at + sizeof(v);
}

/* Writes what host i's leader sends if all agree; the head is the same. */
static size_t honest_word(const struct hvd__tcp *t, int i,
                          const unsigned char *own, size_t own_len,
                          unsigned char *out)
{
    const struct hvd__hier *h = t->plane;
    size_t bytes = hier_bytes(current), head = HIER_HEAD_BYTES;
    int local = hvd__map_local_size(t->map, i), pairs = local * h->local_size;
    unsigned char *at = out + head;

    memcpy(out, own, head);
    if (current->kind == HVD__ALLGATHER) {
        for (int l = 0; l < local; l++)
            at = put(at, bytes);
        bytes = hier_rides(h, bytes) ? bytes : 0;
    } else if (current->kind == HVD__ALLTOALL) {
        bytes = current->sendcounts[0];
        at = put(at, hier_rides(h, bytes) ? 0 : bytes);
        for (int k = 0; k < pairs; k++)
            at = put(at, bytes);
        bytes = hier_rides(h, bytes) ? bytes : 0;
    } else if (current->kind == HVD__BROADCAST) {
        if ((int)t->map->host_of[current->root] != i || !hier_small(h, current))
            bytes = 0;
    } else {
        memcpy(out, own, own_len);
        return own_len;
    }
    memset(at, OTHER_VALUE, bytes);
    return (size_t)(at - out) + bytes;
}

/* Puts peer i's message, with its changes, into its block. */
static void say(struct hvd__tcp *t, int i, const unsigned char *own,
                size_t own_len, struct hvd__tcp_block *block)
{
    static unsigned char word[HIER_BLOCK_MAX_BYTES + 4096];
    size_t len = honest_word(t, i, own, own_len, word);

    for (unsigned k = 0; k < change_count; k++) {
        const struct change *c = &changes[k];

        if ((c->which & 3) != 0 || (int)(c->which >> 2 & 3) != i)
            continue;
        if (c->which & 128)
            len = c->at;
        else
            hier_put_u64(word + c->at % (sizeof(word) - 8), c->value);
    }
    FUZZ_CHECK(len <= sizeof(word));
    if (len > block->len)
        len = block->len; /* TCP refuses longer ones */
    memcpy(block->p, word, len);
    block->len = len;
}

/* Fills the incoming tensor data. */
static void fill(const struct hvd__tcp *t, int i, struct hvd__tcp_block *block)
{
    unsigned char *p = block->p;

    if (block->len <= HIER_SCRATCH_BYTES)
        memset(p, OTHER_VALUE, block->len);
    else
        p[0] = p[block->len - 1] = OTHER_VALUE;
    for (unsigned k = 0; k < change_count; k++)
        if ((int)(changes[k].which & 3) == t->exchanges &&
            (int)(changes[k].which >> 2 & 3) == i && changes[k].which & 64)
            block->len = changes[k].at;
}

void hvd__tcp_exchange(struct hvd__tcp *t, const void *send, size_t len,
                       size_t words, struct hvd__tcp_block *blocks)
{
    FUZZ_CHECK(words <= len);
    for (int i = 0; i < t->map->hosts; i++)
        if (i != t->me && t->exchanges == 0)
            say(t, i, send, len, &blocks[i]);
        else if (i != t->me)
            fill(t, i, &blocks[i]);
    t->exchanges++;
}

void hvd__tcp_alltoallv(struct hvd__tcp *t, const struct hvd__tcp_block *send,
                        const size_t *words, struct hvd__tcp_block *recv,
                        int known)
{
    for (int i = 0; i < t->map->hosts; i++) {
        if (i == t->me)
            continue;
        FUZZ_CHECK(!words || words[i] <= send[i].len);
        if (send[i].len) /* all of it has arrived */
            (void)*(volatile unsigned char *)((unsigned char *)send[i].p +
                                              send[i].len - 1);
        if (!known)
            say(t, i, send[i].p, send[i].len, &recv[i]);
        else if (recv[i].len)
            fill(t, i, &recv[i]);
    }
    t->exchanges++;
}

int hvd__tcp_late(const struct hvd__tcp *t)
{
    return change_count ? (int)(changes[0].value % 4) % t->map->hosts : -1;
}

/* Reduces as if all members had the same data. */
static void multiply(const struct hvd__tcp *t,
                     const struct hvd__tcp_reduction *r)
{
    unsigned char *buf = r->buf;

    if (r->src)
        memmove(buf, r->src, r->count);
    for (size_t i = 0; i < r->count; i++)
        buf[i] = (unsigned char)(buf[i] * t->map->hosts);
}

enum hvd__tcp_algorithm hvd__tcp_allreduce(struct hvd__tcp *t,
                                           const struct hvd__tcp_reduction *r,
                                           enum hvd__tcp_algorithm a)
{
    (void)a;
    multiply(t, r);
    t->exchanges++;
    return HVD__TCP_RING;
}

void hvd__tcp_reduce_scatter(struct hvd__tcp *t,
                             const struct hvd__tcp_reduction *r,
                             const size_t *first)
{
    FUZZ_CHECK(first[0] == 0 && first[t->map->hosts] == r->count);
    multiply(t, r);
    t->exchanges++;
}

enum hvd__tcp_algorithm hvd__tcp_broadcast(struct hvd__tcp *t, void *buf,
                                           size_t bytes, int root,
                                           enum hvd__tcp_algorithm a)
{
    (void)a;
    FUZZ_CHECK(root >= 0 && root < t->map->hosts);
    if (root != t->me)
        memset(buf, OTHER_VALUE, bytes);
    t->exchanges++;
    return HVD__TCP_TREE;
}

/* Ends with an error after too many exchanges: the peer has hung up. */
int hvd__tcp_progress(struct hvd__tcp *t, struct hb_error *err)
{
    if (t->exchanges <= EXCHANGES_MAX)
        return 1;
    return hb_error_set(err, HVD_EPEER, "hung up");
}

int hvd__tcp_began(struct hvd__tcp *t, struct hb_error *err)
{
    (void)t;
    (void)err;
    return 0;
}

const struct hvd__tcp_model *hvd__tcp_model(const struct hvd__tcp *t)
{
    return &t->model;
}

int hvd__tcp_fd(const struct hvd__tcp *t, int member)
{
    (void)t;
    (void)member;
    return -1;
}

void hvd__tcp_tell_gone(struct hvd__tcp *t, uint32_t rank)
{
    FUZZ_CHECK(rank < (uint32_t)t->map->size);
}

void hvd__tcp_pause(struct hvd__tcp *t, uint64_t until_ns)
{
    (void)t;
    (void)until_ns;
}

void hvd__tcp_interrupt(struct hvd__tcp *t)
{
    (void)t;
}

void hvd__tcp_hang_up(struct hvd__tcp *t)
{
    (void)t;
}

void hvd__tcp_free(struct hvd__tcp *t)
{
    (void)t;
}

/* ---- The segment ---- */

static struct segment_head *segment_of(int n, int use)
{
    static struct segment_head *all[7][SIZE_MAX_RANKS + 1];
    struct segment_head **heads = all[use];
    size_t bytes = hvd__shm_arena_at(n, n, ARENA_BYTES);

    if (!heads[n]) {
        heads[n] = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        FUZZ_CHECK(heads[n] != MAP_FAILED);
    }
    memset((void *)heads[n], 0, segment_head_bytes((uint32_t)n));
    segment_head_init(heads[n], 1, (uint32_t)n, bytes);
    return heads[n];
}

/* use: the shape of the group, so that each shape has its own segment. */
static struct hvd__plane *shm_of(int n, int me, int use)
{
    static const uint32_t world[SIZE_MAX_RANKS] = {0, 1, 2, 3, 4};
    const struct hvd__shm_config config = {.head = segment_of(n, use),
                                           .local_rank = me,
                                           .local_size = n,
                                           .world_ranks = world,
                                           .host = "here",
                                           .cpus = 1,
                                           .arena_bytes = ARENA_BYTES};
    struct hvd__plane *p = hvd__shm_new(&config);

    FUZZ_CHECK(p);
    return p;
}

/* ---- Over hosts ---- */

enum { LOCAL_MAX = 2 };

struct hosts {
    struct hvd__map map;
    struct hvd__tcp tcp[LOCAL_MAX];
    struct hvd__plane *planes[LOCAL_MAX];
    int count; /* ranks of this process */
    int first; /* first of them */
};

static const char *const places[] = {"abc", "abc", "abc", "aab", "aabb", "ab"};

static void hosts_open(struct hosts *w, unsigned shape)
{
    const char *place = places[shape % 6];
    uint32_t host_of[SIZE_MAX_RANKS] = {0};
    int size = (int)strlen(place), hosts = place[size - 1] - 'a' + 1;

    memset(w, 0, sizeof(*w));
    for (int r = 0; r < size; r++)
        host_of[r] = (uint32_t)(place[r] - 'a');
    FUZZ_CHECK(hvd__map_init(&w->map, size, hosts, host_of, HVD__SHM_LOCAL_MAX,
                             NULL) == 0);
    for (int i = 0; i < hosts; i++)
        hvd__map_name(&w->map, i, "h");
    w->count = hvd__map_local_size(&w->map, 0);
    w->first = shape % 6 < 3 ? (int)(shape % 6) : 0;
    for (int l = 0; l < w->count; l++) {
        struct hvd__tcp *t = &w->tcp[l];
        struct hvd__hier_config config = {
            .map = &w->map,
            .rank = (uint32_t)(w->first + l),
            .shm = w->count > 1 ? shm_of(w->count, l, (int)(shape % 6)) : NULL,
            .tcp = l < w->map.lanes ? t : NULL,
            .segment_ranks = (uint32_t)w->count};

        if (config.shm)
            config.head = ((struct hvd__shm *)config.shm)->head;
        *t = (struct hvd__tcp){.map = &w->map,
                               .model = {hosts, 30.0, 1000.0},
                               .me = (int)w->map.host_of[w->first + l]};
        w->planes[l] = hvd__hier_new(&config);
        FUZZ_CHECK(w->planes[l]);
        t->plane = (struct hvd__hier *)w->planes[l];
    }
}

static void hosts_close(struct hosts *w)
{
    for (int l = 0; l < w->count; l++)
        w->planes[l]->ops->free(w->planes[l]);
    hvd__map_fini(&w->map);
    w->count = 0;
}

/* Returns whether all bytes at p have that value.  A loop would be slow with
 * the fuzzer's counters. */
static int are_all(const unsigned char *p, size_t len, unsigned char value)
{
    return len == 0 || (*p == value && memcmp(p, p + 1, len - 1) == 0);
}

/* Checks the result of an operation without changes. */
static void check_right(const struct hosts *w, const struct work *o)
{
    int n = w->map.size, own = (int)w->map.host_of[w->first];
    size_t count = o->op.kind == HVD__ALLTOALL ? o->sendcounts[0] : o->op.count;
    unsigned char sum = (unsigned char)(w->map.hosts * w->count);

    if (o->asks && count > 0 && (o->stingy || (size_t)n * count > ASKED_MOST)) {
        FUZZ_CHECK(o->rc == -HVD_ENOMEM);
        return;
    }
    FUZZ_CHECK(o->rc == 1);
    if (o->op.kind == HVD__ALLREDUCE)
        FUZZ_CHECK(are_all(o->recv, count, sum));
    for (int r = 0; r < n && o->op.recvcounts; r++) {
        int from = (int)w->map.host_of[r];

        FUZZ_CHECK(o->recvcounts[r] == count);
        FUZZ_CHECK(count == 0 ||
                   are_all(o->recv + (size_t)r * count, count,
                           from == own ? OWN_VALUE : OTHER_VALUE));
    }
}

/* Returns 0 if the planes cannot be used any more. */
static int hosts_run(struct hosts *w, struct work *works)
{
    int open = 0, fine = 1;

    for (int l = 0; l < w->count; l++) {
        w->tcp[l].exchanges = 0;
        current = &works[l].op;
        works[l].rc = w->planes[l]->ops->start(w->planes[l], &works[l].op);
        FUZZ_CHECK(works[l].rc == 0);
    }
    for (int turn = 0; turn < TURNS_MAX; turn++) {
        open = 0;
        for (int l = 0; l < w->count; l++) {
            current = &works[l].op;
            if (works[l].rc == 0)
                works[l].rc =
                    w->planes[l]->ops->progress(w->planes[l], &works[l].op);
            open += works[l].rc == 0;
        }
        if (!open)
            break;
    }
    for (int l = 0; l < w->count; l++) {
        check_outcome(&works[l], w->map.size);
        if (!change_count)
            check_right(w, &works[l]);
        FUZZ_CHECK(works[l].rc != HVD__CUT || works[l].op.agreed_entries > 0);
        fine &=
            works[l].rc != 0 && (works[l].rc > 0 || works[l].rc == HVD__CUT ||
                                 works[l].rc == -HVD_EMISMATCH ||
                                 hvd__op_alone(&works[l].op, works[l].rc));
    }
    return fine;
}

/* Keeps working planes, which have much memory, for the next input. */
static void over_hosts(struct fuzz_input *in, unsigned shape)
{
    static struct hosts worlds[6];
    struct hosts *w = &worlds[shape % 6];
    struct work works[LOCAL_MAX];
    int fine = 1;

    if (!w->count)
        hosts_open(w, shape);
    for (int k = 0; k < OPS_MAX && fine && in->p < in->end; k++) {
        unsigned how = (unsigned)take(in, 1);
        size_t count = (size_t)take(in, 2);

        take_changes(in);
        for (int l = 0; l < w->count; l++)
            work_init(&works[l], how, count, w->map.size);
        fine = hosts_run(w, works);
        for (int l = 0; l < w->count; l++)
            work_free(&works[l]);
    }
    if (!fine)
        hosts_close(w);
}

/* ---- In shared memory ---- */

/* Returns the bytes that a peer says it has for each rank (alltoall), or as a
 * whole; NULL if they are not in slots.  *n: the number of entries. */
static uint64_t *sizes_of(struct hvd__shm *p, int rank, int *n)
{
    struct shm_line *line = &p->ranks[rank].line[shm_parity(p)];

    *n = current->kind == HVD__ALLTOALL ? p->n : 1;
    if (current->kind == HVD__ALLGATHER)
        return line->places.send ? NULL : &line->bytes;
    if (current->kind != HVD__ALLTOALL || line->how != IN_SLOTS)
        return NULL;
    return p->n <= SHM_TABLE_MAX ? (uint64_t *)(void *)line->payload + 1
                                 : shm_counts(p, rank);
}

/* Cuts sizes that a plane would accept, up to PTRDIFF_MAX, to those that need a
 * few more rounds than the peers do: with a counter that says that all rounds
 * are done, a plane would go through each of up to 2^46 rounds.  All rounds
 * from the fifth on are alike.  Sizes that are refused stay. */
static void limit_rounds(struct hvd__shm *p)
{
    int n;

    for (int r = 1; r < p->n; r++) {
        uint64_t *sizes = sizes_of(p, r, &n);

        for (int i = 0; sizes && i < n; i++)
            if (sizes[i] > SIZE_MOST && sizes[i] <= PTRDIFF_MAX)
                sizes[i] = SIZE_MOST + sizes[i] % SHM_SLOT_BYTES;
    }
}

/* Makes all peers agree with this rank, then applies the changes. */
static void imitate(struct hvd__shm *p)
{
    for (int r = 1; r < p->n; r++) {
        struct shm_rank *rank = &p->ranks[r];
        int parity = shm_parity(p);

        memcpy((void *)&rank->line[parity], (void *)&p->ranks[0].line[parity],
               sizeof(rank->line[0]));
        memcpy(shm_counts(p, r), shm_counts(p, 0),
               (size_t)p->n * sizeof(uint64_t));
        atomic_store(&rank->filled.value, p->base + ROUNDS);
        atomic_store(&rank->drained.value, p->base + ROUNDS);
    }
    for (unsigned k = 0; k < change_count; k++) {
        const struct change *c = &changes[k];
        int r = 1 + (int)c->which % (p->n - 1);
        struct shm_rank *rank = &p->ranks[r];
        size_t room = sizeof(*rank);
        unsigned char *at = (unsigned char *)rank;

        if (c->which & 128) {
            room = sizeof(struct shm_line);
            at = (unsigned char *)&rank->line[shm_parity(p)];
        } else if (c->which & 64) {
            room = (size_t)p->n * sizeof(uint64_t);
            at = (unsigned char *)shm_counts(p, r);
        }
        memcpy(at + c->at % (room - 7), &c->value, sizeof(c->value));
    }
    limit_rounds(p);
}

static int shm_run(struct hvd__plane *plane, struct work *w)
{
    struct hvd__shm *p = (struct hvd__shm *)plane;

    w->rc = plane->ops->start(plane, &w->op);
    imitate(p);
    for (int turn = 0; turn < TURNS_MAX && w->rc == 0; turn++)
        w->rc = plane->ops->progress(plane, &w->op);
    check_outcome(w, p->n);
    return w->rc > 0 || w->rc == HVD__CUT || w->rc == -HVD_EMISMATCH ||
           (w->rc < 0 && hvd__op_alone(&w->op, w->rc));
}

static void in_memory(struct fuzz_input *in, unsigned shape)
{
    int n = 2 + (int)(shape % (SIZE_MAX_RANKS - 1)), fine = 1;
    struct hvd__plane *plane = shm_of(n, 0, 6);
    struct hvd__shm *p = (struct hvd__shm *)plane;
    struct work w;

    memset((void *)&p->ranks[1], 0, (size_t)(n - 1) * sizeof(p->ranks[1]));
    for (int k = 0; k < OPS_MAX && fine && in->p < in->end; k++) {
        unsigned how = (unsigned)take(in, 1);
        size_t count = (size_t)take(in, 2);

        take_changes(in);
        work_init(&w, how, count, n);
        current = &w.op;
        fine = shm_run(plane, &w);
        work_free(&w);
    }
    plane->ops->free(plane);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    unsigned shape = (unsigned)take(&in, 1);

    if (shape & 128)
        in_memory(&in, shape & 127);
    else
        over_hosts(&in, shape);
    return 0;
}
