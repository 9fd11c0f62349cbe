/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ProxyCommand and ProxyJump for libssh2: a child on one end of a socketpair;
 * libssh2 uses the other.  See remote_impl.h.
 */
#include "lib/remote/remote_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void proxy_on_stderr(void *arg, const char *bytes, size_t len)
{
    struct remote_host *h = arg;

    if (h->boot.state == BOOTSTRAP_RUNNING)
        h->config.events.on_stderr(h->config.arg, bytes, len);
    else
        (void)bootstrap_stderr(&h->boot, bytes, len, NULL);
}

static void proxy_on_exit(void *arg, int wstatus)
{
    struct remote_host *h = arg;

    h->proxy_exited = 1;
    h->proxy_status = wstatus;
    remote_host_proxy_exited(h);
}

static void proxy_on_close(void *arg)
{
    struct remote_host *h = arg;

    h->proxy = NULL;
    remote_host_check_closed(h);
}

/* Checks a name from a host list, because it is part of a shell command. */
static int check_name(const char *s, struct hb_error *err)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@%+-";

    if (*s && *s != '-' && !s[strspn(s, safe)])
        return 0;
    return hb_error_set(err, HVD_EINVAL,
                        "ssh: '%s' cannot be part of a ProxyCommand", s);
}

/* Builds the command as ssh does, but always with /bin/sh. */
static int command_argv(const struct ssh_config *c, struct hb_strv *argv,
                        struct hb_error *err)
{
    int rc = check_name(c->name, err);

    if (rc == 0)
        rc = check_name(c->hostname, err);
    if (rc == 0)
        rc = check_name(c->user, err);
    if (rc == 0)
        rc = hb_strv_add(argv, "/bin/sh");
    if (rc == 0)
        rc = hb_strv_add(argv, "-c");
    return rc < 0 ? rc : hb_strv_addf(argv, "exec %s", c->proxy_command);
}

static int open_child(struct remote_host *h, const struct hb_strv *argv,
                      int *fd, struct hb_error *err)
{
    struct child_config config = {
        .loop = h->remote->loop,
        .log = h->remote->log,
        .host = h->name,
        .what = "proxy",
        .argv = argv->items,
        .nofile = h->config.nofile,
        .group = 1,
        .on_stderr = proxy_on_stderr,
        .on_exit = proxy_on_exit,
        .on_close = proxy_on_close,
        .arg = h,
    };
    int pair[2] = {-1, -1}, rc = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        rc = -errno;
    else
        rc = child_open(&config, pair[1], &h->proxy);
    if (pair[1] >= 0)
        close(pair[1]);
    if (rc == 0)
        *fd = pair[0];
    else if (pair[0] >= 0)
        close(pair[0]);
    h->proxy_exited = 0;
    return rc < 0 ? hb_error_sys(err, -rc, "ssh: cannot start the proxy") : 0;
}

int remote_open_proxy(struct remote_host *h, int *fd, struct hb_error *err)
{
    struct openssh_options o = remote_ssh_options(h);
    const struct ssh_config *c = &h->ssh;
    struct hb_strv argv = HB_STRV_INIT;
    int rc;

    if (!c->proxy_jump && !c->proxy_command)
        return 0;
    if (c->proxy_jump)
        rc = openssh_jump_argv(&o, c->proxy_jump, c->hostname, c->port, &argv,
                               err);
    else
        rc = command_argv(c, &argv, err);
    if (rc == 0)
        rc = open_child(h, &argv, fd, err);
    hb_strv_free(&argv);
    return rc;
}
