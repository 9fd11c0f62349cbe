/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the user's ssh configuration for a host by `ssh -G`, and checks whether
 * the launcher supports it; see remote_impl.h.
 */
#include "lib/remote/remote_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/sys/linkage.h"
#include "lib/base/sys/trust.h"
#include "lib/ssh/openssh.h"
#include "lib/transport/command.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MAX = 1 << 20 };

/* ---- The plug-in ---- */

static int load_plugin(struct remote *r, struct hb_error *err)
{
    char *path, real[PATH_MAX];
    void *object = NULL, *symbol;
    ssh2_plugin_fn *get;

    if (hb_may_load(err) < 0)
        return hb_error_context(err, "libssh2 cannot be used");
    path = hb_xasprintf("%s/" SSH2_PLUGIN_FILE, r->options.plugin_dir);
    if (hb_check_trust(path, "/proc/self/exe", real, err) == 0)
        object = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    symbol = object ? dlsym(object, SSH2_PLUGIN_SYMBOL) : NULL;
    memcpy(&get, &symbol, sizeof(get));
    if (err->status)
        hb_error_context(err, "libssh2 cannot be used");
    else if (!symbol)
        hb_error_set(err, HVD_EUNSUPPORTED, "libssh2 cannot be used: %s",
                     dlerror());
    else if (!(r->plugin = get(SSH2_PLUGIN_ABI)))
        hb_error_set(err, HVD_EUNSUPPORTED,
                     "libssh2 cannot be used: %s is of another version", path);
    hb_free(path);
    return err->status;
}

/* Loads the plug-in, once.  It stays loaded, because a thread may hang in it,
 * in a name look-up. */
int remote_plugin(struct remote *r, struct hb_error *err)
{
    struct ssh2_shared_options options = {
        .log = r->log, .max_startups = r->options.max_startups};

    if (!r->plugin_tried) {
        r->plugin_tried = 1;
        if (load_plugin(r, &r->plugin_error) == 0)
            r->shared = r->plugin->shared_new(&options);
    }
    if (r->plugin)
        return 0;
    return hb_error_set(err, HVD_EUNSUPPORTED, "%s", r->plugin_error.text);
}

/* ---- Choosing ---- */

static void set_group(struct remote_host *h)
{
    const struct ssh_config *c = &h->ssh;

    if (c->proxy_jump)
        remote_set_group(h, "jump %.*s", (int)strcspn(c->proxy_jump, ","),
                         c->proxy_jump);
    else if (c->proxy_command)
        remote_set_group(h, "proxy %s", c->proxy_command);
    else
        remote_set_group(h, "server %s:%d", c->hostname, c->port);
}

/* Takes another launcher if this one's plug-in cannot serve the host.  If the
 * plug-in cannot be used at all, that is logged once, for all hosts. */
static int choose(struct remote_host *h, struct hb_error *err)
{
    const struct launcher *l = h->launcher;
    struct remote *r = h->remote;
    struct hb_error why = HB_ERROR_INIT;
    int was_logged = r->plugin_logged;

    if (!l->load)
        return 0;
    if (ssh_config_check(&h->ssh, &why) < 0)
        was_logged = 0;
    else if (l->load(r, &why) < 0)
        r->plugin_logged = 1;
    if (!why.status)
        return 0;
    if (!l->instead)
        return hb_error_set(err, HVD_EUNSUPPORTED, "%s; try --launcher openssh",
                            why.text);
    if (!was_logged)
        hb_log(r->log, HB_LOG_INFO, "host %s: using the ssh program: %s",
               h->name, why.text);
    h->launcher = l->instead;
    return 0;
}

static void configured(struct remote_host *h)
{
    struct hb_error err = HB_ERROR_INIT;

    set_group(h);
    if (choose(h, &err) < 0)
        remote_host_fail(h, &err);
    else
        remote_host_configured(h);
}

/* ---- Asking ---- */

/* Reads the output of `ssh -G`; text NULL: the defaults. */
static int read_config(struct remote_host *h, const char *text, size_t len,
                       struct hb_error *err)
{
    struct remote *r = h->remote;
    struct openssh_options o = remote_ssh_options(h);
    int rc = 0;

    if (!r->user.name)
        rc = ssh_user_init(&r->user);
    if (rc == 0)
        rc = ssh_config_read(text, len, &o, &r->user, &h->ssh, err);
    if (rc == -HVD_ENOMEM)
        hb_die_oom();
    return rc;
}

static void ask_on_read(void *arg, const char *bytes, size_t len)
{
    struct remote_host *h = arg;

    if (hb_buf_len(&h->answer) + len <= ANSWER_MAX &&
        hb_buf_append(&h->answer, bytes, len) < 0)
        hb_die_oom();
}

static void ask_on_stderr(void *arg, const char *bytes, size_t len)
{
    struct remote_host *h = arg;

    if (h->state == REMOTE_CONFIG)
        (void)bootstrap_stderr(&h->boot, bytes, len, NULL);
}

/* Explains a failure of ssh -G, or output that cannot be parsed. */
static void explain_ask(struct remote_host *h, struct hb_error *err)
{
    struct openssh_options o = remote_ssh_options(h);
    char words[HB_ERROR_TEXT_MAX / 2];

    if (openssh_explain(hb_buf_data(&h->boot.errs), &o, err))
        return;
    bootstrap_last_words(&h->boot, words, sizeof(words));
    hb_error_set(err, HVD_EINVAL, "ssh -G %s failed%s%s", h->name,
                 words[0] ? ": " : "", words);
}

static void ask_on_end(void *arg, const struct hb_error *ended)
{
    struct remote_host *h = arg;
    struct hb_error err = HB_ERROR_INIT;
    int wstatus = command_status(h->ask);

    (void)ended;
    remote_close_ask(h);
    if (h->state != REMOTE_CONFIG)
        return;
    if (wstatus != 0 && strstr(hb_buf_data(&h->boot.errs), "unknown option"))
        read_config(h, NULL, 0, &err); /* an ssh older than 2015 */
    else if (wstatus != 0)
        explain_ask(h, &err);
    else
        read_config(h, hb_buf_data(&h->answer), hb_buf_len(&h->answer), &err);
    hb_buf_free(&h->answer);
    if (err.status)
        remote_host_fail(h, &err);
    else
        configured(h);
}

static void ask_on_close(void *arg)
{
    struct remote_host *h = arg;

    h->ask = NULL;
    h->remote->configs--;
    remote_pump(h->remote);
    remote_host_check_closed(h);
}

/* Handles a missing ssh program: then only libssh2 is left. */
static int ask_nobody(struct remote_host *h, struct hb_error *err)
{
    struct hb_error why = HB_ERROR_INIT;

    if (!h->launcher->load)
        return hb_error_set(err, HVD_ENOENT,
                            "there is no ssh program here; install "
                            "openssh-client");
    if (h->launcher->load(h->remote, &why) < 0)
        return hb_error_set(err, HVD_ENOENT,
                            "there is no ssh program here, and %s", why.text);
    if (read_config(h, NULL, 0, err) < 0)
        return err->status;
    set_group(h);
    return 1;
}

int remote_ask(struct remote_host *h, struct hb_error *err)
{
    static const struct transport_events events = {
        .on_read = ask_on_read,
        .on_stderr = ask_on_stderr,
        .on_end = ask_on_end,
        .on_close = ask_on_close,
    };
    struct openssh_options o = remote_ssh_options(h);
    int rc = remote_open_ssh_config(h, &o, &events, err);

    if (rc == -HVD_ENOENT) {
        hb_error_clear(err);
        return ask_nobody(h, err);
    }
    if (rc < 0)
        return rc;
    h->remote->configs++;
    if (h->launcher->load) /* while `ssh -G` runs */
        (void)h->launcher->load(h->remote, NULL);
    return 0;
}

void remote_close_ask(struct remote_host *h)
{
    if (h->ask)
        transport_cancel(h->ask);
}
