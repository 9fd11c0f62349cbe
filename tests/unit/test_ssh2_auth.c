/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ssh/ssh2.h with a real sshd: keys, agents, passphrases. */
#include "tests/unit/ssh_server.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { HOSTS = 8 };

static struct ssh_server server;
static struct ssh_client c;

static void setup(void)
{
    server_start(&server, SERVER_SSHD, NULL);
    ssh_client_init(&c, &server);
}

static void teardown(void)
{
    ssh_client_fini(&c);
    server_stop(&server);
}

/* Replaces the server, and the client, by new ones. */
static void restart(const char *line)
{
    teardown();
    server_start(&server, SERVER_SSHD, line, NULL);
    ssh_client_init(&c, &server);
}

static void add_identity(const char *name)
{
    hb_strv_add(&c.config.identities, ssh_file("%s", name));
}

/* ---- Key files ---- */

START_TEST(kinds_of_keys)
{
    static const char *const names[] = {"ed25519", "ecdsa", "p521"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ssh_client_identity(&c, names[i]);
        expect_works(&c);
    }
}
END_TEST

/* No server accepts libssh2 1.10's signatures with RSA keys. */
START_TEST(rsa_keys)
{
    ssh_client_identity(&c, "rsa");
    if (ssh_client_has_rsa())
        expect_works(&c);
    else
        expect_fails(&c, HVD_EUNSUPPORTED, "the ssh-rsa key ");
    c.config.rsa_bits = 8192;
    expect_fails(&c, HVD_EPERM, "bits, and RequiredRSASize is 8192");
    /* another key will do, in any order */
    add_identity("ed25519");
    expect_works(&c);
}
END_TEST

START_TEST(an_rsa_key_is_left_to_ssh_after_others)
{
    ssh_client_identity(&c, "stranger");
    add_identity("rsa");
    if (!ssh_client_has_rsa())
        expect_fails(&c, HVD_EUNSUPPORTED, "the ssh-rsa key ");
}
END_TEST

START_TEST(keys_that_are_not_accepted)
{
    ssh_shell("mkdir -p home/.ssh && cp stranger home/.ssh/id_ed25519");
    ssh_client_identity(&c, "home/.ssh/id_ed25519");
    expect_fails(&c, HVD_EPERM,
                 "ssh: no key was accepted (tried ~/.ssh/id_ed25519); add one "
                 "with: ssh-copy-id -p ");
    ssh_shell("rm -r home");
}
END_TEST

/* Sanitizers keep freed memory, and their own maps are too large to read. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/* Counts how often a text occurs in writable memory.  `coded` is the text with
 * one added to every byte, so that it is not found itself. */
static int copies_in_memory(const char *coded)
{
    FILE *f = fopen("/proc/self/maps", "r");
    size_t len = strlen(coded);
    char line[512], mode[8];
    unsigned long from, to;
    int found = 0;

    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 ||
            mode[0] != 'r' || mode[1] != 'w' || strstr(line, "[v"))
            continue;
        for (const char *p = (const char *)from; p + len <= (const char *)to;
             p++) {
            size_t n = 0;

            while (n < len && p[n] + 1 == coded[n])
                n++;
            found += n == len;
        }
    }
    fclose(f);
    return found;
}

/* A private key does not stay in memory for the hours that a job takes. */
START_TEST(keys_are_forgotten)
{
    char *coded;

    ssh_shell("sed -n 3p ed25519 | cut -c1-40 | tr -d '\\n' | "
              "perl -pe 's/(.)/chr(ord($1) + 1)/ge' >coded");
    coded = ssh_read("coded");
    ck_assert_uint_eq(strlen(coded), 40);
    ck_assert_int_eq(prctl(PR_GET_DUMPABLE), 1);
    ssh_client_open(&c);
    ssh_client_greet(&c);
    ck_assert_int_ge(copies_in_memory(coded), 1);
    ck_assert_int_eq(prctl(PR_GET_DUMPABLE), 0);
    c.plugin->forget_keys(c.shared);
    ck_assert_int_eq(copies_in_memory(coded), 0);
    ck_assert_int_eq(prctl(PR_GET_DUMPABLE), 1);
    ssh_client_reset(&c);
    expect_works(&c); /* reads the key again */
    free(coded);
}
END_TEST

#endif

START_TEST(no_key_at_all)
{
    ssh_client_identity(&c, "nothing_there");
    expect_fails(&c, HVD_EPERM, "there is no key to log in with");
    hb_strv_free(&c.config.identities);
    expect_fails(&c, HVD_EPERM, "there is no key to log in with");
}
END_TEST

START_TEST(files_that_are_no_keys)
{
    ssh_shell("cp ed25519 open_to_all && chmod 644 open_to_all && "
              "echo nonsense >nonsense && mkdir -p directory");
    ssh_client_identity(&c, "open_to_all");
    expect_fails(&c, HVD_EPERM, "open_to_all can be read by others");
    ssh_client_identity(&c, "nonsense");
    expect_fails(&c, HVD_EPERM, "nonsense is no key");
    ssh_client_identity(&c, "directory");
    expect_fails(&c, HVD_EPERM, "directory is no key");
    add_identity("ed25519");
    expect_works(&c);
    /* damaged, but with an intact public part */
    ssh_shell("head -n -3 ed25519 >damaged; tail -n 1 ed25519 >>damaged; "
              "chmod 600 damaged");
    ssh_client_identity(&c, "damaged");
    ssh_client_open(&c);
    ssh_client_run(&c, until_end);
    ck_assert_int_ne(c.why.status, 0);
}
END_TEST

/* A certificate beside the key, which ssh would show, makes hvdrun use ssh. */
START_TEST(a_certificate_is_left_to_ssh)
{
    ssh_shell("cp stranger with_cert; echo x >with_cert-cert.pub");
    ssh_client_identity(&c, "with_cert");
    expect_fails(&c, HVD_EUNSUPPORTED, "with_cert-cert.pub");
    ssh_shell("cp ed25519 with_cert");
    ssh_client_fini(&c);
    ssh_client_init(&c, &server);
    ssh_client_identity(&c, "with_cert");
    expect_works(&c);
}
END_TEST

/* ---- Passphrases ---- */

START_TEST(a_passphrase_is_asked_once_for_all_hosts)
{
    static struct ssh_client others[HOSTS];

    c.answer = LOCKED_PHRASE;
    ssh_client_identity(&c, "locked");
    ssh_client_open(&c);
    for (int i = 0; i < HOSTS; i++) {
        ssh_client_join(&others[i], &c);
        ssh_client_open(&others[i]);
    }
    ssh_client_greet(&c);
    for (int i = 0; i < HOSTS; i++) {
        ssh_client_greet(&others[i]);
        ssh_client_fini(&others[i]);
    }
    ck_assert_int_eq(c.asked, 1);
}
END_TEST

/* A host that is lost after hours fails rather than asks again. */
START_TEST(no_passphrase_is_asked_after_keys_are_forgotten)
{
    c.answer = LOCKED_PHRASE;
    ssh_client_identity(&c, "locked");
    ssh_client_open(&c);
    ssh_client_greet(&c);
    ck_assert_int_eq(c.asked, 1);
    c.plugin->forget_keys(c.shared);
    ssh_client_reset(&c);
    expect_fails(&c, HVD_EPERM, "passphrase, which is asked for once only");
    ck_assert_int_eq(c.asked, 1);
}
END_TEST

START_TEST(a_wrong_passphrase_is_asked_again)
{
    c.answer = "wrong";
    ssh_client_identity(&c, "locked");
    expect_fails(&c, HVD_EPERM, "locked needs its passphrase");
    ck_assert_int_eq(c.asked, 3);
    expect_fails(&c, HVD_EPERM, "ssh-add"); /* asked no more, for any host */
    ck_assert_int_eq(c.asked, 3);
}
END_TEST

START_TEST(nobody_to_be_asked)
{
    ssh_client_identity(&c, "locked");
    expect_fails(&c, HVD_EPERM, "locked needs its passphrase");
    ck_assert_int_eq(c.asked, 1);
    add_identity("ed25519");
    expect_works(&c);
}
END_TEST

/* A passphrase is asked for only if the server would accept the key. */
START_TEST(no_passphrase_is_asked_for_nothing)
{
    ssh_shell("ssh-keygen -q -t ed25519 -N secret -f locked_stranger");
    ssh_client_identity(&c, "locked_stranger");
    add_identity("ed25519");
    expect_works(&c);
    ck_assert_int_eq(c.asked, 0);
}
END_TEST

START_TEST(a_passphrase_of_another_format)
{
    c.answer = LOCKED_PHRASE;
    ssh_client_identity(&c, "locked_pem");
    expect_works(&c);
    expect_works(&c);
    ck_assert_int_eq(c.asked, 1);
    ssh_client_fini(&c);
    ssh_client_init(&c, &server);
    c.answer = "wrong";
    ssh_client_identity(&c, "locked_pem");
    expect_fails(&c, HVD_EPERM, "locked_pem cannot be read with that");
}
END_TEST

/* Lets ssh-add be looked for in one folder only. */
static void expect_fails_with_path(const char *folder, const char *part)
{
    char *path = hb_xstrdup(getenv("PATH"));

    ck_assert_int_eq(setenv("PATH", folder, 1), 0);
    expect_fails(&c, HVD_EPERM, part);
    ck_assert_int_eq(setenv("PATH", path, 1), 0);
    hb_free(path);
}

/* Without ssh-add nobody is asked for what would be of no use. */
START_TEST(a_passphrase_without_ssh_add)
{
    c.answer = LOCKED_PHRASE;
    ssh_client_identity(&c, "locked");
    expect_fails_with_path("/nonexistent",
                           "locked has a passphrase, and ssh-add, which "
                           "decrypts it, is not installed here; install "
                           "OpenSSH's client programs");
    ck_assert_int_eq(c.asked, 0);
}
END_TEST

/* A key that ssh-add cannot read is not asked for again. */
START_TEST(a_locked_key_that_ssh_add_cannot_read)
{
    ssh_shell("mkdir -p bin && cd bin && echo '#!/bin/sh' >ssh-add && "
              "echo 'echo invalid format >&2' >>ssh-add && chmod 700 ssh-add");
    c.answer = LOCKED_PHRASE;
    ssh_client_identity(&c, "locked");
    expect_fails_with_path(ssh_file("bin"), "locked cannot be decrypted: "
                                            "ssh-add: invalid format");
    ck_assert_int_eq(c.asked, 1);
}
END_TEST

/* No passphrase is asked for in CI, where nobody sits at a terminal. */
START_TEST(the_terminal_is_asked_when_there_is_one)
{
    c.options.ask = NULL;
    ssh_client_identity(&c, "locked");
    ck_assert_int_eq(setenv("CI", "1", 1), 0);
    expect_fails(&c, HVD_EPERM, "needs its passphrase");
    ck_assert_int_eq(unsetenv("CI"), 0);
}
END_TEST

/* ---- Agents ---- */

/* Each test has a path of its own: an agent that was killed removes its socket
 * later, and would remove that of the next agent. */
static const char *agent_path(void)
{
    return ssh_file("agent-%d", (int)getpid());
}

static void agent_start(void)
{
    ssh_shell("ssh-agent -a %s >agent.env", agent_path());
    ck_assert_ptr_null(c.config.agent);
    c.config.agent = hb_xstrdup(agent_path());
}

static void agent_stop(void)
{
    ssh_shell(". ./agent.env >/dev/null; kill $SSH_AGENT_PID");
}

static void agent_add(const char *names)
{
    ssh_shell("SSH_AUTH_SOCK=%s ssh-add -q %s </dev/null", agent_path(), names);
}

START_TEST(keys_of_the_agent)
{
    static const char *const names[] = {"ed25519", "ecdsa", "p521"};

    agent_start();
    hb_strv_free(&c.config.identities);
    expect_fails(&c, HVD_EPERM, "there is no key to log in with");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        agent_add(names[i]);
        expect_works(&c);
        ssh_shell("SSH_AUTH_SOCK=%s ssh-add -q -D", agent_path());
    }
    agent_add("rsa");
    if (ssh_client_has_rsa())
        expect_works(&c);
    else
        expect_fails(&c, HVD_EUNSUPPORTED, "the ssh-rsa key of the agent");
    agent_add("stranger");
    ssh_shell("SSH_AUTH_SOCK=%s ssh-add -q -d rsa", agent_path());
    expect_fails(&c, HVD_EPERM, "no key was accepted (tried agent)");
    agent_stop();
}
END_TEST

/* A configured public key file selects the agent's key; no passphrase is
 * needed. */
START_TEST(keys_that_are_in_a_file_and_in_the_agent)
{
    agent_start();
    ssh_shell("ssh-keygen -q -p -P '" LOCKED_PHRASE "' -N '' -f locked && "
              "mv locked open && cp locked.pub open.pub");
    agent_add("open stranger");
    ssh_shell("ssh-keygen -q -p -N '" LOCKED_PHRASE "' -f open && "
              "mv open locked");
    c.config.identities_only = 1;
    ssh_client_identity(&c, "locked");
    expect_works(&c);
    ck_assert_int_eq(c.asked, 0);
    ssh_client_identity(&c, "locked.pub");
    expect_works(&c);
    ssh_client_identity(&c, "open"); /* only open.pub exists */
    expect_works(&c);
    ssh_client_identity(&c, "ecdsa.pub");
    expect_fails(&c, HVD_EPERM, "there is no key to log in with");
    agent_stop();
}
END_TEST

/* An agent with more keys than a server tries: key files still get their
 * turn. */
START_TEST(an_agent_with_many_keys)
{
    agent_start();
    ssh_shell("for i in 1 2 3 4 5 6 7 8; do ssh-keygen -q -t ed25519 -N '' "
              "-f many$i; done");
    agent_add("many1 many2 many3 many4 many5 many6 many7 many8");
    expect_works(&c);
    ssh_client_identity(&c, "stranger");
    expect_fails(&c, HVD_EPERM, "no key was accepted (tried agent, /tmp/");
    agent_stop();
}
END_TEST

START_TEST(an_agent_that_is_not_there)
{
    c.config.agent = hb_xstrdup("/nonexistent/agent");
    expect_works(&c);
}
END_TEST

/* An agent may hang, as a forwarded one does: closing works all the same. */
START_TEST(an_agent_that_hangs)
{
    ssh_shell("exec 3>&1; (ssh-agent -a %s >agent.env)", agent_path());
    c.config.agent = hb_xstrdup(agent_path());
    ssh_shell(". ./agent.env >/dev/null; kill -STOP $SSH_AGENT_PID");
    c.close_at = "authenticating";
    ssh_client_open(&c);
    ssh_client_run(&c, until_close);
    ssh_shell(". ./agent.env >/dev/null; kill -CONT $SSH_AGENT_PID");
    agent_stop();
}
END_TEST

/* ---- Servers ---- */

START_TEST(a_server_that_takes_no_keys)
{
    restart("PubkeyAuthentication no");
    expect_fails(&c, HVD_EPERM, "its sshd takes no key, only ");
    ck_assert_int_eq(c.asked, 0);
}
END_TEST

START_TEST(a_server_with_a_banner)
{
    ssh_write("banner.txt", 0600, "Authorized\nuse only\n");
    teardown();
    {
        char line[256];

        snprintf(line, sizeof(line), "Banner %s", ssh_file("banner.txt"));
        server_start(&server, SERVER_SSHD, line, NULL);
    }
    ssh_client_init(&c, &server);
    expect_works(&c);
}
END_TEST

START_TEST(a_server_that_loses_patience)
{
    restart("MaxAuthTries 2");
    ssh_shell("for i in 1 2 3; do ssh-keygen -q -t ed25519 -N '' -f patience$i;"
              " done");
    ssh_client_identity(&c, "patience1");
    add_identity("patience2");
    add_identity("patience3");
    expect_fails(&c, HVD_EPERM, "closed the connection after ");
}
END_TEST

START_TEST(a_server_without_sessions)
{
    restart("MaxSessions 0");
    expect_fails(&c, HVD_EPERM, "refuses sessions");
}
END_TEST

START_TEST(no_such_user)
{
    hb_free(c.config.user);
    c.config.user = hb_xstrdup("nosuchuser");
    expect_fails(&c, HVD_EPERM, "no key was accepted");
}
END_TEST

static void add_tests(TCase *t)
{
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, kinds_of_keys);
    tcase_add_test(t, rsa_keys);
    tcase_add_test(t, an_rsa_key_is_left_to_ssh_after_others);
    tcase_add_test(t, keys_that_are_not_accepted);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_test(t, keys_are_forgotten);
#endif
    tcase_add_test(t, no_key_at_all);
    tcase_add_test(t, files_that_are_no_keys);
    tcase_add_test(t, a_certificate_is_left_to_ssh);
    tcase_add_test(t, a_passphrase_is_asked_once_for_all_hosts);
    tcase_add_test(t, no_passphrase_is_asked_after_keys_are_forgotten);
    tcase_add_test(t, a_wrong_passphrase_is_asked_again);
    tcase_add_test(t, nobody_to_be_asked);
    tcase_add_test(t, no_passphrase_is_asked_for_nothing);
    tcase_add_test(t, a_passphrase_of_another_format);
    tcase_add_test(t, a_passphrase_without_ssh_add);
    tcase_add_test(t, a_locked_key_that_ssh_add_cannot_read);
    tcase_add_test(t, the_terminal_is_asked_when_there_is_one);
    tcase_add_test(t, keys_of_the_agent);
    tcase_add_test(t, keys_that_are_in_a_file_and_in_the_agent);
    tcase_add_test(t, an_agent_with_many_keys);
    tcase_add_test(t, an_agent_that_is_not_there);
    tcase_add_test(t, an_agent_that_hangs);
    tcase_add_test(t, a_server_that_takes_no_keys);
    tcase_add_test(t, a_server_with_a_banner);
    tcase_add_test(t, a_server_that_loses_patience);
    tcase_add_test(t, a_server_without_sessions);
    tcase_add_test(t, no_such_user);
}

int main(void)
{
    return ssh_fixture_run("ssh2_auth", add_tests);
}
