/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a host's key accepted, and what is added to known_hosts?  The plug-in and
 * the ssh program must agree.  Cases are pseudo-random, the same in each run;
 * HVD_TEST_FULL=1 runs many more.
 *
 * A case is a set of known_hosts files, an alias, a StrictHostKeyChecking value
 * and a server.  No login is allowed, so both end once they have judged the
 * key.
 */
#include "lib/ssh/known_hosts.h"
#include "tests/unit/ssh_server.h"
#include "tests/unit/unit.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 24, /* cases of a test, which ssh judges in parallel */
    BATCHES = 2,
    BATCHES_FULL = 30,
    FILES = 3,
    LINES_MAX = 3,
    KEY_LINE_MAX = 2048,
};

/* The servers, and the keys that they show. */
static const char *const servers[][2] = {
    {"HostKey host_ed25519", NULL},
    {"HostKey host_ecdsa", NULL},
    {"HostKey host_ed25519", "HostKey host_ecdsa"},
};
enum { SERVERS = sizeof(servers) / sizeof(servers[0]) };

/* libssh2 1.10 lacks the RSA signatures that servers accept.  Such cases are
 * left to ssh, so few are drawn. */
static const char *const keys[] = {"host_ed25519", "host_ecdsa", "host_ed25519",
                                   "host_ecdsa",   "stranger",   "ecdsa",
                                   "host_rsa"};

static const char *const files[FILES] = {"user", "user2", "global"};
static const char *const stricts[] = {"yes", "ask", "accept-new", "no", "off"};

struct judge_case {
    int server;
    const char *strict, *alias; /* alias NULL: none */
    int hash, no_user_files;
    struct hb_buf text[FILES];
};

static struct ssh_server server[SERVERS];
static struct judge_case cases[BATCH];

/* ---- Drawing cases ---- */

static uint64_t state;

static unsigned draw(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

/* Draws a list of patterns that match the host, or another one. */
static void draw_names(const struct judge_case *k, struct hb_buf *out)
{
    char name[64], text[160];
    unsigned char salt[KNOWN_HOSTS_SALT_BYTES] = {(unsigned char)draw(256)};
    struct hb_buf line = HB_BUF_INIT;

    if (k->alias)
        snprintf(name, sizeof(name), "%s", k->alias);
    else
        snprintf(name, sizeof(name), draw(4) ? "[127.0.0.1]:%d" : "127.0.0.1",
                 server[k->server].port);
    switch (draw(8)) {
    case 0:
        snprintf(text, sizeof(text), "*");
        break;
    case 1:
        snprintf(text, sizeof(text), "*,!%s", name);
        break;
    case 2:
        snprintf(text, sizeof(text), "n2,%s,10.0.0.9", name);
        break;
    case 3:
        snprintf(text, sizeof(text), "n2");
        break;
    case 4:
        snprintf(text, sizeof(text), "?%s", name + 1);
        break;
    case 5:
        known_hosts_line(name, "", 0, salt, &line);
        snprintf(text, sizeof(text), "%.*s",
                 (int)strcspn(hb_buf_data(&line), " "), hb_buf_data(&line));
        break;
    default:
        snprintf(text, sizeof(text), "%s", name);
    }
    hb_buf_free(&line);
    hb_buf_puts(out, text);
}

static void draw_line(const struct judge_case *k, struct hb_buf *out)
{
    static const char *const markers[] = {"@revoked ", "@cert-authority ",
                                          "@unknown ", "# ", "  "};
    unsigned marker = draw(24), broken = draw(16);
    char key[KEY_LINE_MAX];

    snprintf(key, sizeof(key), "%s",
             ssh_public(keys[draw(sizeof(keys) / sizeof(keys[0]))]));
    if (broken == 0) /* claims a wrong type */
        memcpy(key, "ssh-dss", 7);
    if (broken == 1)
        key[strlen(key) / 2] = '!';
    hb_buf_puts(out, marker < 5 ? markers[marker] : "");
    draw_names(k, out);
    hb_buf_printf(out, " %s%s\n", key, draw(4) ? "" : " a comment\r");
}

static void draw_case(struct judge_case *k)
{
    static const char *const aliases[] = {"n1", "Alias.Example", "a*b", "[n1]"};
    unsigned alias = draw(16);

    memset(k, 0, sizeof(*k));
    k->server = (int)draw(SERVERS);
    k->strict = stricts[draw(sizeof(stricts) / sizeof(stricts[0]))];
    k->alias = alias < 4 ? aliases[alias] : alias < 8 ? aliases[0] : NULL;
    k->hash = draw(4) == 0;
    k->no_user_files = draw(16) == 0;
    for (unsigned n = draw(LINES_MAX + 1); n > 0; n--)
        draw_line(k, &k->text[draw(FILES)]);
}

/* ---- What ssh says ---- */

static const char *path(int i, const char *who, const char *file)
{
    return ssh_file("%s%d.%s", who, i, file);
}

static void write_files(const struct judge_case *k, int i, const char *who)
{
    for (int f = 0; f < FILES; f++) {
        char name[64];

        snprintf(name, sizeof(name), "%s%d.%s", who, i, files[f]);
        ssh_write(name, 0600, hb_buf_data(&k->text[f]));
    }
}

static void put_command(const struct judge_case *k, int i, struct hb_buf *out)
{
    hb_buf_printf(
        out,
        "ssh -F none -T -o BatchMode=yes -o PubkeyAuthentication=no "
        "-o PreferredAuthentications=none -o StrictHostKeyChecking=%s "
        "-o HashKnownHosts=%s -p %d ",
        k->strict, k->hash ? "yes" : "no", server[k->server].port);
    if (k->alias)
        hb_buf_printf(out, "-o 'HostKeyAlias=%s' ", k->alias);
    if (k->no_user_files)
        hb_buf_puts(out, "-o UserKnownHostsFile=none ");
    else
        hb_buf_printf(out, "-o 'UserKnownHostsFile=%s %s' ",
                      path(i, "ssh", "user"), path(i, "ssh", "user2"));
    hb_buf_printf(out,
                  "-o GlobalKnownHostsFile=%s 127.0.0.1 true "
                  "</dev/null >said%d 2>&1 &\n",
                  path(i, "ssh", "global"), i);
}

static void ask_ssh(void)
{
    struct hb_buf script = HB_BUF_INIT;

    for (int i = 0; i < BATCH; i++) {
        write_files(&cases[i], i, "ssh");
        put_command(&cases[i], i, &script);
    }
    hb_buf_puts(&script, "wait\n");
    ssh_write("script", 0600, hb_buf_data(&script));
    ssh_shell("sh ./script");
    hb_buf_free(&script);
}

/* ---- What the plug-in says ---- */

static enum ssh_strict strictness(const char *word)
{
    return strcmp(word, "accept-new") == 0    ? SSH_STRICT_ACCEPT_NEW
           : word[0] == 'n' || word[0] == 'o' ? SSH_STRICT_OFF
                                              : SSH_STRICT_YES;
}

static void ask_plugin(const struct judge_case *k, int i, struct hb_error *why)
{
    struct ssh_client c;

    write_files(k, i, "own");
    ssh_client_init(&c, &server[k->server]);
    hb_strv_free(&c.config.user_known_hosts);
    hb_strv_free(&c.config.global_known_hosts);
    hb_strv_free(&c.config.identities);
    if (!k->no_user_files) {
        hb_strv_add(&c.config.user_known_hosts, path(i, "own", "user"));
        hb_strv_add(&c.config.user_known_hosts, path(i, "own", "user2"));
    }
    hb_strv_add(&c.config.global_known_hosts, path(i, "own", "global"));
    c.config.strict = strictness(k->strict);
    c.config.hash_known_hosts = k->hash;
    if (k->alias)
        c.config.host_key_alias = hb_xstrdup(k->alias);
    ssh_client_open(&c);
    ssh_client_run(&c, until_end);
    *why = c.why;
    ssh_client_fini(&c);
}

/* ---- Comparing ---- */

static void describe(const struct judge_case *k, int i, const char *said,
                     const struct hb_error *why, struct hb_buf *out)
{
    struct hb_buf command = HB_BUF_INIT;

    put_command(k, i, &command);
    hb_buf_printf(out, "%s\n", hb_buf_data(&command));
    for (int f = 0; f < FILES; f++)
        hb_buf_printf(out, "---- %s\n%s", files[f], hb_buf_data(&k->text[f]));
    hb_buf_printf(out, "---- ssh said\n%s---- hvdrun said\n%s\n", said,
                  why->text);
    hb_buf_free(&command);
}

static size_t count_lines(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Compares files of both.  Salts differ, so hashed names count only as
 * lines. */
static int same_files(const struct judge_case *k, int i)
{
    int same = 1;

    for (int f = 0; f < FILES; f++) {
        char name[64], *a, *b;

        snprintf(name, sizeof(name), "ssh%d.%s", i, files[f]);
        a = ssh_read(name);
        snprintf(name, sizeof(name), "own%d.%s", i, files[f]);
        b = ssh_read(name);
        same &= k->hash ? count_lines(a) == count_lines(b) : !strcmp(a, b);
        free(a);
        free(b);
    }
    return same;
}

/* Fails the test unless both verdicts agree.  Returns 1, or 0 if hvdrun leaves
 * the case to ssh or is stricter: it refuses a revoked key where ssh only
 * warns, and a key that is revoked only under the name without the port. */
static int compare(const struct judge_case *k, int i)
{
    struct hb_error why = HB_ERROR_INIT;
    char name[32], *said;
    struct hb_buf all = HB_BUF_INIT;
    int accepted, accepted_by_ssh, alike;

    ask_plugin(k, i, &why);
    snprintf(name, sizeof(name), "said%d", i);
    said = ssh_read(name);
    describe(k, i, said, &why, &all);
    accepted_by_ssh = strstr(said, "Permission denied") != NULL;
    ck_assert_msg(accepted_by_ssh !=
                      (strstr(said, "Host key verification failed") != NULL),
                  "ssh did not judge:\n%s", hb_buf_data(&all));
    accepted = strstr(why.text, "no key to log in with") != NULL;
    alike = why.status != -HVD_EUNSUPPORTED &&
            !strstr(why.text, "is marked as revoked");
    ck_assert_msg(!alike || accepted || strstr(why.text, "its host key"), "%s",
                  hb_buf_data(&all));
    ck_assert_msg(!alike || accepted == accepted_by_ssh, "another verdict:\n%s",
                  hb_buf_data(&all));
    ck_assert_msg(!alike || strstr(said, "REVOKED") == NULL,
                  "a revoked key:\n%s", hb_buf_data(&all));
    ck_assert_msg(!alike || accepted ||
                      (strstr(why.text, "has changed") != NULL) ==
                          (strstr(said, "CHANGED") != NULL),
                  "another reason:\n%s", hb_buf_data(&all));
    ck_assert_msg(!alike || same_files(k, i), "other lines were added:\n%s",
                  hb_buf_data(&all));
    hb_buf_free(&all);
    free(said);
    return alike;
}

START_TEST(judges_as_openssh_does)
{
    int alike = 0;

    state = (uint64_t)_i;
    for (int i = 0; i < BATCH; i++)
        draw_case(&cases[i]);
    ask_ssh();
    for (int i = 0; i < BATCH; i++)
        alike += compare(&cases[i], i);
    ck_assert_int_ge(alike, BATCH / 2);
}
END_TEST

static void setup(void)
{
    for (int i = 0; i < SERVERS; i++)
        server_start(&server[i], SERVER_SSHD, servers[i][0], servers[i][1],
                     NULL);
}

static void teardown(void)
{
    for (int i = 0; i < SERVERS; i++)
        server_stop(&server[i]);
    for (int i = 0; i < BATCH; i++)
        for (int f = 0; f < FILES; f++)
            hb_buf_free(&cases[i].text[f]);
}

static void add_tests(TCase *t)
{
    const char *full = getenv("HVD_TEST_FULL");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, judges_as_openssh_does, 0,
                        full && *full ? BATCHES_FULL : BATCHES);
}

int main(void)
{
    return ssh_fixture_run("ssh2_judge", add_tests);
}
