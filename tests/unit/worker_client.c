/* SPDX-License-Identifier: Apache-2.0 */
/* See worker_client.h. */
#include "tests/unit/worker_client.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TURNS_MAX = 100000 };

uv_loop_t loop;
struct endpoint endpoint;
struct control_launch job;
static struct control_rank ranks[RANKS];
static char job_id[] = "0123456789abcdef0123456789abcdef", host[] = "here";

/* Fills in `job`: world ranks 10, 11, 12 of 20. */
static void make_job(void)
{
    signal(SIGPIPE, SIG_IGN);
    memset(&job, 0, sizeof(job));
    job.job_id = job_id;
    job.host = host;
    job.size = 20;
    job.rank_count = RANKS;
    job.ranks = ranks;
    memset(job.secret, 0x5a, sizeof(job.secret));
    for (int i = 0; i < RANKS; i++)
        ranks[i] = (struct control_rank){.rank = 10 + i,
                                         .local_rank = i,
                                         .local_size = RANKS,
                                         .cross_rank = 1,
                                         .cross_size = 2};
}

static void open_endpoint(void)
{
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_msg(endpoint_init(&endpoint, &loop, &job, 4, NULL, &err) == 0,
                  "%s", err.text);
}

void clients_setup(void)
{
    make_job();
    open_endpoint();
}

void clients_setup_elastic(void)
{
    static char *names[] = {"before", host, "after"};
    static char *addresses[] = {"127.0.0.1", "", "127.0.0.3"};
    static struct control_run runs[] = {{0, 10}, {1, 3}, {2, 7}};

    make_job();
    job.spec.elastic = 1;
    job.host_index = 1;
    job.host_names = (struct hb_strv){.items = names, .count = 3};
    job.peers = (struct hb_strv){.items = addresses, .count = 3};
    job.runs = runs;
    job.run_count = 3;
    open_endpoint();
}

void clients_teardown(void)
{
    endpoint_close(&endpoint);
    while (uv_run(&loop, UV_RUN_NOWAIT))
        ;
    endpoint_fini(&endpoint);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

void client_open(struct client *c)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const char *name = endpoint.name + strlen("unix:@");
    socklen_t len =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));

    memset(c, 0, sizeof(*c));
    c->passed_fd = -1;
    memcpy(addr.sun_path + 1, name, strlen(name));
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(c->fd, 0);
    ck_assert_int_eq(connect(c->fd, (struct sockaddr *)&addr, len), 0);
}

void client_close(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    if (c->passed_fd >= 0)
        close(c->passed_fd);
    hb_buf_free(&c->in);
    c->fd = c->passed_fd = -1;
}

void client_send(struct client *c, struct hb_buf *b)
{
    ck_assert_int_eq(send(c->fd, hb_buf_data(b), hb_buf_len(b), MSG_NOSIGNAL),
                     (ssize_t)hb_buf_len(b));
    hb_buf_free(b);
}

void send_hello(struct client *c, uint32_t rank, uint32_t abi)
{
    struct worker_hello m = {abi, rank, (uint32_t)getpid()};
    struct hb_buf b = HB_BUF_INIT;

    worker_encode_hello(&b, &m);
    client_send(c, &b);
}

void send_join(struct client *c, uint32_t epoch, uint64_t bytes)
{
    struct worker_join m = {epoch, bytes};
    struct hb_buf b = HB_BUF_INIT;

    worker_encode_join(&b, &m);
    client_send(c, &b);
}

void send_leave(struct client *c, uint32_t epoch)
{
    struct hb_buf b = HB_BUF_INIT;

    worker_encode_leave(&b, epoch);
    client_send(c, &b);
}

/* Receives bytes, and a descriptor if one comes along.  Returns the number of
 * bytes, 0 at the end, -1 if nothing has come. */
ssize_t client_receive(struct client *c)
{
    char bytes[8192];
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {bytes, sizeof(bytes)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    ssize_t n = recvmsg(c->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *cmsg = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

    if (cmsg && cmsg->cmsg_type == SCM_RIGHTS)
        memcpy(&c->passed_fd, CMSG_DATA(cmsg), sizeof(int));
    if (n > 0)
        hb_buf_append(&c->in, bytes, (size_t)n);
    return n;
}

/* Runs the loop until a whole frame has come.  Returns its type, or 0 at the
 * end. */
int client_next(struct client *c, struct frame *f)
{
    for (int i = 0; i < TURNS_MAX; i++) {
        int rc = frame_decode(&c->in, WORKER_PAYLOAD_MAX, f, NULL);
        struct pollfd p = {c->fd, POLLIN, 0};

        ck_assert_int_ge(rc, 0);
        if (rc == 1)
            return f->type;
        uv_run(&loop, UV_RUN_NOWAIT);
        poll(&p, 1, 1);
        if (client_receive(c) == 0 && hb_buf_len(&c->in) == 0)
            return 0;
    }
    ck_abort_msg("nothing came");
}

void run_turns(int turns)
{
    for (int i = 0; i < turns; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

void expect_text(struct client *c, int type, const char *text)
{
    char got[WORKER_TEXT_MAX] = "";
    struct worker_abort m;
    struct frame f;

    ck_assert_int_eq(client_next(c, &f), type);
    if (type == WORKER_ABORT) {
        ck_assert_int_eq(worker_decode_abort(f.payload, f.len, &m), 0);
        memcpy(got, m.text, sizeof(got));
    } else {
        ck_assert_int_eq(
            worker_decode_refused(f.payload, f.len, got, sizeof(got)), 0);
    }
    frame_done(&c->in, &f);
    ck_assert_msg(strstr(got, text) != NULL, "%s", got);
}

void expect_end(struct client *c)
{
    struct frame f;

    ck_assert_int_eq(client_next(c, &f), 0);
}

void expect_welcome(struct client *c, struct worker_welcome *m)
{
    struct frame f;

    ck_assert_int_eq(client_next(c, &f), WORKER_WELCOME);
    ck_assert_int_eq(worker_decode_welcome(f.payload, f.len, m), 0);
    frame_done(&c->in, &f);
}

void greet(struct client *c, uint32_t rank)
{
    struct worker_welcome m;

    client_open(c);
    send_hello(c, rank, WORKER_ABI);
    expect_welcome(c, &m);
}

struct segment_head *expect_segment_of(struct client *c, uint32_t epoch,
                                       uint32_t local_size)
{
    struct worker_segment m;
    struct frame f;
    void *head;

    ck_assert_int_eq(client_next(c, &f), WORKER_SEGMENT);
    ck_assert_int_eq(worker_decode_segment(f.payload, f.len, &m), 0);
    frame_done(&c->in, &f);
    ck_assert_uint_eq(m.epoch, epoch);
    ck_assert_uint_eq(m.segment_bytes, SEGMENT_BYTES);
    ck_assert_int_ge(c->passed_fd, 0);
    head = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                c->passed_fd, 0);
    ck_assert_ptr_ne(head, MAP_FAILED);
    ck_assert_int_eq(segment_head_check(head, epoch, local_size, SEGMENT_BYTES),
                     0);
    return head;
}

struct segment_head *expect_segment(struct client *c, uint32_t epoch)
{
    return expect_segment_of(c, epoch, RANKS);
}

/* All ranks join epoch 1; heads may be NULL. */
void join_all(struct client c[RANKS], struct segment_head **heads)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        greet(&c[i], 10 + i);
        send_join(&c[i], 1, SEGMENT_BYTES);
    }
    for (int i = 0; i < RANKS; i++) {
        struct segment_head *h = expect_segment(&c[i], 1);

        if (heads)
            heads[i] = h;
        else
            munmap(h, SEGMENT_BYTES);
    }
}

void close_all(struct client *c, int count)
{
    for (int i = 0; i < count; i++)
        client_close(&c[i]);
}
