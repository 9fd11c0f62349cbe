/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker endpoint with whatever local processes send, in any order:
 * well-formed messages, malformed ones, ends of connections and of ranks, and
 * hvdrun's answers.  Only a descendant that asks for a free rank is told the
 * job's secret; a segment has the size that all ranks wanted; messages to
 * hvdrun are complete.
 *
 * In an elastic job, only a member of a new generation is welcomed, with its
 * number among the members; nobody waits for a generation to begin in which a
 * member has ended.
 *
 * The input is a list of steps: a byte for the connection and one for the
 * event, then its arguments.  Before them, the byte ELASTIC makes the job an
 * elastic one, and all steps possible.
 */
#include "lib/agent/endpoint_impl.h"
#include "lib/base/alloc.h"
#include "lib/protocol/worker_stats.h"
#include "tests/fuzz/fuzz.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RANKS = 3,
    FIRST = 10,
    SIZE = 20,
    HOSTS = 3,
    PEERS = 5,
    ASKED_MAX = 8,
    ELASTIC = 0xe1,
    STEPS = 13,
    ELASTIC_STEPS = 17,
};

/* ---- What the endpoint knows ---- */

static uv_loop_t loop;
static struct endpoint endpoint;
static struct control_rank ranks[RANKS];
static char *peers[] = {(char *)"192.0.2.1", (char *)"", (char *)"192.0.2.3"};
static char *names[] = {(char *)"before", (char *)"here", (char *)"after"};
static struct control_run runs[] = {
    {0, FIRST}, {1, RANKS}, {2, SIZE - FIRST - RANKS}};
static struct control_launch job = {
    .job_id = (char *)"0123456789abcdef0123456789abcdef",
    .host = (char *)"here",
    .size = SIZE,
    .ranks = ranks,
    .rank_count = RANKS,
    .host_index = 1,
    .peers = {.items = peers, .count = HOSTS},
    .host_names = {.items = names, .count = HOSTS},
    .runs = runs,
    .run_count = HOSTS};

static struct peer {
    int fd, stranger;           /* fd -1: none */
    int rank;                   /* of the last HELLO; -1: none valid */
    int welcome;                /* has got WELCOME */
    uint32_t generation, hosts; /* that it told of */
    uint32_t epoch;             /* of the last JOIN */
    uint64_t bytes;             /* in the last JOIN */
    struct hb_buf heard;        /* received, not yet parsed */
} peers_of[PEERS];

static uint32_t asked[ASKED_MAX];
static unsigned asked_count;

static int is_here(uint32_t rank)
{
    return rank >= FIRST && rank < FIRST + RANKS;
}

static void on_ask(void *arg, const struct rdv_request *m)
{
    struct rdv_record record;
    struct hb_reader r;
    int rc, count = 0;

    (void)arg;
    FUZZ_CHECK(m->op >= RDV_PUT && m->op <= RDV_END_ROUND);
    FUZZ_CHECK(memchr(m->scope, '\0', sizeof(m->scope)));
    FUZZ_CHECK(memchr(m->key, '\0', sizeof(m->key)));
    if (m->op == RDV_FENCE) {
        hb_reader_init(&r, m->value, m->len);
        while ((rc = rdv_next_record(&r, &record)) > 0) {
            FUZZ_CHECK(is_here(record.rank));
            count++;
        }
        FUZZ_CHECK(rc == 0 && count > 0 && count <= RANKS);
    } else {
        FUZZ_CHECK(m->len <= RDV_VALUE_MAX);
    }
    if (m->op != RDV_CANCEL && m->op != RDV_LEFT)
        asked[asked_count++ % ASKED_MAX] = m->id;
}

/* Bit i: the rank in slot i was removed. */
static unsigned removed;
/* Bit i: the rank in slot i has ended in the current generation. */
static unsigned ended;

static int is_elastic(void)
{
    return job.spec.elastic;
}

/* The number of a rank in the world, or -1: computed from the messages. */
static struct {
    uint32_t number, joined;
    int ranks[SIZE], count;
} generation;

static int world_rank(int rank)
{
    for (int i = 0; i < generation.count; i++)
        if (generation.ranks[i] == rank)
            return i;
    return -1;
}

static void on_ready(void *arg, int local_rank, int ready)
{
    (void)arg;
    FUZZ_CHECK(is_elastic() && local_rank >= 0 && local_rank < RANKS);
    FUZZ_CHECK(!ready || (endpoint.slots[local_rank].conn &&
                          endpoint.slots[local_rank].is_ready));
}

static void check_slot(int local_rank)
{
    FUZZ_CHECK(local_rank >= 0 && local_rank < RANKS);
    FUZZ_CHECK(endpoint.slots[local_rank].conn);
}

static void on_stalled(void *arg, int local_rank,
                       const struct worker_stalled *m)
{
    (void)arg;
    (void)m;
    check_slot(local_rank);
}

static void on_late(void *arg, int local_rank, uint32_t ms)
{
    (void)arg;
    (void)ms;
    check_slot(local_rank);
}

static void on_no_answer(void *arg, int local_rank, int peer)
{
    (void)arg;
    check_slot(local_rank);
    FUZZ_CHECK(members_world_rank(&endpoint.members, peer) >= 0);
}

static void on_stats(void *arg, int local_rank, const struct worker_stats *m)
{
    (void)arg;
    (void)m;
    check_slot(local_rank);
}

/* ---- What it answers ---- */

/* Checks what WELCOME says about the generation. */
static void check_member(const struct peer *p, const struct worker_welcome *m)
{
    uint32_t here = 0;

    FUZZ_CHECK(m->generation == generation.number && m->generation > 0);
    FUZZ_CHECK(m->joined == generation.joined);
    FUZZ_CHECK(world_rank(p->rank) >= 0);
    FUZZ_CHECK(m->rank == (uint32_t)world_rank(p->rank));
    FUZZ_CHECK(m->size == (uint32_t)generation.count);
    for (int i = 0; i < generation.count; i++)
        if (is_here((uint32_t)generation.ranks[i])) {
            FUZZ_CHECK(here < m->local_size);
            FUZZ_CHECK(m->local_ranks[here++] == (uint32_t)i);
        }
    FUZZ_CHECK(here == m->local_size && here == m->local_count);
    FUZZ_CHECK(m->local_ranks[m->local_rank] == m->rank);
    FUZZ_CHECK(m->host_index < m->host_count && m->host_count <= HOSTS);
    FUZZ_CHECK(m->cross_rank < m->cross_size && m->cross_size <= m->host_count);
}

static void check_welcome(struct peer *p, const struct frame *f)
{
    static struct worker_welcome m;

    FUZZ_CHECK(worker_decode_welcome(f->payload, f->len, &m) == 0);
    FUZZ_CHECK(!p->stranger && !p->welcome);
    FUZZ_CHECK(p->rank >= 0);
    if (is_elastic())
        check_member(p, &m);
    else
        FUZZ_CHECK(m.rank == (uint32_t)p->rank && m.generation == 0);
    FUZZ_CHECK(memcmp(m.secret, job.secret, sizeof(m.secret)) == 0);
    p->welcome = 1;
    p->generation = m.generation;
    p->hosts = m.host_count;
}

static void check_answer(struct peer *p, const struct frame *f)
{
    struct worker_segment segment;
    struct worker_abort gone;
    struct rdv_reply reply;
    char text[WORKER_TEXT_MAX], addresses[HOSTS][WORKER_ADDRESS_MAX];

    /* A rank that waits for a generation is not one of the world yet, but may
     * ask what it likes. */
    FUZZ_CHECK(p->welcome || f->type == WORKER_WELCOME ||
               f->type == WORKER_REFUSED ||
               (is_elastic() && p->rank >= 0 && f->type != WORKER_SEGMENT));
    switch (f->type) {
    case WORKER_WELCOME:
        check_welcome(p, f);
        break;
    case WORKER_REMOVED:
        FUZZ_CHECK(removed >> (p->rank - FIRST) & 1);
        FUZZ_CHECK(
            worker_decode_removed(f->payload, f->len, text, sizeof(text)) == 0);
        break;
    case WORKER_REFUSED:
        FUZZ_CHECK(
            worker_decode_refused(f->payload, f->len, text, sizeof(text)) == 0);
        break;
    case WORKER_SEGMENT:
        FUZZ_CHECK(worker_decode_segment(f->payload, f->len, &segment) == 0);
        FUZZ_CHECK(segment.epoch == p->epoch &&
                   segment.segment_bytes == p->bytes);
        break;
    case WORKER_ABORT:
    case WORKER_TIMEOUT:
        FUZZ_CHECK(worker_decode_abort(f->payload, f->len, &gone) == 0);
        /* An abort of a generation before may come late. */
        FUZZ_CHECK(gone.rank == SEGMENT_NO_RANK || gone.rank < SIZE ||
                   !is_elastic());
        break;
    case WORKER_ROUTES_ARE:
        if (p->generation == generation.number && p->welcome)
            FUZZ_CHECK(worker_decode_routes_are(f->payload, f->len, p->hosts,
                                                addresses) == 0);
        break;
    case WORKER_RDV_REPLY:
        FUZZ_CHECK(rdv_decode_reply(f->payload, f->len, &reply) == 0);
        break;
    default:
        FUZZ_CHECK(f->type == WORKER_RDV_FENCED);
    }
}

/* Checks the descriptor that comes with a segment. */
static void check_passed(const struct peer *p, struct msghdr *msg)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    struct stat st;
    int fd;

    if (!c)
        return;
    memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    FUZZ_CHECK(p->welcome && fstat(fd, &st) == 0);
    FUZZ_CHECK((uint64_t)st.st_size == p->bytes);
    close(fd);
}

static void listen_to(struct peer *p)
{
    static char bytes[64 << 10];
    struct frame f;

    while (p->fd >= 0) {
        char space[CMSG_SPACE(sizeof(int))];
        struct iovec iov = {bytes, sizeof(bytes)};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = space,
                             .msg_controllen = sizeof(space)};
        ssize_t n = recvmsg(p->fd, &msg, MSG_DONTWAIT);

        if (n <= 0)
            break;
        FUZZ_CHECK(hb_buf_append(&p->heard, bytes, (size_t)n) == 0);
        while (frame_decode(&p->heard, WORKER_FENCED_MAX, &f, NULL) == 1) {
            check_answer(p, &f);
            frame_done(&p->heard, &f);
        }
        check_passed(p, &msg); /* WELCOME may have come with it */
    }
}

/* ---- Steps ---- */

static void leave(struct peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    hb_buf_free(&p->heard);
    *p = (struct peer){.fd = -1, .rank = -1};
}

static void come(struct peer *p, int stranger)
{
    int fds[2];

    leave(p);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                          0, fds) == 0);
    p->fd = fds[0];
    p->stranger = stranger;
    conn_open(&endpoint, fds[1], 4711, stranger);
}

static void say(struct peer *p, const void *bytes, size_t len)
{
    if (p->fd >= 0)
        (void)!send(p->fd, bytes, len, MSG_NOSIGNAL);
}

static void say_buf(struct peer *p, struct hb_buf *b)
{
    say(p, hb_buf_data(b), hb_buf_len(b));
    hb_buf_free(b);
}

static void say_hello(struct peer *p, struct fuzz_input *in)
{
    unsigned how = fuzz_take(in);
    struct worker_hello m = {WORKER_ABI + (how >> 7), FIRST + how % 4, 4711};
    struct hb_buf b = HB_BUF_INIT;

    FUZZ_CHECK(worker_encode_hello(&b, &m) == 0);
    if (!p->welcome && !(is_elastic() && p->rank >= 0))
        p->rank = m.abi == WORKER_ABI && is_here(m.rank) ? (int)m.rank : -1;
    say_buf(p, &b);
}

static void say_join(struct peer *p, struct fuzz_input *in)
{
    unsigned how = fuzz_take(in);
    struct worker_join m = {is_elastic() && how & 64 ? generation.number
                                                     : how & 3,
                            4096u << (how >> 2 & 7)};
    struct hb_buf b = HB_BUF_INIT;

    FUZZ_CHECK(worker_encode_join(&b, &m) == 0);
    /* Else it is refused.  What a rank says before it is welcomed may be read
     * afterwards. */
    if (p->rank >= 0 && (p->welcome || (is_elastic() && p->epoch == 0)) &&
        endpoint.slots[p->rank - FIRST].epoch == 0) {
        p->epoch = m.epoch;
        p->bytes = m.segment_bytes;
    }
    say_buf(p, &b);
}

static void say_fence(struct peer *p, struct fuzz_input *in)
{
    char scope[2] = {(char)('a' + fuzz_take(in) % 3), '\0'};
    struct hb_buf b = HB_BUF_INIT;
    size_t len;
    const void *value = fuzz_take_bytes(in, &len);

    len = len < WORKER_VALUE_MAX ? len : WORKER_VALUE_MAX;
    FUZZ_CHECK(worker_encode_fence(&b, scope, value, len) == 0);
    say_buf(p, &b);
}

static void say_request(struct peer *p, struct fuzz_input *in)
{
    static const unsigned char members[] = {0, 0, 0, 10, 0, 0, 0, 11};
    unsigned how = fuzz_take(in);
    struct hb_buf b = HB_BUF_INIT;
    struct rdv_request m = {.id = how >> 4,
                            .op = (enum rdv_op)(1 + how % 6),
                            .after = fuzz_take(in) % 4,
                            .scope = "s",
                            .key = "k"};

    if (m.op == RDV_FENCE) {
        m.members = members;
        m.member_count = fuzz_take(in) % 3;
        m.key[0] = '\0';
    }
    m.value = fuzz_take_bytes(in, &m.len);
    if (rdv_encode_request(&b, WORKER_RDV, &m) == 0)
        say(p, hb_buf_data(&b), hb_buf_len(&b));
    hb_buf_free(&b);
}

static void say_frame(struct peer *p, struct fuzz_input *in)
{
    static const int types[] = {
        WORKER_STALLED, WORKER_STATS,     WORKER_BLAMES,
        WORKER_LATE,    WORKER_LEAVE,     WORKER_ROUTES,
        WORKER_RDV,     WORKER_RDV_FENCE, WORKER_NO_ANSWER};
    unsigned which = fuzz_take(in);
    struct hb_buf b = HB_BUF_INIT;
    size_t len;
    const void *bytes = fuzz_take_bytes(in, &len);

    FUZZ_CHECK(frame_encode(&b,
                            which < 9 ? (uint8_t)types[which] : (uint8_t)which,
                            bytes, len) == 0);
    say_buf(p, &b);
}

static void say_leave(struct peer *p, struct fuzz_input *in)
{
    struct hb_buf b = HB_BUF_INIT;

    FUZZ_CHECK(worker_encode_leave(&b, fuzz_take(in) & 3) == 0);
    say_buf(p, &b);
}

/* Sends hvdrun's answer. */
static void answer(struct fuzz_input *in)
{
    unsigned how = fuzz_take(in);
    struct hb_buf records = HB_BUF_INIT;
    struct rdv_reply m = {.id = asked[how % ASKED_MAX],
                          .status = how & 64 ? (int)HVD_EPEER : (int)(how >> 7),
                          .version = fuzz_take(in)};

    m.value = fuzz_take_bytes(in, &m.len);
    if (how & 32) {
        for (uint32_t rank = 0; rank < SIZE; rank++)
            FUZZ_CHECK(rdv_put_record(&records, rank, m.value, m.len) == 0);
        m.value = hb_buf_data(&records);
        m.len = hb_buf_len(&records);
    }
    endpoint_answer(&endpoint, &m);
    hb_buf_free(&records);
}

static void end_rank(struct fuzz_input *in)
{
    unsigned how = fuzz_take(in);

    endpoint_rank_ended(&endpoint, (int)(how % RANKS), how >= 128,
                        "rank 10: has ended");
    if (world_rank(FIRST + (int)(how % RANKS)) >= 0)
        ended |= 1u << how % RANKS;
}

/* Begins the next generation, of the ranks that the input's bits name. */
static void begin_generation(struct fuzz_input *in)
{
    uint32_t bits = fuzz_take(in), number;
    struct control_generation m = {.joined = fuzz_take(in), .why = "over"};
    struct hb_error err = HB_ERROR_INIT;
    int rc, fits;

    /* Three ranks of the host before this one, this host's, and one of the
     * host after it; or one that is not in the plan. */
    m.number = number = generation.number + (bits & 1);
    m.ranks = hb_xcalloc(9, sizeof(*m.ranks));
    for (int i = 1; i < 8; i++)
        if (bits >> i & 1)
            m.ranks[m.count++] = i < 4 ? i : FIRST - 4 + i;
    if (m.joined == 255 || m.count == 0)
        m.ranks[m.count++] = SIZE;
    m.joined %= (uint32_t)m.count + 1; /* the decoder refuses more */
    fits = (bits & 1) && m.ranks[m.count - 1] < SIZE;
    rc = endpoint_generation(&endpoint, &m, &err);
    fuzz_check_error(rc, &err);
    FUZZ_CHECK((rc == 0) == fits);
    if (rc < 0) {
        control_generation_fini(&m);
        return;
    }
    generation.number = number;
    generation.joined = endpoint.members.now.joined;
    generation.count = endpoint.members.now.count;
    FUZZ_CHECK(generation.count <= SIZE);
    memcpy(generation.ranks, endpoint.members.now.ranks,
           (size_t)generation.count * sizeof(*generation.ranks));
    ended = 0;
    for (int i = 0; i < RANKS; i++)
        if (world_rank(FIRST + i) >= 0 && endpoint.slots[i].gone)
            ended |= 1u << i;
}

static void restart_rank(struct fuzz_input *in)
{
    int slot = (int)(fuzz_take(in) % RANKS);

    /* The agent restarts what has ended. */
    if (endpoint.slots[slot].gone && !endpoint.slots[slot].conn)
        endpoint_rank_restarted(&endpoint, slot);
    ended &= ~(1u << slot);
}

static void end_world(struct fuzz_input *in)
{
    unsigned how = fuzz_take(in);

    if (how & 1)
        endpoint_blame(&endpoint, how >> 3, how & 2 ? "it waits" : "");
    else
        endpoint_abort(&endpoint, how >> 3, how & 2 ? HVD_ETIMEOUT : HVD_EPEER,
                       "over");
}

/* Removes a rank, of another host, too, or tells it that it will be. */
static void let_go(struct fuzz_input *in)
{
    unsigned how = fuzz_take(in), slot = (how >> 1) % (RANKS + 1);

    if (how & 1) {
        endpoint_notice(&endpoint, FIRST + slot, (uint64_t)fuzz_take(in));
        return;
    }
    removed |= 1u << slot;
    endpoint_removed(&endpoint, FIRST + slot, "it goes");
}

static void raw(struct peer *p, struct fuzz_input *in)
{
    size_t len;
    const void *bytes = fuzz_take_bytes(in, &len);

    say(p, bytes, len);
}

static void step(struct fuzz_input *in)
{
    struct peer *p = &peers_of[fuzz_take(in) % PEERS];
    unsigned what = fuzz_take(in);

    switch (what % (is_elastic() ? ELASTIC_STEPS : STEPS)) {
    case 0:
        come(p, what >= 128);
        break;
    case 1:
        say_hello(p, in);
        break;
    case 2:
        say_join(p, in);
        break;
    case 3:
        say_leave(p, in);
        break;
    case 4:
        say_fence(p, in);
        break;
    case 5:
        say_request(p, in);
        break;
    case 6:
        say_frame(p, in);
        break;
    case 7:
        raw(p, in);
        break;
    case 8:
        leave(p);
        break;
    case 9:
        answer(in);
        break;
    case 10:
        end_rank(in);
        break;
    case 11:
        end_world(in);
        break;
    case 12:
        epoch_settle_lost(&endpoint, (int)(fuzz_take(in) % RANKS));
        break;
    case 13:
        begin_generation(in);
        break;
    case 14:
        endpoint_change(&endpoint, generation.number - (fuzz_take(in) & 1));
        break;
    case 15:
        let_go(in);
        break;
    default:
        restart_rank(in);
        break;
    }
}

/* ---- The world ---- */

static void setup(int elastic)
{
    struct hb_error err = HB_ERROR_INIT;

    memset(job.secret, 0x5a, sizeof(job.secret));
    for (int i = 0; i < RANKS; i++)
        ranks[i] = (struct control_rank){.rank = FIRST + i,
                                         .local_rank = i,
                                         .local_size = RANKS,
                                         .cross_rank = 1,
                                         .cross_size = 2};
    for (int i = 0; i < PEERS; i++)
        peers_of[i] = (struct peer){.fd = -1, .rank = -1};
    memset(asked, 0, sizeof(asked));
    asked_count = ended = 0;
    memset(&generation, 0, sizeof(generation));
    removed = 0;
    job.spec.elastic = elastic;
    FUZZ_CHECK(uv_loop_init(&loop) == 0);
    FUZZ_CHECK(endpoint_init(&endpoint, &loop, &job, 4, NULL, &err) == 0);
    endpoint_set_rendezvous(&endpoint, on_ask, NULL);
    endpoint.on_stalled = on_stalled;
    endpoint.on_late = on_late;
    endpoint.on_no_answer = on_no_answer;
    endpoint.on_stats = on_stats;
    endpoint.on_ready = on_ready;
}

static void check_slots(void)
{
    for (int i = 0; i < RANKS; i++)
        FUZZ_CHECK(
            endpoint.slots[i].blames >= 0 && endpoint.slots[i].blames <= SIZE &&
            (!endpoint.slots[i].conn || endpoint.slots[i].conn->slot == i));
    /* A generation does not begin any more if a member has ended.  Unlike
     * hvdrun, the input may begin the next while ranks wait for this one. */
    for (int i = 0; i < RANKS && is_elastic() && ended; i++)
        FUZZ_CHECK(!endpoint.slots[i].waiting ||
                   endpoint.slots[i].epoch != generation.number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    int elastic = size > 0 && data[0] == ELASTIC;

    in.p += elastic;
    setup(elastic);
    while (in.p < in.end) {
        step(&in);
        uv_run(&loop, UV_RUN_NOWAIT);
        check_slots();
        for (int i = 0; i < PEERS; i++)
            listen_to(&peers_of[i]);
    }
    endpoint_close(&endpoint);
    FUZZ_CHECK(endpoint.conn_count == 0 && endpoint.stranger_count == 0);
    while (uv_run(&loop, UV_RUN_NOWAIT))
        continue;
    endpoint_fini(&endpoint);
    FUZZ_CHECK(uv_loop_close(&loop) == 0);
    for (int i = 0; i < PEERS; i++)
        leave(&peers_of[i]);
    return 0;
}
