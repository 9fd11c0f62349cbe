/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launchers: how each opens the stream to a host's shell and explains why
 * the stream ended; see launchers.h and remote_impl.h.
 */
#include "lib/remote/remote_impl.h"

#include "lib/base/alloc.h"
#include "lib/remote/rsh.h"
#include "lib/remote/srun.h"
#include "lib/ssh/openssh.h"
#include "lib/transport/command.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CONNECT_TIMEOUT_S = 15, /* if ssh's configuration has none */
    SSH_PORT = 22,
    SSH_EXIT = 255,    /* ssh's own exit code for failures */
    COMMANDS_MAX = 32, /* processes that connect at once */
};

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
        .never_asks = h->ssh.never_asks,
    };
}

/* Starts a command; takes over argv.  `what` is a constant. */
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

static int check_rsh(struct remote *r, struct hb_error *err)
{
    const char *template = r->options.rsh;

    return rsh_parse(template ? template : "", &r->rsh, err);
}

/* Returns the value of {user} if none is given. */
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

/* ---- Slurm ---- */

static int check_slurm(struct remote *r, struct hb_error *err)
{
    (void)r;
    return srun_check(err);
}

static int open_slurm(struct remote_host *h, const struct transport_events *e,
                      struct hb_error *err)
{
    struct transport_config config = raw_config(h, e);
    struct hb_strv argv = HB_STRV_INIT;
    int rc = srun_argv(h->name, &argv, err);

    if (rc < 0) {
        hb_strv_free(&argv);
        return rc;
    }
    return open_command(&argv, "srun", &config, &h->raw, err);
}

/* ---- Why a stream ended ---- */

static int ssh_failed(const struct remote_host *h)
{
    int wstatus = command_status(h->raw);

    return wstatus >= 0 && WIFEXITED(wstatus) &&
           WEXITSTATUS(wstatus) == SSH_EXIT;
}

/* Returns whether the command is a kind of ssh, and has ended as ssh does. */
static int rsh_failed(const struct remote_host *h)
{
    const char *program = h->remote->rsh.items[0];
    const char *slash = strrchr(program, '/');

    return strstr(slash ? slash : program, "ssh") && ssh_failed(h);
}

static int explain_command(struct remote_host *h, const struct hb_error *ended,
                           struct hb_error *err)
{
    struct openssh_options o = remote_ssh_options(h);

    (void)ended;
    return h->launcher->ended_as_ssh(h) &&
           openssh_explain(hb_buf_data(&h->boot.errs), &o, err);
}

/* Explains a connection that ended by its proxy's stderr: 1; 0 if the proxy
 * said nothing: then another try may succeed. */
static int explain_proxy(struct remote_host *h, struct hb_error *err)
{
    struct openssh_options o = remote_ssh_options(h);
    char words[HB_ERROR_TEXT_MAX / 2];

    if (openssh_explain(hb_buf_data(&h->boot.errs), &o, err))
        return 1;
    bootstrap_last_words(&h->boot, words, sizeof(words));
    if (!h->proxy_exited || h->proxy_status == 0 || !words[0])
        return 0;
    hb_error_set(err, HVD_ESYSTEM, "ssh: its proxy failed: %s", words);
    hb_error_stage(err, HB_STAGE_CONNECT);
    return 1;
}

static int explain_ssh2(struct remote_host *h, const struct hb_error *ended,
                        struct hb_error *err)
{
    int dropped;

    if (!ended || ended->status == -HVD_EPEER)
        return 0;
    dropped = ended->status == -HVD_ECLOSED || ended->status == -HVD_ETIMEOUT;
    if (!(dropped && (h->ssh.proxy_jump || h->ssh.proxy_command)) ||
        !explain_proxy(h, err))
        *err = *ended;
    return 1;
}

/* ---- The table ---- */

const struct launcher launcher_table[] = {
    [REMOTE_AUTO] = {.name = "auto",
                     .needs_config = 1,
                     .with_mpi = 1,
                     .instead = &launcher_table[REMOTE_OPENSSH],
                     .load = remote_plugin,
                     .open = open_ssh2,
                     .explain = explain_ssh2},
    [REMOTE_SSH2] = {.name = "ssh2",
                     .needs_config = 1,
                     .load = remote_plugin,
                     .open = open_ssh2,
                     .explain = explain_ssh2},
    [REMOTE_OPENSSH] = {.name = "openssh",
                        .needs_config = 1,
                        .starts_max = COMMANDS_MAX,
                        .obeys_max_startups = 1,
                        .with_mpi = 1,
                        .open = open_openssh,
                        .explain = explain_command,
                        .ended_as_ssh = ssh_failed},
    [REMOTE_RSH] = {.name = "rsh",
                    .starts_max = COMMANDS_MAX,
                    .names_differ = 1,
                    .check = check_rsh,
                    .open = open_rsh,
                    .explain = explain_command,
                    .ended_as_ssh = rsh_failed},
    [REMOTE_SLURM] = {.name = "slurm",
                      .starts_max = COMMANDS_MAX,
                      .names_differ = 1,
                      .ends_loudly = 1,
                      .check = check_slurm,
                      .open = open_slurm},
};

int launcher_find(const char *name, enum remote_launcher *out,
                  struct hb_error *err)
{
    char names[128] = "";

    for (int i = 0; i < REMOTE_LAUNCHERS; i++) {
        size_t n = strlen(names);

        if (strcasecmp(launcher_table[i].name, name) == 0) {
            *out = (enum remote_launcher)i;
            return 0;
        }
        snprintf(names + n, sizeof(names) - n, " %s", launcher_table[i].name);
    }
    return hb_error_set(err, HVD_EINVAL, "must be one of%s", names);
}

/* ---- Any ---- */

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

void remote_explain(struct remote_host *h, const struct hb_error *ended,
                    struct hb_error *err)
{
    const struct launcher *l = h->launcher;

    if (!l->explain || !l->explain(h, ended, err))
        bootstrap_ended(&h->boot, ended ? ended->text : NULL, err);
}

void remote_explain_lost(struct remote_host *h, const struct hb_error *ended,
                         struct hb_error *err)
{
    const struct launcher *l = h->launcher;

    if (l->ended_as_ssh && l->ended_as_ssh(h))
        hb_error_set(err, HVD_ECLOSED, "the ssh connection to it was lost");
    else if (ended)
        *err = *ended;
}
