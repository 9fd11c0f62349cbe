/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real hvd-agent with ranks that wait: what it forwards, what it reports of
 * their place and their stacks, and what it tells them at the end.  The ranks
 * are shells; this program speaks for them to their agent, over connections
 * that each of them has made, because the agent listens to its descendants
 * only.
 */
#include "lib/base/sys/clock.h"
#include "lib/protocol/segment.h"
#include "lib/protocol/worker.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { RANKS = 2, SEGMENT = 1 << 20 };

static int worker[RANKS];
static struct hb_buf from_agent[RANKS];
static struct segment_head *head;
static struct fixture tools; /* a PATH with only the tools of a test */

/* ---- Workers ------------------------------------------------------------ */

/* Sets *addr; a name that begins with @ is in the abstract namespace. */
static socklen_t address_of(const char *name, struct sockaddr_un *addr)
{
    memset(addr, 0, sizeof(*addr));
    addr->sun_family = AF_UNIX;
    snprintf(addr->sun_path, sizeof(addr->sun_path), "%s", name);
    if (name[0] == '@')
        addr->sun_path[0] = 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
}

union fd_space {
    struct cmsghdr align;
    char space[CMSG_SPACE(sizeof(int))];
};

static struct msghdr fd_message(struct iovec *iov, union fd_space *control)
{
    memset(control, 0, sizeof(*control));
    return (struct msghdr){.msg_iov = iov,
                           .msg_iovlen = 1,
                           .msg_control = control->space,
                           .msg_controllen = sizeof(control->space)};
}

/* Connects to a socket.  Runs in a rank, where no test runs and Check's
 * functions must not be called: a negative result is a failure. */
static int connect_to(const char *name)
{
    struct sockaddr_un addr;
    socklen_t len = address_of(name, &addr);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return connect(fd, (struct sockaddr *)&addr, len) < 0 ? -1 : fd;
}

/* Connects a rank to its agent, and passes the connection and the rank's number
 * to the test, which listens at `test`.  Returns once the agent has checked the
 * process that connected; negative if that failed. */
static int lend_connection(const char *test)
{
    const char *agent = getenv("HVD_RENDEZVOUS"), *number = getenv("HVD_RANK");
    char rank = (char)(number ? atoi(number) : -1);
    struct iovec iov = {&rank, 1};
    union fd_space control;
    struct msghdr msg = fd_message(&iov, &control);
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    int to_test = connect_to(test);
    int fd = agent ? connect_to(agent + strlen("unix:")) : -1;

    if (to_test < 0 || fd < 0 || !c)
        return -1;
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    if (sendmsg(to_test, &msg, MSG_NOSIGNAL) != 1)
        return -1;
    close(fd);
    return read(to_test, &rank, 1) == 0 ? 0 : -1;
}

/* Executes `script` in place of this program, so that the rank is the process
 * that has connected. */
static int run_rank(const char *test, const char *script)
{
    if (lend_connection(test) == 0)
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
    perror("test rank");
    return EXIT_FAILURE;
}

/* Takes the next connection that a rank lends.  Returns the rank, which waits
 * until *lender is closed. */
static int take_connection(int listener, int *lender)
{
    char rank = -1;
    struct iovec iov = {&rank, 1};
    union fd_space control;
    struct msghdr msg = fd_message(&iov, &control);
    struct pollfd ready = {listener, POLLIN, 0};
    struct cmsghdr *c;

    ck_assert_int_eq(poll(&ready, 1, PEER_WAIT_MS), 1);
    *lender = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_eq(recvmsg(*lender, &msg, MSG_CMSG_CLOEXEC), 1);
    c = CMSG_FIRSTHDR(&msg);
    if (!c || rank < 0 || rank >= RANKS)
        ck_abort_msg("rank %d lent no connection", rank);
    memcpy(&worker[(int)rank], CMSG_DATA(c), sizeof(int));
    return rank;
}

static int listen_at(const char *name)
{
    struct sockaddr_un addr;
    socklen_t len = address_of(name, &addr);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, len), 0);
    ck_assert_int_eq(listen(fd, RANKS), 0);
    return fd;
}

static void say(int rank, struct hb_buf *b)
{
    ck_assert_int_eq(send(worker[rank], hb_buf_data(b), hb_buf_len(b), 0),
                     (ssize_t)hb_buf_len(b));
    hb_buf_free(b);
}

/* Reads frames until one of `type`; stores a passed descriptor in *fd. */
static struct frame hear(int rank, int type, int *fd)
{
    union fd_space control;
    struct hb_buf *in = &from_agent[rank];
    struct frame f;

    while (frame_decode(in, WORKER_PAYLOAD_MAX, &f, NULL) == 0) {
        char bytes[4096];
        struct iovec iov = {bytes, sizeof(bytes)};
        struct msghdr msg = fd_message(&iov, &control);
        struct pollfd ready = {worker[rank], POLLIN, 0};
        ssize_t n;

        ck_assert_int_eq(poll(&ready, 1, PEER_WAIT_MS), 1);
        n = recvmsg(worker[rank], &msg, MSG_CMSG_CLOEXEC);
        ck_assert_int_gt(n, 0);
        if (fd && CMSG_FIRSTHDR(&msg))
            memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(*fd));
        hb_buf_append(in, bytes, (size_t)n);
    }
    ck_assert_int_eq(f.type, type);
    return f;
}

static void forget(int rank, struct frame f)
{
    frame_done(&from_agent[rank], &f);
}

static void greet(int listener)
{
    int lender, rank = take_connection(listener, &lender);
    struct worker_hello hello = {WORKER_ABI, (uint32_t)rank, 1};
    struct worker_join join = {1, SEGMENT};
    struct hb_buf out = HB_BUF_INIT;

    worker_encode_hello(&out, &hello);
    say(rank, &out);
    forget(rank, hear(rank, WORKER_WELCOME, NULL));
    close(lender);
    worker_encode_join(&out, &join);
    say(rank, &out);
}

/* Launches shells that run `script` with our PATH, and joins the first epoch
 * for them. */
static void launch(const char *script)
{
    struct control_launch m;
    char self[4096] = "", name[sizeof(tools.root) + 8];
    int listener, fd = -1;

    ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
    snprintf(name, sizeof(name), "%s/lend", tools.root);
    listener = listen_at(name);
    peer_launch_init(&m, script, RANKS);
    hb_free(m.env.items[0]);
    m.env.items[0] = hb_xasprintf("PATH=%s/bin:/no/such", tools.root);
    hb_free(m.argv.items[0]);
    m.argv.items[0] = hb_xstrdup(self);
    hb_free(m.argv.items[1]);
    m.argv.items[1] = hb_xstrdup(name);
    peer_launch(&peer, &m);
    peer_until(&peer, CONTROL_STARTED);
    for (int i = 0; i < RANKS; i++)
        greet(listener);
    close(listener);
    for (int i = 0; i < RANKS; i++)
        forget(i, hear(i, WORKER_SEGMENT, i == 0 ? &fd : NULL));
    head = mmap(NULL, segment_head_bytes(RANKS), PROT_READ | PROT_WRITE,
                MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(head, MAP_FAILED);
    close(fd);
}

static void make_tool(const char *name, const char *script)
{
    char path[64];

    snprintf(path, sizeof(path), "bin/%s", name);
    fixture_file(&tools, path, script);
    snprintf(path, sizeof(path), "%.40s/bin/%s", tools.root, name);
    ck_assert_int_eq(chmod(path, 0755), 0);
}

static void setup(void)
{
    fixture_open(&tools);
    fixture_file(&tools, "bin/empty", "");
    peer_setup();
}

static void teardown(void)
{
    control_stall_ranks_fini(&peer.stall_ranks);
    control_stall_stack_fini(&peer.stack);
    for (int i = 0; i < RANKS; i++) {
        if (worker[i] > 0)
            close(worker[i]);
        hb_buf_free(&from_agent[i]);
    }
    if (head)
        munmap(head, segment_head_bytes(RANKS));
    fixture_close(&tools);
    peer_teardown();
}

static void end_job(void)
{
    peer_send_u32(&peer, CONTROL_KILL, 0);
    peer_until(&peer, CONTROL_DONE);
    peer_finish(0);
}

static void ask(int id, int rank)
{
    const struct control_stall_ask m = {
        .id = id, .ranks = {rank}, .count = rank >= 0};
    struct hb_buf out = HB_BUF_INIT;

    control_encode_stall_ask(&out, &m);
    peer_send(&peer, &out);
    hb_buf_free(&out);
    peer_until(&peer, rank >= 0 ? CONTROL_STALL_STACK : CONTROL_STALL_RANKS);
}

/* ---- Where ranks are ---------------------------------------------------- */

START_TEST(passed_on)
{
    const struct worker_stalled m = {60001, 60000, 0};
    unsigned char bytes[WORKER_STALLED_BYTES];

    launch("exec /bin/sleep 1000");
    worker_write_stalled(bytes, &m);
    ck_assert_int_eq(send(worker[1], bytes, sizeof(bytes), 0), sizeof(bytes));
    peer_until(&peer, CONTROL_STALLED);
    ck_assert_int_eq(peer.stalled.rank, 1);
    ck_assert_uint_eq(peer.stalled.waited_ms, 60001);
    ck_assert_uint_eq(peer.stalled.warning_ms, 60000);
    end_job();
}
END_TEST

START_TEST(where_ranks_are)
{
    struct segment_status *status;
    struct control_stall_rank *r;
    char name[STATUS_NAME_BYTES];

    launch("[ $HVD_RANK = 0 ] || kill -STOP $$; while :; do :; done");
    status = segment_status(head, RANKS, 1);
    snprintf(name, sizeof(name), "b");
    status_call(status, status_now_ns() - 5000000000u, STATUS_BARRIER, 2, name);
    atomic_store(&status->sets[0], 5);
    do /* until SIGSTOP has taken effect */
        ask(7, -1);
    while (peer.stall_ranks.ranks[1].state != 'T');
    ask(7, -1); /* now stopped for the whole time measured */
    ck_assert_int_eq(peer.stall_ranks.id, 7);
    ck_assert_int_eq(peer.stall_ranks.count, RANKS);
    r = &peer.stall_ranks.ranks[0];
    ck_assert_int_eq(r->pid, peer.pids[0]);
    ck_assert_int_eq(r->known, 1);
    ck_assert_int_eq(r->calls, 0);
    ck_assert_int_eq(r->fresh, 0);
    r = &peer.stall_ranks.ranks[1];
    ck_assert_int_eq(r->pid, peer.pids[1]);
    ck_assert_int_eq(r->cpu_percent, 0);
    ck_assert_int_eq(r->inside, 1);
    ck_assert_int_eq(r->calls, 1);
    ck_assert_int_eq(r->last.kind, STATUS_BARRIER);
    ck_assert_int_eq(r->last.set, 2);
    ck_assert_str_eq(r->last.name, "b");
    ck_assert_int_ge(r->last.age_ms, 5000);
    ck_assert_uint_eq(r->sets[0], 5);
    end_job();
}
END_TEST

/* No content of a rank's memory can harm the agent. */
START_TEST(hostile_status)
{
    launch("exec /bin/sleep 1000");
    memset(segment_status(head, RANKS, 0), 0xff, STATUS_BYTES);
    memset(segment_status(head, RANKS, 1), 0x80, STATUS_BYTES);
    ask(1, -1);
    ck_assert_int_eq(peer.stall_ranks.count, RANKS);
    end_job();
}
END_TEST

static void ask_counts(void)
{
    struct hb_buf out = HB_BUF_INIT;

    control_encode_counts_ask(&out);
    peer_send(&peer, &out);
    hb_buf_free(&out);
    peer_until(&peer, CONTROL_COUNTS);
}

START_TEST(counts_so_far)
{
    struct hb_buf out = HB_BUF_INIT;

    launch("exec /bin/sleep 1000");
    ask_counts();
    ck_assert_int_eq(peer.count, RANKS);
    ck_assert_uint_eq(peer.counts[1].counts.calls, 0);
    status_put_counts(segment_status(head, RANKS, 1),
                      &(struct status_counts){1, UINT64_MAX, 3});
    ask_counts();
    ck_assert_int_eq(peer.counts[1].rank, 1);
    ck_assert_uint_eq(peer.counts[1].counts.calls, 1);
    ck_assert_uint_eq(peer.counts[1].counts.bytes, UINT64_MAX);
    ck_assert_uint_eq(peer.counts[1].counts.waited_ns, 3);
    worker_encode_leave(&out, 1);
    say(1, &out);
    close(worker[1]);
    worker[1] = -1;
    ck_assert_int_eq(kill(peer.pids[1], SIGTERM), 0);
    peer_until(&peer, CONTROL_EXITED);
    ask_counts();
    ck_assert_int_eq(peer.count, 1);
    ck_assert_int_eq(peer.counts[0].rank, 0);
    end_job();
}
END_TEST

START_TEST(ranks_that_left_or_ended)
{
    struct hb_buf out = HB_BUF_INIT;

    launch("exec /bin/sleep 1000");
    worker_encode_leave(&out, 1);
    say(1, &out);
    close(worker[1]);
    worker[1] = -1;
    ck_assert_int_eq(kill(peer.pids[1], SIGTERM), 0);
    peer_until(&peer, CONTROL_EXITED);
    ask(1, -1);
    ck_assert_int_eq(peer.stall_ranks.ranks[0].known, 1);
    ck_assert_int_eq(peer.stall_ranks.ranks[1].known, 0);
    ck_assert_int_eq(peer.stall_ranks.ranks[1].state, 0);
    ask(1, 1);
    ck_assert_int_eq(peer.stack.found, 0);
    ck_assert_str_eq(peer.stack.text, "it has ended");
    end_job();
}
END_TEST

START_TEST(asked_too_early)
{
    const struct control_stall_ask m = {.id = 1};
    struct hb_buf out = HB_BUF_INIT;

    control_encode_stall_ask(&out, &m);
    peer_send(&peer, &out);
    hb_buf_free(&out);
    while (peer_next(&peer))
        ;
    peer_finish(1);
}
END_TEST

/* ---- Stacks ------------------------------------------------------------- */

START_TEST(no_tool)
{
    launch("exec /bin/sleep 1000");
    ask(1, 0);
    ck_assert_int_eq(peer.stack.found, 0);
    ck_assert_ptr_nonnull(strstr(peer.stack.text, "neither eu-stack nor gdb"));
    end_job();
}
END_TEST

START_TEST(stack_of_a_rank)
{
    char *want;

    make_tool("gdb", "#!/bin/sh\nexit 1\n"); /* eu-stack is tried first */
    make_tool("eu-stack", "#!/bin/sh\necho PID $4\necho TID $4:\n"
                          "echo \"#0  0x1 read\"; echo '#1 \033[1mmain'\n"
                          "echo \"$DEBUGINFOD_URLS\" >&2\n");
    launch("exec /bin/sleep 1000");
    ask(4, 1);
    ck_assert_int_eq(peer.stack.id, 4);
    ck_assert_int_eq(peer.stack.rank, 1);
    ck_assert_int_eq(peer.stack.found, 1);
    want =
        hb_xasprintf("TID %d:\n#0  0x1 read\n#1 ?[1mmain\n", (int)peer.pids[1]);
    ck_assert_str_eq(peer.stack.text, want);
    hb_free(want);
    end_job();
}
END_TEST

START_TEST(tool_that_fails)
{
    make_tool("gdb", "#!/bin/sh\necho ptrace: Operation not permitted >&2\n");
    launch("exec /bin/sleep 1000");
    ask(1, 0);
    ck_assert_int_eq(peer.stack.found, 0);
    ck_assert_str_eq(peer.stack.text, "ptrace: Operation not permitted\n");
    end_job();
}
END_TEST

START_TEST(tool_that_floods)
{
    make_tool("gdb", "#!/bin/sh\nwhile :; do echo '#0  0x1 deep'; done\n");
    launch("exec /bin/sleep 1000");
    ask(1, 0);
    ck_assert_int_eq(peer.stack.found, 1);
    ck_assert_uint_lt(strlen(peer.stack.text), CONTROL_STACK_BYTES);
    end_job();
}
END_TEST

/* A debugger that hangs is killed, and the process that it stopped runs on. */
START_TEST(tool_that_hangs)
{
    struct pollfd quiet = {-1, 0, 0};

    make_tool("gdb", "#!/bin/sh\nfor pid; do :; done\nkill -STOP $pid\n"
                     "while :; do /bin/sleep 1; done\n");
    launch("exec /bin/sleep 1000");
    ask(1, 0); /* takes as long as the agent allows */
    ck_assert_int_eq(peer.stack.found, 0);
    ck_assert_ptr_nonnull(strstr(peer.stack.text, "too long"));
    do {
        poll(&quiet, 0, 10);
        ask(2, -1);
    } while (peer.stall_ranks.ranks[0].state == 'T');
    end_job();
}
END_TEST

/* Waits until the ranks have become sleep: an exec under ptrace raises SIGTRAP,
 * which ends a process whose debugger is killed before it sees that. */
static void await_sleep(void)
{
    struct pollfd quiet = {-1, 0, 0};
    char path[64], name[32];

    for (int i = 0; i < RANKS; i++) {
        snprintf(path, sizeof(path), "/proc/%d/comm", (int)peer.pids[i]);
        do {
            FILE *comm = fopen(path, "r");

            ck_assert_ptr_nonnull(comm);
            ck_assert_ptr_nonnull(fgets(name, sizeof(name), comm));
            fclose(comm);
            poll(&quiet, 0, 10);
        } while (strcmp(name, "sleep\n") != 0);
    }
}

/* A debugger that is killed while it attaches leaves the process stopped, as
 * soon as it is dead itself; a new question kills one, too. */
START_TEST(tool_that_attaches)
{
    const struct control_stall_ask m = {.id = 1, .ranks = {1}, .count = 1};
    struct pollfd quiet = {-1, 0, 0};
    struct hb_buf out = HB_BUF_INIT;
    char script[300], self[200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    ck_assert_int_gt(n, 0);
    self[n] = '\0';
    snprintf(script, sizeof(script),
             "#!/bin/sh\nfor pid; do :; done\nexec %s attach $pid\n", self);
    make_tool("gdb", script);
    launch("exec /bin/sleep 1000");
    await_sleep();
    ask(1, 0); /* takes as long as the agent allows */
    ck_assert_ptr_nonnull(strstr(peer.stack.text, "too long"));
    control_encode_stall_ask(&out, &m);
    peer_send(&peer, &out);
    hb_buf_free(&out);
    do {
        poll(&quiet, 0, 10);
        ask(2, -1);
    } while (peer.stall_ranks.ranks[1].state != 't');
    ask(3, 0); /* ends the debugger of rank 1 */
    for (int i = 0; i < 2; i++) {
        do {
            poll(&quiet, 0, 10);
            ask(4, -1);
            ck_assert_int_ne(peer.stall_ranks.ranks[i].state, 0);
        } while (strchr("tT", peer.stall_ranks.ranks[i].state));
    }
    end_job();
}
END_TEST

/* A new question replaces the one whose answer is not ready yet. */
START_TEST(another_question)
{
    const struct control_stall_ask m = {.id = 1, .ranks = {0}, .count = 1};
    struct hb_buf out = HB_BUF_INIT;

    make_tool("gdb", "#!/bin/sh\nfor pid; do :; done\n"
                     "[ -e $0.$pid ] && echo '#0 second' && exit\n"
                     ": >$0.$pid\nwhile :; do /bin/sleep 1; done\n");
    launch("exec /bin/sleep 1000");
    control_encode_stall_ask(&out, &m);
    peer_send(&peer, &out);
    hb_buf_free(&out);
    for (int id = 2; !peer.stack.text || !peer.stack.found; id++)
        ask(id, 0);
    ck_assert_int_gt(peer.stack.id, 1);
    ck_assert_str_eq(peer.stack.text, "#0 second\n");
    end_job();
}
END_TEST

/* The end of the job does not wait for a debugger. */
START_TEST(end_during_a_stack)
{
    const struct control_stall_ask m = {.id = 1, .ranks = {0}, .count = 1};
    struct hb_buf out = HB_BUF_INIT;
    uint64_t before;

    make_tool("gdb", "#!/bin/sh\nwhile :; do /bin/sleep 1; done\n");
    launch("exec /bin/sleep 1000");
    control_encode_stall_ask(&out, &m);
    peer_send(&peer, &out);
    hb_buf_free(&out);
    before = hb_now_ns();
    end_job();
    ck_assert_uint_lt((hb_now_ns() - before) / 1000000, 4900);
}
END_TEST

/* ---- The end ------------------------------------------------------------ */

START_TEST(workers_see_who_is_blamed)
{
    char text[SEGMENT_TEXT_MAX];
    struct hb_buf out = HB_BUF_INIT;
    int rank = 0;

    launch("exec /bin/sleep 1000");
    control_encode_stall_blame(&out, -1, "all react");
    peer_send(&peer, &out);
    hb_buf_free(&out);
    ask(1, -1); /* its answer shows that the blame is stored */
    ck_assert_uint_gt(segment_blamed(head, &rank, text), 0);
    ck_assert_int_eq(rank, -1);
    ck_assert_str_eq(text, "all react");
    ck_assert_uint_eq(atomic_load(&head->abort_word), 0);
    control_encode_stall_blame(&out, -1, ""); /* withdraws the blame */
    peer_send(&peer, &out);
    hb_buf_free(&out);
    ask(2, -1);
    ck_assert_uint_eq(segment_blamed(head, &rank, text), 0);
    end_job();
}
END_TEST

START_TEST(workers_hear_the_end)
{
    static const char why[] = "rank 9 on host x: kept the others waiting";
    struct hb_buf out = HB_BUF_INIT;
    struct worker_abort m;
    struct frame f;

    launch("exec /bin/sleep 1000");
    control_encode_stall_end(&out, 9, why);
    peer_send(&peer, &out);
    hb_buf_free(&out);
    for (int i = 0; i < RANKS; i++) {
        f = hear(i, WORKER_TIMEOUT, NULL);
        ck_assert_int_eq(worker_decode_abort(f.payload, f.len, &m), 0);
        ck_assert_uint_eq(m.rank, 9);
        ck_assert_str_eq(m.text, why);
        forget(i, f);
    }
    ck_assert_uint_eq(atomic_load(&head->abort_word),
                      (uint64_t)HVD_ETIMEOUT << 32 | 10);
    ck_assert_str_eq(head->abort_text, why);
    end_job();
}
END_TEST

/* Attaches to a process as a debugger does, and does nothing more. */
static int attach(pid_t pid)
{
    if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) < 0)
        return 1;
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    Suite *s;
    TCase *tc;

    if (argc == 3 && strcmp(argv[1], "attach") == 0)
        return attach(atoi(argv[2]));
    if (argc == 3)
        return run_rank(argv[1], argv[2]);
    s = suite_create("agent_stall");
    tc = tcase_create("agent_stall");

    tcase_set_timeout(tc, 60);
    tcase_add_unchecked_fixture(tc, fixtures_setup, fixtures_teardown);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, passed_on);
    tcase_add_test(tc, where_ranks_are);
    tcase_add_test(tc, hostile_status);
    tcase_add_test(tc, counts_so_far);
    tcase_add_test(tc, ranks_that_left_or_ended);
    tcase_add_test(tc, asked_too_early);
    tcase_add_test(tc, no_tool);
    tcase_add_test(tc, stack_of_a_rank);
    tcase_add_test(tc, tool_that_fails);
    tcase_add_test(tc, tool_that_floods);
    tcase_add_test(tc, tool_that_hangs);
    tcase_add_test(tc, tool_that_attaches);
    tcase_add_test(tc, another_question);
    tcase_add_test(tc, end_during_a_stack);
    tcase_add_test(tc, workers_see_who_is_blamed);
    tcase_add_test(tc, workers_hear_the_end);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
