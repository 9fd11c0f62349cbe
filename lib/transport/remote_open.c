/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The streams to a host's shell, per launcher, and why one ended; see
 * remote_impl.h.
 */
#include "lib/transport/remote_impl.h"

#include "lib/base/alloc.h"
#include "lib/transport/command.h"
#include "lib/transport/openssh.h"
#include "lib/transport/rsh.h"

#include <errno.h>
#include <pwd.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CONNECT_TIMEOUT_S = 15, /* where ssh's configuration has none */
    SSH_PORT = 22,
    SSH_EXIT = 255, /* of ssh itself; else the shell's */
};

/* What is given for the host goes before what is given for all. */
struct openssh_options remote_ssh_options(const struct remote_host *h)
{
    const struct remote_options *o = &h->remote->options;

    return (struct openssh_options){
        .host = h->name,
        .user = h->user ? h->user : o->ssh_user,
        .port = h->port ? h->port : o->ssh_port,
        .identity = o->ssh_identity,
        .config = o->ssh_config,
        .known_hosts = o->ssh_known_hosts,
    };
}

/* Takes argv; `what` is a constant. */
static int open_command(struct hb_strv *argv, const char *what,
                        const struct transport_config *config,
                        struct transport **out, struct hb_error *err)
{
    struct command_options options = {
        .argv = argv->items, .what = what, .group = 1};
    int rc = -command_open(config, &options, out);

    if (rc == ENOENT)
        hb_error_set(err, HVD_ENOENT,
                     "cannot start %s: there is no such "
                     "program here",
                     argv->items[0]);
    else if (rc)
        hb_error_sys(err, rc, "cannot start %s", argv->items[0]);
    hb_strv_free(argv);
    return rc ? err->status : 0;
}

static struct transport_config raw_config(struct remote_host *h,
                                          const struct transport_events *e)
{
    struct transport_config config = h->config;

    config.events = *e;
    config.arg = h;
    return config;
}

/* ---- ssh ---- */

static int open_openssh(struct remote_host *h, const struct transport_events *e,
                        struct hb_error *err)
{
    struct openssh_options o = remote_ssh_options(h);
    struct transport_config config = raw_config(h, e);
    struct hb_strv argv = HB_STRV_INIT;
    int rc;

    if (!h->ssh.connect_timeout_ms)
        o.connect_timeout_s = CONNECT_TIMEOUT_S;
    rc = openssh_argv(&o, &argv, err);
    if (rc < 0) {
        hb_strv_free(&argv);
        return rc;
    }
    return open_command(&argv, "ssh", &config, &h->raw, err);
}

int remote_open_ssh_config(struct remote_host *h,
                           const struct openssh_options *o,
                           const struct transport_events *e,
                           struct hb_error *err)
{
    struct transport_config config = raw_config(h, e);
    struct hb_strv argv = HB_STRV_INIT;
    int rc = openssh_config_argv(o, &argv, err);

    if (rc < 0) {
        hb_strv_free(&argv);
        return rc;
    }
    return open_command(&argv, "ssh -G", &config, &h->ask, err);
}

/* ---- libssh2 ---- */

static int open_ssh2(struct remote_host *h, const struct transport_events *e,
                     struct hb_error *err)
{
    struct remote *r = h->remote;
    struct transport_config config = raw_config(h, e);
    struct ssh2_open open = {.config = &h->ssh, .fd = -1};
    int rc = remote_plugin(r, err);

    if (rc == 0)
        rc = remote_open_proxy(h, &open.fd, err);
    if (rc == 0)
        rc = r->plugin->open(r->shared, &config, &open, &h->raw, err);
    return rc;
}

/* ---- rsh ---- */

/* What {user} is where none is given. */
static char *local_user(void)
{
    const struct passwd *me = getpwuid(geteuid());

    return me ? hb_xstrdup(me->pw_name)
              : hb_xasprintf("%u", (unsigned)geteuid());
}

static int open_rsh(struct remote_host *h, const struct transport_events *e,
                    struct hb_error *err)
{
    struct openssh_options o = remote_ssh_options(h);
    struct transport_config config = raw_config(h, e);
    struct hb_strv argv = HB_STRV_INIT;
    char *user = o.user ? hb_xstrdup(o.user) : local_user();
    int rc = rsh_argv(&h->remote->rsh, h->name, user,
                      o.port ? o.port : SSH_PORT, &argv, err);

    hb_free(user);
    if (rc < 0) {
        hb_strv_free(&argv);
        return rc;
    }
    return open_command(&argv, "rsh command", &config, &h->raw, err);
}

/* ---- Any ---- */

int remote_open_raw(struct remote_host *h, const struct transport_events *e,
                    struct hb_error *err)
{
    h->raw_is_command = h->launcher != REMOTE_SSH2;
    if (h->launcher == REMOTE_RSH)
        return open_rsh(h, e, err);
    if (h->launcher == REMOTE_SSH2)
        return open_ssh2(h, e, err);
    return open_openssh(h, e, err);
}

void remote_close_raw(struct remote_host *h)
{
    int running = h->boot.state == BOOTSTRAP_RUNNING;

    if (h->raw && !running)
        transport_cancel(h->raw);
    else if (h->raw)
        transport_close(h->raw);
    if (h->proxy && !(h->raw && running))
        child_close(h->proxy, 0);
}

/* Does what the command says follow ssh's ways? */
static int speaks_ssh(const struct remote_host *h)
{
    const char *program, *slash;

    if (h->launcher == REMOTE_OPENSSH)
        return 1;
    program = h->remote->rsh.items[0];
    slash = strrchr(program, '/');
    return strstr(slash ? slash : program, "ssh") != NULL;
}

static int is_ssh_exit(int wstatus)
{
    return wstatus >= 0 && WIFEXITED(wstatus) &&
           WEXITSTATUS(wstatus) == SSH_EXIT;
}

/* What a proxy said is why the connection through it ended; one that said
 * nothing may do better the next time. */
static int explain_proxy(struct remote_host *h, struct hb_error *err)
{
    char words[HB_ERROR_TEXT_MAX / 2];

    if (openssh_explain(hb_buf_data(&h->boot.errs), h->name, err))
        return 1;
    bootstrap_last_words(&h->boot, words, sizeof(words));
    if (!h->proxy_exited || h->proxy_status == 0 || !words[0])
        return 0;
    hb_error_set(err, HVD_ESYSTEM, "ssh: its proxy failed: %s", words);
    return 1;
}

static void explain_ssh2(struct remote_host *h, const struct hb_error *ended,
                         struct hb_error *err)
{
    int dropped =
        ended->status == -HVD_ECLOSED || ended->status == -HVD_ETIMEOUT;

    if (!(dropped && (h->ssh.proxy_jump || h->ssh.proxy_command)) ||
        !explain_proxy(h, err))
        *err = *ended;
}

void remote_explain(struct remote_host *h, const struct hb_error *ended,
                    struct hb_error *err)
{
    if (!h->raw_is_command && ended && ended->status != -HVD_EPEER)
        explain_ssh2(h, ended, err);
    else if (!h->raw_is_command || !is_ssh_exit(command_status(h->raw)) ||
             !speaks_ssh(h) ||
             !openssh_explain(hb_buf_data(&h->boot.errs), h->name, err))
        bootstrap_ended(&h->boot, ended ? ended->text : NULL, err);
}

void remote_explain_lost(struct remote_host *h, const struct hb_error *ended,
                         struct hb_error *err)
{
    if (h->raw_is_command && speaks_ssh(h) &&
        is_ssh_exit(command_status(h->raw)))
        hb_error_set(err, HVD_ECLOSED, "the ssh connection to it was lost");
    else if (ended)
        *err = *ended;
}
