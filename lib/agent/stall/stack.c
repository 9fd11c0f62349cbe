/* SPDX-License-Identifier: Apache-2.0 */
/* The stack of a rank; see stack.h. */
#include "lib/agent/stall/stack.h"

#include "lib/agent/rank/program.h"
#include "lib/agent/rank/spawn.h"
#include "lib/agent/rank/tree.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARGS_MAX = 16, READ_CHUNK = 16 << 10, DEATH_LIMIT_MS = 1000 };

struct stack {
    struct stack_config config;
    struct spawn_child child;
    int fd;              /* the program's output */
    const char *failure; /* why there is no stack, if its output has none */
    uv_poll_t poll;      /* of the output */
    uv_poll_t death;     /* of the program */
    uv_timer_t limit;    /* of its time, and of its death's */
    int handles;         /* open handles */
    int was_stopped;     /* the process, before */
    int closed;
    int done; /* reading is over */
    int killed;
    int dead; /* the program is, or cannot be killed */
    struct hb_buf out;
};

/* ---- What is a stack ------------------------------------------------------
 */

/* Returns whether the line describes a frame: "#0  0x... name" of eu-stack, "#0
 * ..." of gdb.  is_thread knows "TID 12:" of eu-stack and "Thread 1 (...)" of
 * gdb. */
static int is_frame(const char *line)
{
    return line[0] == '#' && line[1] >= '0' && line[1] <= '9';
}

static int is_thread(const char *line)
{
    return strncmp(line, "TID ", 4) == 0 || strncmp(line, "Thread ", 7) == 0;
}

static void put_line(struct hb_buf *out, char *line)
{
    hb_text_trim_cut(line);
    hb_text_sanitize(line);
    hb_must(hb_buf_printf(out, "%s\n", line));
}

/* Copies the line at p, cut to STACK_LINE_BYTES; returns where the next
 * begins. */
static const char *next_line(const char *p, const char *end,
                             char line[STACK_LINE_BYTES])
{
    const char *newline = memchr(p, '\n', (size_t)(end - p));
    size_t len = (size_t)((newline ? newline : end) - p);
    size_t kept = len < STACK_LINE_BYTES - 1 ? len : STACK_LINE_BYTES - 1;

    memcpy(line, p, kept);
    line[kept] = '\0';
    return p + len + (newline != NULL);
}

/* Appends the stack lines of a program's output to out: 1; or 0, and out holds
 * the output's last line instead. */
static int pick_lines(const char *text, size_t len, struct hb_buf *out)
{
    char line[STACK_LINE_BYTES], thread[STACK_LINE_BYTES] = "";
    char last[STACK_LINE_BYTES] = "it printed nothing";
    const char *p = text, *end = text + len;
    int lines = 0;

    while (p < end && lines < STACK_LINES_MAX) {
        p = next_line(p, end, line);
        if (is_thread(line)) {
            memcpy(thread, line, sizeof(thread));
        } else if (is_frame(line)) {
            if (thread[0])
                put_line(out, thread);
            lines += thread[0] != '\0';
            thread[0] = '\0';
            put_line(out, line);
            lines++;
        } else if (line[0]) {
            memcpy(last, line, sizeof(last));
        }
    }
    if (lines == 0)
        put_line(out, last);
    return lines > 0;
}

/* ---- The program ------------------------------------------------------------
 */

struct tool {
    const char *name;
    const char *args[ARGS_MAX]; /* pid_here stands for the process id */
};

static const char pid_here[] = "PID";

static const struct tool tools[] = {
    {"eu-stack", {"-n", "16", "-p", pid_here}},
    {"gdb",
     {"-nx", "-q", "-batch", "-iex", "set auto-load no", "-ex",
      "set pagination off", "-ex", "set print frame-arguments none", "-ex",
      "thread apply all -ascending backtrace 16", "-p", pid_here}},
};
enum { TOOL_COUNT = sizeof(tools) / sizeof(tools[0]) };

static const struct tool *find_tool(const char *path, char **program)
{
    for (int i = 0; i < TOOL_COUNT; i++) {
        int code;

        /* cwd is "/" because an empty entry of PATH means the working
         * directory, which is not ours to trust. */
        if (program_resolve(tools[i].name, path, "/", program, &code, NULL) ==
            0)
            return &tools[i];
    }
    return NULL;
}

static int start_program(struct stack *s, const struct tool *tool,
                         char *program, int in, int out)
{
    char *argv[ARGS_MAX + 2] = {program}, pid[16], *path;
    char locale[] = "LC_ALL=C", home[] = "HOME=/";
    char *envp[4] = {NULL, locale, home, NULL};
    sigset_t reset;
    struct spawn_options o = {.path = program,
                              .argv = argv,
                              .envp = envp,
                              .cwd = "/",
                              .stdio = {in, out, out},
                              .reset = &reset};
    int rc;

    snprintf(pid, sizeof(pid), "%d", (int)s->config.pid);
    for (int i = 0; i < ARGS_MAX && tool->args[i]; i++)
        argv[i + 1] = tool->args[i] == pid_here ? pid : (char *)tool->args[i];
    path = hb_xasprintf("PATH=%s",
                        s->config.path ? s->config.path : "/usr/bin:/bin");
    envp[0] = path;
    spawn_signals_to_reset(&reset);
    rc = spawn_process(&o, &s->child, NULL, NULL);
    hb_free(path);
    return rc;
}

static int start(struct stack *s, const struct tool *tool, char *program)
{
    int out[2], null, rc = -HVD_ESYSTEM;

    if (pipe2(out, O_CLOEXEC) < 0)
        return rc;
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0)
        rc = start_program(s, tool, program, null, out[1]);
    if (null >= 0)
        close(null);
    close(out[1]);
    if (rc < 0)
        close(out[0]);
    else
        s->fd = out[0];
    return rc;
}

/* ---- Its end
 * ------------------------------------------------------------------ */

static int is_stopped(pid_t pid)
{
    struct tree_proc p;

    return tree_stat(pid, &p) && p.state == 'T';
}

/* Signals by pidfd, because the agent reaps its dead children elsewhere. */
static void kill_program(struct stack *s)
{
    s->killed = 1;
    syscall(SYS_pidfd_send_signal, s->child.pidfd, SIGKILL, NULL, 0);
}

/* Continues the process if a dead debugger has left it stopped.  One that was
 * killed while it attached leaves it about to stop, which SIGCONT prevents. */
static void release_process(const struct stack *s)
{
    if (!s->was_stopped && (s->killed || is_stopped(s->config.pid)))
        kill(s->config.pid, SIGCONT);
}

static void stack_free(struct stack *s)
{
    close(s->child.pidfd);
    close(s->fd);
    hb_buf_free(&s->out);
    hb_free(s);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct stack *s = handle->data;

    if (--s->handles == 0)
        stack_free(s);
}

static void tell(struct stack *s)
{
    struct hb_buf text = HB_BUF_INIT;
    int found = pick_lines(hb_buf_data(&s->out), hb_buf_len(&s->out), &text);

    if (!found && s->failure) {
        hb_buf_clear(&text);
        hb_must(hb_buf_puts(&text, s->failure));
    }
    s->config.on_done(s->config.arg, found, hb_buf_data(&text));
    hb_buf_free(&text);
}

/* Releases the process and goes on, because the program is dead: only then has
 * the kernel detached it from the process. */
static void on_dead(struct stack *s)
{
    s->dead = 1;
    uv_poll_stop(&s->death);
    if (!s->closed && !s->done)
        return; /* there may be output left to read */
    uv_timer_stop(&s->limit);
    release_process(s);
    if (s->closed) {
        uv_close((uv_handle_t *)&s->death, on_handle_closed);
        uv_close((uv_handle_t *)&s->limit, on_handle_closed);
    } else {
        tell(s);
    }
}

static void on_death(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    on_dead(poll->data);
}

/* Kills the program after a moment, and gives it up after another: it may sleep
 * in the kernel. */
static void on_death_limit(uv_timer_t *timer)
{
    struct stack *s = timer->data;

    if (s->killed)
        on_dead(s);
    else
        kill_program(s);
}

/* Stops reading, and goes on when the program is dead. */
static void end_program(struct stack *s)
{
    uv_poll_stop(&s->poll);
    if (s->dead)
        on_dead(s);
    else
        uv_timer_start(&s->limit, on_death_limit, DEATH_LIMIT_MS,
                       DEATH_LIMIT_MS);
}

void stack_close(struct stack *s)
{
    if (!s || s->closed)
        return;
    s->closed = 1;
    if (!s->dead && !s->killed)
        kill_program(s);
    end_program(s);
    uv_close((uv_handle_t *)&s->poll, on_handle_closed);
}

static void done(struct stack *s, const char *failure)
{
    if (s->done)
        return;
    s->done = 1;
    s->failure = failure;
    end_program(s);
}

static void on_limit(uv_timer_t *timer)
{
    kill_program(timer->data);
    done(timer->data, "it took too long to look");
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct stack *s = poll->data;
    char chunk[READ_CHUNK];
    ssize_t n = read(s->fd, chunk, sizeof(chunk));

    (void)status;
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        hb_must(hb_buf_append(&s->out, chunk, (size_t)n));
    if (hb_buf_len(&s->out) >= STACK_READ_BYTES)
        kill_program(s);
    if (n <= 0 || hb_buf_len(&s->out) >= STACK_READ_BYTES)
        done(s, NULL);
}

/* ---- Its beginning ----------------------------------------------------------
 */

static int is_ours(pid_t pid)
{
    char path[32];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return stat(path, &st) == 0 && st.st_uid == geteuid();
}

/* Watches the program; frees `s` on failure. */
static int watch(struct stack *s)
{
    uv_loop_t *loop = s->config.loop;

    s->poll.data = s->death.data = s->limit.data = s;
    if (uv_poll_init(loop, &s->death, s->child.pidfd) < 0) {
        kill_program(s);
        stack_free(s);
        return -1;
    }
    s->handles = 1;
    if (uv_poll_init(loop, &s->poll, s->fd) < 0) {
        kill_program(s);
        uv_close((uv_handle_t *)&s->death, on_handle_closed);
        return -1;
    }
    uv_timer_init(loop, &s->limit);
    s->handles = 3;
    uv_poll_start(&s->death, UV_READABLE, on_death);
    uv_timer_start(&s->limit, on_limit, STACK_LIMIT_MS, 0);
    uv_poll_start(&s->poll, UV_READABLE, on_readable);
    return 0;
}

struct stack *stack_open(const struct stack_config *config, const char **why)
{
    const struct tool *tool;
    char *program = NULL;
    struct stack *s;

    if (!is_ours(config->pid)) {
        *why = "the process belongs to another user";
        return NULL;
    }
    tool = find_tool(config->path, &program);
    if (!tool) {
        *why = "neither eu-stack nor gdb is on that host";
        return NULL;
    }
    s = hb_xcalloc(1, sizeof(*s));
    s->config = *config;
    s->was_stopped = is_stopped(config->pid);
    *why = "the debugger could not be started";
    if (start(s, tool, program) < 0) {
        hb_free(s);
        s = NULL;
    }
    hb_free(program);
    return s && watch(s) == 0 ? s : NULL;
}
