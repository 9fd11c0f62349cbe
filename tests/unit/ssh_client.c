/* SPDX-License-Identifier: Apache-2.0 */
/* See ssh_server.h: the client's side. */
#include "tests/unit/ssh_server.h"

#include <check.h>
#include <dlfcn.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RUN_LIMIT_MS = 60000, EXIT_WAIT_MS = 5000 };

const struct ssh2_plugin *ssh_client_plugin(void)
{
    char path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    ssh2_plugin_fn *get;
    void *so, *symbol;

    ck_assert_int_gt(n, 0);
    path[n] = '\0';
    for (int i = 0; i < 2; i++) /* BUILD/tests/test_x -> BUILD */
        *strrchr(path, '/') = '\0';
    strcat(path, "/lib/hvd/" SSH2_PLUGIN_FILE);
    so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(so != NULL, "%s", dlerror());
    symbol = dlsym(so, SSH2_PLUGIN_SYMBOL);
    ck_assert_ptr_nonnull(symbol);
    memcpy(&get, &symbol, sizeof(get));
    ck_assert_ptr_null(get(SSH2_PLUGIN_ABI + 1));
    return get(SSH2_PLUGIN_ABI);
}

int ssh_client_has_rsa(void)
{
    void *so = dlopen("libssh2.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = so ? dlsym(so, "libssh2_version") : NULL;
    const char *(*version)(int required);

    ck_assert_ptr_nonnull(symbol);
    memcpy(&version, &symbol, sizeof(version));
    return version(0x010b00) != NULL;
}

/* ---- Callbacks ---- */

static void on_read(void *arg, const char *bytes, size_t len)
{
    struct ssh_client *c = arg;

    ck_assert_int_eq(c->ends, 0);
    ck_assert_int_eq(hb_buf_append(&c->out, bytes, len), 0);
}

static void on_stderr(void *arg, const char *bytes, size_t len)
{
    struct ssh_client *c = arg;

    ck_assert_int_eq(hb_buf_append(&c->err, bytes, len), 0);
}

static void on_end(void *arg, const struct hb_error *err)
{
    struct ssh_client *c = arg;

    ck_assert_int_eq(c->ends++, 0);
    if (err)
        c->why = *err;
}

static void on_close(void *arg)
{
    struct ssh_client *c = arg;

    ck_assert_int_eq(c->closes++, 0);
    c->t = NULL;
}

static void on_stage(void *arg, const char *stage)
{
    struct ssh_client *c = arg;

    hb_buf_printf(&c->stages, "%s\n", stage);
    if (c->close_at && strcmp(stage, c->close_at) == 0)
        transport_close(c->t);
}

static void on_drain(void *arg)
{
    struct ssh_client *c = arg;

    c->drains++;
}

static void on_log(void *arg, enum hb_log_level level, const char *line)
{
    struct ssh_client *c = arg;

    hb_buf_printf(&c->logged, "%s: %s\n", hb_log_level_name(level), line);
}

/* Runs on a thread. */
static int on_ask(void *arg, const char *prompt, int cancel_fd,
                  char out[SSH2_PASSPHRASE_MAX])
{
    struct ssh_client *c = arg;

    (void)cancel_fd;
    ck_assert_ptr_nonnull(strstr(prompt, "passphrase"));
    __atomic_add_fetch(&c->asked, 1, __ATOMIC_RELAXED);
    if (!c->answer)
        return -1;
    snprintf(out, SSH2_PASSPHRASE_MAX, "%s", c->answer);
    return 0;
}

/* ---- A client ---- */

void ssh_client_init(struct ssh_client *c, const struct ssh_server *s)
{
    struct openssh_options o = {.host = "127.0.0.1", .port = s->port};
    char *home = (char *)ssh_file("home");
    struct ssh_user u = {getpwuid(getuid())->pw_name, home, NULL};

    memset(c, 0, sizeof(*c));
    c->loop = &c->own_loop;
    ck_assert_int_eq(uv_loop_init(c->loop), 0);
    c->log =
        (struct hb_log){.level = HB_LOG_DEBUG, .sink = on_log, .sink_arg = c};
    c->events = (struct transport_events){on_read,  on_stderr, on_end, on_close,
                                          on_stage, on_drain,  NULL};
    c->plugin = ssh_client_plugin();
    c->options = (struct ssh2_shared_options){
        .log = &c->log, .ask = on_ask, .ask_arg = c};
    ck_assert_int_eq(ssh_config_read(NULL, 0, &o, &u, &c->config, NULL), 0);
    ssh_client_identity(c, "ed25519");
    ssh_client_known(c, NULL);
    ssh_shell("printf '[127.0.0.1]:%d %s\\n' >known", s->port,
              ssh_public("host_ed25519"));
}

void ssh_client_join(struct ssh_client *c, const struct ssh_client *other)
{
    memset(c, 0, sizeof(*c));
    c->joined = other;
    c->loop = other->loop;
    c->log =
        (struct hb_log){.level = HB_LOG_DEBUG, .sink = on_log, .sink_arg = c};
    c->events = other->events;
    c->plugin = other->plugin;
    c->shared = other->shared;
    ck_assert_int_eq(ssh_config_copy(&other->config, &c->config), 0);
}

void ssh_client_identity(struct ssh_client *c, const char *name)
{
    hb_strv_free(&c->config.identities);
    hb_strv_add(&c->config.identities, ssh_file("%s", name));
}

void ssh_client_known(struct ssh_client *c, const char *text)
{
    hb_strv_free(&c->config.user_known_hosts);
    hb_strv_free(&c->config.global_known_hosts);
    hb_strv_add(&c->config.user_known_hosts, ssh_file("known"));
    if (text)
        ssh_write("known", 0600, text);
}

void ssh_client_open_fd(struct ssh_client *c, int fd)
{
    struct transport_config config = {
        .loop = c->loop,
        .log = &c->log,
        .host = "n1",
        .events = c->events,
        .arg = c,
        .exit_wait_ms = EXIT_WAIT_MS,
    };
    struct ssh2_open open = {.config = &c->config, .fd = fd};
    struct hb_error err = HB_ERROR_INIT;

    if (!c->shared)
        c->shared = c->plugin->shared_new(&c->options);
    ck_assert_msg(c->plugin->open(c->shared, &config, &open, &c->t, &err) == 0,
                  "%s", err.text);
}

void ssh_client_open(struct ssh_client *c)
{
    ssh_client_open_fd(c, -1);
}

void ssh_client_write(struct ssh_client *c, const char *text)
{
    ck_assert_int_eq(transport_write(c->t, text, strlen(text)), 0);
}

static void on_limit(uv_timer_t *timer)
{
    struct ssh_client *c = timer->data;

    ck_abort_msg("nothing happened for a minute; out: %s; err: %s; "
                 "stages: %s; why: %s",
                 hb_buf_data(&c->out), hb_buf_data(&c->err),
                 hb_buf_data(&c->stages), c->why.text);
}

void ssh_client_run(struct ssh_client *c,
                    int (*until)(const struct ssh_client *c))
{
    uv_timer_t limit;

    uv_timer_init(c->loop, &limit);
    limit.data = c;
    uv_timer_start(&limit, on_limit, RUN_LIMIT_MS, 0);
    while (!until(c)) {
        ck_assert_msg(until == until_end || !c->ends, "it ended: %s",
                      c->why.text);
        uv_run(c->loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&limit, NULL);
    uv_run(c->loop, UV_RUN_NOWAIT);
}

int until_end(const struct ssh_client *c)
{
    return c->ends > 0;
}

int until_close(const struct ssh_client *c)
{
    return c->closes > 0;
}

int until_drained(const struct ssh_client *c)
{
    return c->drains > 0;
}

int until_ready(const struct ssh_client *c)
{
    return strstr(hb_buf_data(&c->out), "ready\n") != NULL;
}

void ssh_client_greet(struct ssh_client *c)
{
    ssh_client_write(c, "echo ready\n");
    ssh_client_run(c, until_ready);
    hb_buf_clear(&c->out);
}

void ssh_client_close(struct ssh_client *c)
{
    int ends = c->ends;

    if (c->t) {
        transport_close(c->t);
        transport_close(c->t);
        c->ends = 0; /* closing is waited for in any case */
        ssh_client_run(c, until_close);
        c->ends = ends;
    }
}

void ssh_client_reset(struct ssh_client *c)
{
    ssh_client_close(c);
    hb_buf_clear(&c->out);
    hb_buf_clear(&c->err);
    hb_buf_clear(&c->stages);
    hb_buf_clear(&c->logged);
    hb_error_clear(&c->why);
    c->ends = c->closes = c->drains = 0;
}

void ssh_client_fini(struct ssh_client *c)
{
    ssh_client_close(c);
    if (c->shared && !c->joined)
        c->plugin->shared_free(c->shared);
    hb_buf_free(&c->out);
    hb_buf_free(&c->err);
    hb_buf_free(&c->stages);
    hb_buf_free(&c->logged);
    ssh_config_fini(&c->config);
    if (c->joined)
        return;
    ck_assert_int_eq(uv_run(c->loop, UV_RUN_NOWAIT), 0);
    ck_assert_int_eq(uv_loop_close(c->loop), 0);
}

void expect_works(struct ssh_client *c)
{
    ssh_client_open(c);
    ssh_client_greet(c);
    ssh_client_reset(c);
}

void expect_fails(struct ssh_client *c, enum hvd_status status,
                  const char *part)
{
    ssh_client_open(c);
    ssh_client_run(c, until_end);
    ck_assert_msg(c->why.status == -(int)status, "%s: %s",
                  hb_status_name(c->why.status), c->why.text);
    ck_assert_msg(strstr(c->why.text, part) != NULL, "'%s' is not in '%s'",
                  part, c->why.text);
    ck_assert_ptr_null(strchr(c->why.text, '\n'));
    ck_assert_int_eq(transport_write(c->t, "x", 1), -HVD_ECLOSED);
    ssh_client_reset(c);
}
