/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ssh/ssh2.h with a real sshd: host keys. */
#include "tests/unit/ssh_server.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct ssh_server server;
static struct ssh_client c;
static char name[64]; /* the server's name in known_hosts */

static void start(const char *line1, const char *line2)
{
    server_start(&server, SERVER_SSHD, line1, line2, NULL);
    ssh_client_init(&c, &server);
    snprintf(name, sizeof(name), "[127.0.0.1]:%d", server.port);
}

static void setup(void)
{
    start(NULL, NULL);
}

static void teardown(void)
{
    ssh_client_fini(&c);
    server_stop(&server);
}

static void restart(const char *line1, const char *line2)
{
    teardown();
    start(line1, line2);
}

/* Sets known_hosts to a text, in which "NAME" is the server's name. */
static void known(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

static void known(const char *format, ...)
{
    char text[8192];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    ssh_client_known(&c, text);
}

/* Checks that known_hosts is `text`: nothing was added. */
static void expect_known(const char *text)
{
    char *found = ssh_read("known");

    ck_assert_str_eq(found, text);
    free(found);
}

static char *fingerprint(const char *key)
{
    static char line[256];

    ssh_shell("ssh-keygen -lf %s.pub | cut -d' ' -f2 | tr -d '\\n' >print",
              key);
    {
        char *text = ssh_read("print");

        snprintf(line, sizeof(line), "%s", text);
        free(text);
    }
    return line;
}

START_TEST(unknown)
{
    char command[128];

    known("# nothing\n\nn2 %s\n", ssh_public("host_ed25519"));
    ssh_client_open(&c);
    ssh_client_run(&c, until_end);
    ck_assert_int_eq(c.why.status, -HVD_EPERM);
    ck_assert_ptr_nonnull(strstr(c.why.text, "its host key is not known: "
                                             "ED25519 SHA256:"));
    ck_assert_ptr_nonnull(strstr(c.why.text, fingerprint("host_ed25519")));
    snprintf(command, sizeof(command), "accept it with: ssh -p %d 127.0.0.1 ",
             server.port);
    ck_assert_ptr_nonnull(strstr(c.why.text, command));
    ssh_client_reset(&c);
    /* missing files count as empty */
    hb_strv_free(&c.config.user_known_hosts);
    hb_strv_add(&c.config.user_known_hosts, "/nonexistent/known_hosts");
    expect_fails(&c, HVD_EPERM, "its host key is not known");
}
END_TEST

START_TEST(a_file_that_cannot_be_read)
{
    hb_strv_add(&c.config.global_known_hosts, "/");
    expect_fails(&c, HVD_ESYSTEM, "cannot read /: Is a directory");
}
END_TEST

START_TEST(changed)
{
    char command[600];

    known("n2 %s\n%s ", ssh_public("stranger"), name);
    ssh_shell("cat stranger.pub >>known");
    ssh_client_open(&c);
    ssh_client_run(&c, until_end);
    ck_assert_int_eq(c.why.status, -HVD_EPERM);
    ck_assert_ptr_nonnull(strstr(c.why.text, "its host key has changed"));
    ck_assert_ptr_nonnull(strstr(c.why.text, fingerprint("host_ed25519")));
    snprintf(command, sizeof(command), "known:2 has another");
    ck_assert_ptr_nonnull(strstr(c.why.text, command));
    snprintf(command, sizeof(command), "ssh-keygen -f %s -R '%s'",
             ssh_file("known"), name);
    ck_assert_ptr_nonnull(strstr(c.why.text, command));
    ssh_client_reset(&c);
    c.config.strict = SSH_STRICT_ACCEPT_NEW;
    expect_fails(&c, HVD_EPERM, "has changed");
    c.config.strict = SSH_STRICT_OFF;
    ssh_client_open(&c);
    ssh_client_greet(&c);
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&c.logged), "warning"));
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&c.logged), "has changed"));
}
END_TEST

/* A revoked key is refused, also where libssh2 itself would accept it. */
START_TEST(revoked)
{
    char text[4096];

    snprintf(text, sizeof(text), "%s %s\n@revoked * %s\n", name,
             ssh_public("host_ed25519"), ssh_public("host_ed25519"));
    ssh_client_known(&c, text);
    expect_fails(&c, HVD_EPERM, "is marked as revoked in /tmp/");
    c.config.strict = SSH_STRICT_OFF;
    expect_fails(&c, HVD_EPERM, "is marked as revoked");
    /* revoked in another file, under the name without port */
    snprintf(text, sizeof(text), "@revoked 127.0.0.1 %s\n",
             ssh_public("host_ed25519"));
    ssh_write("global", 0600, text);
    hb_strv_add(&c.config.global_known_hosts, ssh_file("global"));
    known("%s %s\n", name, ssh_public("host_ed25519"));
    hb_strv_add(&c.config.global_known_hosts, ssh_file("global"));
    expect_fails(&c, HVD_EPERM, "is marked as revoked");
    known("%s %s\n@revoked * %s\n", name, ssh_public("host_ed25519"),
          "ssh-ed25519 AAAA");
    expect_works(&c);
}
END_TEST

START_TEST(names)
{
    known("*,!n2 %s\n", ssh_public("host_ed25519"));
    expect_works(&c);
    known("[127.0.?.1]:* %s\n", ssh_public("host_ed25519"));
    expect_works(&c);
    known("*,!127.0.0.1,!%s %s\n", name, ssh_public("host_ed25519"));
    expect_fails(&c, HVD_EPERM, "not known");
    /* a key known for the host is valid for its other ports */
    known("127.0.0.1 %s\n", ssh_public("host_ed25519"));
    expect_works(&c);
    known("127.0.0.1 %s\n", ssh_public("stranger"));
    expect_fails(&c, HVD_EPERM, "not known");
    known("%s %s\n", name, ssh_public("host_ed25519"));
    ssh_shell("ssh-keygen -q -H -f known 2>/dev/null && rm known.old && "
              "! grep -q 127 known");
    expect_works(&c);
    known("alias %s\n", ssh_public("host_ed25519"));
    c.config.host_key_alias = hb_xstrdup("Alias");
    expect_works(&c);
}
END_TEST

START_TEST(several_files)
{
    char text[4096];

    snprintf(text, sizeof(text), "%s %s\n", name, ssh_public("host_ed25519"));
    ssh_write("global", 0600, text);
    hb_strv_add(&c.config.user_known_hosts, "/nonexistent/known");
    known("n2 %s\n", ssh_public("stranger"));
    expect_fails(&c, HVD_EPERM, "not known");
    hb_strv_add(&c.config.global_known_hosts, ssh_file("global"));
    expect_works(&c);
    /* a match in one file outweighs another key in another file */
    known("%s %s\n", name, ssh_public("stranger"));
    hb_strv_add(&c.config.global_known_hosts, ssh_file("global"));
    expect_works(&c);
}
END_TEST

/* A server with several keys shows the type that is asked for first. */
START_TEST(the_order_of_kinds)
{
    restart("HostKey host_ecdsa", "HostKey host_ed25519");
    known("%s %s\n", name, ssh_public("host_ed25519"));
    expect_works(&c);
    known("%s %s\n", name, ssh_public("host_ecdsa"));
    expect_works(&c);
}
END_TEST

/* A server that shows a type not in the file may be another machine. */
START_TEST(changed_to_another_type)
{
    char text[1024];

    restart("HostKey host_ecdsa", NULL);
    snprintf(text, sizeof(text), "%s %s\n", name, ssh_public("host_ed25519"));
    ssh_client_known(&c, text);
    expect_fails(&c, HVD_EPERM, "its host key has changed, to ECDSA SHA256:");
    c.config.strict = SSH_STRICT_ACCEPT_NEW;
    expect_fails(&c, HVD_EPERM, "its host key has changed, to ECDSA SHA256:");
    c.config.strict = SSH_STRICT_OFF;
    expect_works(&c);
    expect_known(text);
    /* a key known without the port does not help */
    known("%s127.0.0.1 %s\n", text, ssh_public("host_ecdsa"));
    c.config.strict = SSH_STRICT_YES;
    expect_fails(&c, HVD_EPERM, "its host key has changed, to ECDSA SHA256:");
}
END_TEST

START_TEST(keys_that_libssh2_cannot_use)
{
    restart("HostKey host_ed25519", "HostKey host_rsa");
    known("%s %s\n", name, ssh_public("host_rsa"));
    if (ssh_client_has_rsa()) {
        expect_works(&c);
        c.config.rsa_bits = 8192;
        expect_fails(&c, HVD_EPERM, "bits, and RequiredRSASize is 8192");
    } else {
        expect_fails(&c, HVD_EUNSUPPORTED,
                     "known_hosts has only keys for it that libssh2 ");
    }
    restart("HostKey host_rsa", NULL);
    if (!ssh_client_has_rsa())
        expect_fails(&c, HVD_EUNSUPPORTED, "agree on no way");
}
END_TEST

START_TEST(authorities)
{
    char text[4096];

    known("@cert-authority * %s\n", ssh_public("stranger"));
    expect_fails(&c, HVD_EUNSUPPORTED, "@cert-authority");
    snprintf(text, sizeof(text), "@cert-authority * %s\n%s ",
             ssh_public("stranger"), name);
    ssh_client_known(&c, text);
    ssh_shell("cat host_ed25519.pub >>known");
    expect_works(&c); /* its key is known as well */
    ssh_client_known(&c, text);
    ssh_shell("cat stranger.pub >>known");
    expect_fails(&c, HVD_EUNSUPPORTED, "an authority");
}
END_TEST

START_TEST(allowed_methods)
{
    hb_free(c.config.host_key_algorithms);
    c.config.host_key_algorithms = hb_xstrdup("ecdsa-sha2-nistp256");
    expect_fails(&c, HVD_EUNSUPPORTED, "only keys for it that libssh2");
    known("%s", "");
    expect_fails(&c, HVD_EUNSUPPORTED, "agree on no way");
    hb_free(c.config.host_key_algorithms);
    c.config.host_key_algorithms = hb_xstrdup("sk-ssh-ed25519@openssh.com");
    expect_fails(&c, HVD_EUNSUPPORTED, "none of the HostKeyAlgorithms");
    hb_free(c.config.kex);
    c.config.kex = hb_xstrdup("sntrup761x25519-sha512");
    expect_fails(&c, HVD_EUNSUPPORTED, "none of the key exchanges");
    restart("Ciphers aes256-ctr", "MACs hmac-sha2-512");
    hb_free(c.config.ciphers);
    c.config.ciphers = hb_xstrdup("aes128-ctr,aes256-ctr,none");
    expect_works(&c);
    hb_free(c.config.ciphers);
    c.config.ciphers = hb_xstrdup("aes128-ctr");
    expect_fails(&c, HVD_EUNSUPPORTED, "agree on no way");
}
END_TEST

/* ---- Accepting ---- */

static void accept_new(int hash)
{
    struct stat st;
    char *text;

    ssh_shell("rm -rf new");
    hb_strv_free(&c.config.user_known_hosts);
    hb_strv_add(&c.config.user_known_hosts, ssh_file("new/known"));
    c.config.strict = SSH_STRICT_ACCEPT_NEW;
    c.config.hash_known_hosts = hash;
    ssh_client_open(&c);
    ssh_client_greet(&c);
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&c.logged), "added its host key"));
    ssh_client_reset(&c);
    ck_assert_int_eq(stat(ssh_file("new"), &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0700);
    ck_assert_int_eq(stat(ssh_file("new/known"), &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    ssh_shell("ssh-keygen -F '%s' -f new/known >found && grep -q '%s' found",
              name, ssh_public("host_ed25519"));
    text = ssh_read("new/known");
    ck_assert_int_eq(strstr(text, "127.0.0.1") == NULL, hash);
    free(text);
    /* it is known now, and nothing is added again */
    c.config.strict = SSH_STRICT_YES;
    expect_works(&c);
    c.config.strict = SSH_STRICT_OFF;
    expect_works(&c);
    ssh_shell("test $(wc -l <new/known) = 1");
}

START_TEST(accepts_new_keys_when_told)
{
    accept_new(0);
    accept_new(1);
}
END_TEST

START_TEST(adds_after_a_cut_line)
{
    ssh_client_known(&c, "n2 ssh-ed25519 AAAA");
    c.config.strict = SSH_STRICT_ACCEPT_NEW;
    expect_works(&c);
    ssh_shell(
        "test $(wc -l <known) = 2 && tail -n 1 known | grep -q '^\\[127'");
}
END_TEST

START_TEST(a_file_that_cannot_be_written)
{
    hb_strv_free(&c.config.user_known_hosts);
    hb_strv_add(&c.config.user_known_hosts, "/proc/nonexistent/known");
    c.config.strict = SSH_STRICT_ACCEPT_NEW;
    ssh_client_open(&c);
    ssh_client_greet(&c);
    ck_assert_ptr_nonnull(
        strstr(hb_buf_data(&c.logged), "cannot add its host key to /proc/"));
    ssh_client_reset(&c);
    hb_strv_free(&c.config.user_known_hosts);
    c.config.strict = SSH_STRICT_OFF;
    expect_fails(&c, HVD_EPERM, "there is no file to add it to");
}
END_TEST

static void add_tests(TCase *t)
{
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, unknown);
    tcase_add_test(t, a_file_that_cannot_be_read);
    tcase_add_test(t, changed);
    tcase_add_test(t, revoked);
    tcase_add_test(t, names);
    tcase_add_test(t, several_files);
    tcase_add_test(t, the_order_of_kinds);
    tcase_add_test(t, changed_to_another_type);
    tcase_add_test(t, keys_that_libssh2_cannot_use);
    tcase_add_test(t, authorities);
    tcase_add_test(t, allowed_methods);
    tcase_add_test(t, accepts_new_keys_when_told);
    tcase_add_test(t, adds_after_a_cut_line);
    tcase_add_test(t, a_file_that_cannot_be_written);
}

int main(void)
{
    return ssh_fixture_run("ssh2_hosts", add_tests);
}
