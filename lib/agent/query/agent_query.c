/* SPDX-License-Identifier: Apache-2.0 */
/* Answering questions in a child; see query.h. */
#include "lib/agent/query/agent_query.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/clock.h"
#include "lib/protocol/control/control.h"
#include "lib/protocol/query.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void must(int rc)
{
    if (rc < 0)
        hb_die_oom();
}

/* ---- In the child ---- */

static json_t *failure(const char *text)
{
    return json_pack("{s:o}", "error", query_text(text));
}

/* Computes the answer, in the child: a new object.  Blocks. */
static json_t *answer_to(const json_t *question)
{
    const char *what = query_string(question, "what");

    if (strcmp(what, "ps") == 0)
        return query_ps();
    if (strcmp(what, "kill") == 0)
        return query_kill(question);
    if (strcmp(what, "drain") == 0)
        return query_drain(question);
    if (strcmp(what, "clean") == 0)
        return query_clean(question);
    if (strcmp(what, "doctor") == 0)
        return query_doctor(question);
    return failure("the agent does not know this question");
}

static void write_all(int fd, const char *p, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno != EINTR)
            return;
        p += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
}

/* Runs in the child: writes the answer to `out` and exits.  Closes all other
 * descriptors first, so that it neither holds the agent's connection open nor
 * writes to it. */
static void child_main(pid_t agent, int out, const json_t *question)
{
    struct hb_buf frame = HB_BUF_INIT;
    json_t *answer;
    sigset_t none;
    int null;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != agent)
        _exit(1);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0)
        _exit(1);
    fcntl(1, F_SETFD, FD_CLOEXEC);
    syscall(SYS_close_range, 3u, ~0u, 0u);
    sigemptyset(&none);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_SETMASK, &none, NULL);
    answer = answer_to(question);
    if (query_encode(&frame, CONTROL_ANSWER, answer) < 0) {
        json_decref(answer);
        answer = failure("the answer is longer than 16 MiB");
        must(query_encode(&frame, CONTROL_ANSWER, answer));
    }
    write_all(1, hb_buf_data(&frame), hb_buf_len(&frame));
    _exit(0);
}

/* ---- In the agent ---- */

/* Answers only now that the handle is closed, because the next question may
 * come as soon as the answer is sent. */
static void on_poll_closed(uv_handle_t *handle)
{
    struct query *q = handle->data;
    struct frame f;
    json_t *why;

    q->open = 0;
    if (q->closed)
        return;
    if (frame_decode(&q->in, FRAME_PAYLOAD_MAX, &f, NULL) <= 0) {
        hb_buf_clear(&q->in);
        why = failure("the agent's helper ended without an answer");
        must(query_encode(&q->in, CONTROL_ANSWER, why));
        json_decref(why);
    }
    q->on_answer(q->arg, &q->in);
    hb_buf_clear(&q->in);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct query *q = poll->data;
    char chunk[16 << 10];
    ssize_t n;

    (void)status;
    (void)events;
    n = read(q->fd, chunk, sizeof(chunk));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && hb_buf_append(&q->in, chunk, (size_t)n) == 0)
        return;
    close(q->fd);
    q->fd = -1;
    uv_close((uv_handle_t *)poll, on_poll_closed);
}

static int start(struct query *q, uv_loop_t *loop, const json_t *question,
                 struct hb_error *err)
{
    pid_t agent = getpid(), pid;
    int fds[2];

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return hb_error_sys(err, errno, "query");
    fcntl(fds[1], F_SETFL, 0);
    pid = fork();
    if (pid == 0)
        child_main(agent, fds[1], question);
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return hb_error_sys(err, errno, "query");
    }
    q->fd = fds[0];
    q->open = 1;
    uv_poll_init(loop, &q->poll, q->fd);
    q->poll.data = q;
    uv_poll_start(&q->poll, UV_READABLE, on_readable);
    return 0;
}

static void tell_clock(struct query *q)
{
    json_t *answer = json_pack("{s:I}", "wall_ns", (json_int_t)hb_wall_ns());
    struct hb_buf frame = HB_BUF_INIT;

    must(query_encode(&frame, CONTROL_ANSWER, answer));
    json_decref(answer);
    q->on_answer(q->arg, &frame);
    hb_buf_free(&frame);
}

int query_ask(struct query *q, uv_loop_t *loop, const void *payload, size_t len,
              query_on_answer on_answer, void *arg, struct hb_error *err)
{
    json_t *question = NULL;
    int rc = 0;

    if (q->open)
        return hb_error_set(err, HVD_EPROTO, "a query before the last answer");
    rc = query_decode(payload, len, CONTROL_QUERY, &question, err);
    if (rc < 0)
        return rc;
    q->on_answer = on_answer;
    q->arg = arg;
    if (strcmp(query_string(question, "what"), "clock") == 0)
        tell_clock(q);
    else
        rc = start(q, loop, question, err);
    json_decref(question);
    return rc;
}

void query_close(struct query *q)
{
    q->closed = 1;
    if (!q->open || q->fd < 0)
        return;
    close(q->fd);
    q->fd = -1;
    uv_close((uv_handle_t *)&q->poll, on_poll_closed);
}

void query_fini(struct query *q)
{
    hb_buf_free(&q->in);
}
