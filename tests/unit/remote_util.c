/* SPDX-License-Identifier: Apache-2.0 */
/* Other hosts for tests; see remote_util.h. */
#include "tests/unit/remote_util.h"

#include "lib/protocol/frame.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char far_dir[4096];
static char far_self[4096], old_path[4096];
uv_loop_t far_loop;
struct hb_log far_log;
struct remote *far_remote;
struct remote_options far_options;

struct far_seen far_seen[FAR_HOSTS];

static void on_read(void *arg, const char *bytes, size_t len)
{
    struct far_seen *s = arg;

    ck_assert_int_eq(s->ends, 0);
    hb_buf_append(&s->in, bytes, len);
    s->reads++;
    if (!s->keep)
        transport_close(s->t);
}

static void on_stderr(void *arg, const char *bytes, size_t len)
{
    struct far_seen *s = arg;

    ck_assert_int_eq(s->closes, 0);
    hb_buf_append(&s->errs, bytes, len);
}

static void on_end(void *arg, const struct hb_error *err)
{
    struct far_seen *s = arg;

    s->ends++;
    if (err)
        s->why = *err;
    transport_close(s->t);
    transport_close(s->t);
}

static void on_close(void *arg)
{
    struct far_seen *s = arg;

    s->closes++;
}

static void on_stage(void *arg, const char *stage)
{
    struct far_seen *s = arg;

    ck_assert_int_eq(s->reads, 0);
    hb_buf_printf(&s->stages, "%s\n", stage);
    if (s->close_at && strncmp(stage, s->close_at, strlen(s->close_at)) == 0)
        transport_close(s->t);
}

static void drop(void *arg, enum hb_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

/* ---- The private directory ---- */

void far_file(const char *name, mode_t mode, const char *fmt, ...)
{
    char path[8192];
    va_list ap;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", far_dir, name);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    va_start(ap, fmt);
    vfprintf(f, fmt, ap);
    va_end(ap);
    fclose(f);
    ck_assert_int_eq(chmod(path, mode), 0);
}

/* Returns what a shell command prints, without its last newline. */
const char *far_shell(const char *fmt, ...)
{
    static char out[8192];
    char command[8192];
    va_list ap;
    size_t n;
    FILE *f;

    va_start(ap, fmt);
    vsnprintf(command, sizeof(command), fmt, ap);
    va_end(ap);
    f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    n = fread(out, 1, sizeof(out) - 1, f);
    pclose(f);
    if (n > 0 && out[n - 1] == '\n')
        n--;
    out[n] = '\0';
    return out;
}

/* ---- Fixture ---- */

void far_setup(void)
{
    char path[9000];

    snprintf(far_dir, sizeof(far_dir), "/tmp/hvd-test-remote XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(far_dir));
    setenv("HOME", far_dir, 1);
    setenv("TMPDIR", far_dir, 1);
    unsetenv("XDG_CACHE_HOME");
    snprintf(path, sizeof(path), "%s:%s", far_dir, old_path);
    setenv("PATH", path, 1);
    setenv("FAKE_AGENT", "hello", 1);
    ck_assert_int_eq(uv_loop_init(&far_loop), 0);
    far_log = (struct hb_log){.sink = drop, .level = HB_LOG_DEBUG};
    memset(far_seen, 0, sizeof(far_seen));
    far_options = (struct remote_options){
        .launcher = REMOTE_RSH,
        .rsh = "sh -c 'exec /bin/sh'",
        .max_startups = 16,
        .agent_path = far_self,
        .plugin_dir = "/nonexistent",
        .start_timeout_ms = 60000,
    };
    far_remote = NULL;
}

void far_teardown(void)
{
    remote_free(far_remote);
    ck_assert_int_eq(uv_loop_close(&far_loop), 0);
    for (int i = 0; i < FAR_HOSTS; i++) {
        hb_buf_free(&far_seen[i].in);
        hb_buf_free(&far_seen[i].errs);
        hb_buf_free(&far_seen[i].stages);
    }
    setenv("PATH", old_path, 1);
    far_shell("rm -rf '%s'", far_dir);
}

void far_open(int i, char *name)
{
    struct host_entry entry = {.name = name};
    struct transport_config config = {
        .loop = &far_loop,
        .log = &far_log,
        .host = name,
        .agent_path = far_self,
        .events = {on_read, on_stderr, on_end, on_close, on_stage, NULL, NULL},
        .arg = &far_seen[i],
        .exit_wait_ms = 20000,
    };
    struct hb_error err = HB_ERROR_INIT;

    if (!far_remote)
        ck_assert_msg(remote_new(&far_loop, &far_log, &far_options, &far_remote,
                                 &err) == 0,
                      "%s", err.text);
    ck_assert_int_eq(transport_open_remote(far_remote, &entry, &config,
                                           &far_seen[i].t, &err),
                     0);
    ck_assert_int_eq(far_seen[i].ends + far_seen[i].closes, 0);
}

void far_run(void)
{
    uv_run(&far_loop, UV_RUN_DEFAULT);
    for (int i = 0; i < FAR_HOSTS; i++)
        ck_assert_int_eq(far_seen[i].closes, far_seen[i].t != NULL);
}

void far_ran(int i)
{
    ck_assert_msg(far_seen[i].ends == 0, "host %d: %s", i,
                  far_seen[i].why.text);
    ck_assert_uint_ge(hb_buf_len(&far_seen[i].in), FRAME_HEADER_BYTES);
    ck_assert_int_eq(memcmp(hb_buf_data(&far_seen[i].in), "hvD1", 4), 0);
}

void far_failed(int i, int status, const char *text)
{
    ck_assert_int_eq(far_seen[i].ends, 1);
    ck_assert_int_eq(far_seen[i].reads, 0);
    ck_assert_msg(strstr(far_seen[i].why.text, text), "%s",
                  far_seen[i].why.text);
    ck_assert_msg(far_seen[i].why.status == -status, "%s: %s",
                  hb_status_name(far_seen[i].why.status), far_seen[i].why.text);
}

void far_runs(void)
{
    far_open(0, "n1");
    far_run();
    far_ran(0);
}

void far_fails(int status, const char *text)
{
    far_open(0, "n1");
    far_run();
    far_failed(0, status, text);
}

int far_said(int i, const char *stage)
{
    return strstr(hb_buf_data(&far_seen[i].stages), stage) != NULL;
}

/* Prepares another start in the same test. */
void far_again(void)
{
    remote_free(far_remote);
    far_remote = NULL;
    for (int i = 0; i < FAR_HOSTS; i++) {
        hb_buf_free(&far_seen[i].in);
        hb_buf_free(&far_seen[i].errs);
        hb_buf_free(&far_seen[i].stages);
    }
    memset(far_seen, 0, sizeof(far_seen));
}

/* Makes a script the ssh program; `ssh -G` also prints the file `config`. */
void far_ssh(const char *body)
{
    far_options.launcher = REMOTE_OPENSSH;
    far_file("config", 0600, "port 22\nuser me\n");
    far_file("ssh", 0700,
             "#!/bin/sh\n"
             "if [ \"$1\" = -G ]; then\n"
             "  for last; do :; done\n"
             "  echo \"hostname $last\"\n"
             "  exec cat \"$HOME/config\"\n"
             "fi\n"
             "%s\n",
             body);
}

/* ---- The agent ---- */

static void hello(void)
{
    struct hb_buf b = HB_BUF_INIT;

    frame_encode(&b, 1, NULL, 0);
    if (write(1, hb_buf_data(&b), hb_buf_len(&b)) < 0)
        _exit(1);
    hb_buf_free(&b);
}

static int play(const char *part)
{
    char bytes[4096];
    ssize_t n;

    if (strcmp(part, "mute") == 0)
        return dprintf(2, "the agent cannot do it\n") < 0;
    hello();
    if (strcmp(part, "brief") == 0)
        return 0;
    while ((n = read(0, bytes, sizeof(bytes))) > 0)
        if (strcmp(part, "cat") == 0 && write(1, bytes, (size_t)n) != n)
            return 1;
    return 0;
}

static int agent_main(char *argv[])
{
    char hash[AGENT_HASH_HEX];

    if (strcmp(argv[1], "--check") == 0)
        return agent_hash_fd(open("/proc/self/exe", O_RDONLY), hash) ||
               strcmp(hash, argv[2]) != 0;
    return play(getenv("FAKE_AGENT"));
}

int far_main(int argc, char *argv[], Suite *(*suite)(void))
{
    /* Whatever an agent's arguments are, it must not run the tests again. */
    if (argc > 1)
        return agent_main(argv);
    if (readlink("/proc/self/exe", far_self, sizeof(far_self) - 1) < 0)
        return EXIT_FAILURE;
    snprintf(old_path, sizeof(old_path), "%s", getenv("PATH"));
    return unit_run(suite());
}
