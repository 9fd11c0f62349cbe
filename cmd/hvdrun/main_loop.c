/* SPDX-License-Identifier: Apache-2.0 */
/* See main_loop.h. */
#include "cmd/hvdrun/main_loop.h"

#include "cmd/hvdrun/reach.h"
#include "lib/base/alloc.h"
#include "lib/remote/remote.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FILES_MIN = 16 }; /* descriptors that hvdrun needs */

/* Takes one signal; the loop calls again if there are more. */
static void on_signals(uv_poll_t *poll, int status, int events)
{
    struct main_loop *l = poll->data;
    struct signalfd_siginfo info;

    (void)status;
    (void)events;
    if (read(l->signal_fd, &info, sizeof(info)) == sizeof(info))
        l->on_signal(l->arg, &info);
}

static int open_signals(struct main_loop *l, const int *signals, size_t count,
                        struct hb_error *err)
{
    int rc;

    sigemptyset(&l->signals);
    for (size_t i = 0; i < count; i++) {
        struct sigaction old;

        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(&l->signals, signals[i]);
    }
    l->signal_fd = signalfd(-1, &l->signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (l->signal_fd < 0)
        return hb_error_sys(err, errno, "signalfd");
    rc = uv_poll_init(&l->loop, &l->signal_poll, l->signal_fd);
    if (rc < 0) {
        close(l->signal_fd);
        return hb_error_sys(err, -rc, "signalfd");
    }
    l->signal_poll.data = l;
    uv_poll_start(&l->signal_poll, UV_READABLE, on_signals);
    sigprocmask(SIG_BLOCK, &l->signals, NULL);
    return 0;
}

/* Checks the limit on descriptors first, as libuv aborts without them. */
int main_loop_open(struct main_loop *l, const int *signals, size_t count,
                   void (*on_signal)(void *arg,
                                     const struct signalfd_siginfo *info),
                   void *arg, struct hb_error *err)
{
    struct rlimit files = {FILES_MIN, FILES_MIN};
    int rc;

    l->on_signal = on_signal;
    l->arg = arg;
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < FILES_MIN)
        return hb_error_set(err, HVD_ESYSTEM,
                            "the limit on open files is %d, hvdrun needs %d "
                            "(see ulimit -n)",
                            (int)files.rlim_cur, FILES_MIN);
    rc = uv_loop_init(&l->loop);
    if (rc < 0)
        return hb_error_sys(err, -rc, "cannot start the event loop");
    rc = open_signals(l, signals, count, err);
    if (rc < 0)
        uv_loop_close(&l->loop);
    return rc;
}

int main_loop_reach(struct main_loop *l, const struct options *o,
                    const char *agent_path, const struct hb_log *log,
                    struct hb_error *err)
{
    if (l->remote) {
        remote_try_for(l->remote, o->start_timeout_ms);
        return 0;
    }
    l->plugin_dir = reach_plugin_dir();
    reach_options(o, agent_path, l->plugin_dir, &l->remote_options);
    return remote_new(&l->loop, log, &l->remote_options, &l->remote, err);
}

void main_loop_unblock(const struct main_loop *l)
{
    sigprocmask(SIG_UNBLOCK, &l->signals, NULL);
}

void main_loop_stop(struct main_loop *l)
{
    uv_close((uv_handle_t *)&l->signal_poll, NULL);
}

void main_loop_run(struct main_loop *l)
{
    uv_run(&l->loop, UV_RUN_DEFAULT);
    close(l->signal_fd);
    main_loop_unblock(l);
    uv_loop_close(&l->loop);
}

void main_loop_fini(struct main_loop *l)
{
    remote_free(l->remote);
    hb_free(l->plugin_dir);
}
