/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ssh/known_hosts.h; ssh-keygen is asked too. */
#include "lib/base/hvd_status.h"
#include "lib/ssh/known_hosts.h"
#include "tests/unit/unit.h"

#include <openssl/evp.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct known_hosts k;

static void setup(void)
{
    memset(&k, 0, sizeof(k));
}

static void teardown(void)
{
    known_hosts_free(&k);
}

/* ---- Keys made up ---- */

struct key {
    unsigned char blob[128];
    size_t len;
    char base64[256];
};

/* Returns a key of a type; keys differ by `number`. */
static struct key key(const char *type, int number)
{
    struct hb_buf b = HB_BUF_INIT;
    struct key out;

    hb_buf_put_u32(&b, (uint32_t)strlen(type));
    hb_buf_puts(&b, type);
    hb_buf_put_u32(&b, 8);
    hb_buf_put_u64(&b, (uint64_t)number);
    out.len = hb_buf_len(&b);
    memcpy(out.blob, hb_buf_data(&b), out.len);
    sodium_bin2base64(out.base64, sizeof(out.base64), out.blob, out.len,
                      sodium_base64_VARIANT_ORIGINAL);
    hb_buf_free(&b);
    return out;
}

static void reads(const char *name, const char *text)
{
    known_hosts_free(&k);
    ck_assert_int_eq(known_hosts_read(&k, name, "file", text, strlen(text)), 0);
}

/* Checks that a line is read and found; %s is the type and the base64. */
static void reads_line(const char *name, const char *hosts, const char *type,
                       int number)
{
    struct key a = key(type, number);
    char text[1024];

    snprintf(text, sizeof(text), "%s %s %s\n", hosts, type, a.base64);
    reads(name, text);
}

static enum known_verdict judged(const char *type, int number)
{
    struct key a = key(type, number);
    const struct known_key *which;

    return known_hosts_judge(&k, a.blob, a.len, &which);
}

/* ---- Names ---- */

START_TEST(names)
{
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(known_hosts_name("N1.Example", 22, &b), 0);
    ck_assert_str_eq(hb_buf_data(&b), "n1.example");
    hb_buf_clear(&b);
    ck_assert_int_eq(known_hosts_name("fe80::1", 2222, &b), 0);
    ck_assert_str_eq(hb_buf_data(&b), "[fe80::1]:2222");
    hb_buf_free(&b);
}
END_TEST

/* The second vector of RFC 2202. */
START_TEST(a_hashed_name)
{
    static const char blob[] = "AAAAC3NzaC1lZDI1NTE5AAAAAXg=";
    char line[128];

    snprintf(line, sizeof(line),
             "|1|SmVmZQ==|7/zfauXrL6LSdBbV8YTfnCWafHk= "
             "ssh-ed25519 %s\n",
             blob);
    reads("what do ya want for nothing?", line);
    ck_assert_uint_eq(k.count, 1);
    reads("What do ya want for nothing?", line);
    ck_assert_uint_eq(k.count, 0);
}
END_TEST

#if OPENSSL_VERSION_NUMBER >= 0x30000000L
/* A libcrypto without SHA-1 is neither out of memory nor a reason to skip the
 * line, which may say that the host's key has changed. */
START_TEST(a_hash_that_is_refused)
{
    static const unsigned char salt[KNOWN_HOSTS_SALT_BYTES];
    static const char line[] = "|1|SmVmZQ==|7/zfauXrL6LSdBbV8YTfnCWafHk= "
                               "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAAXg=\n";
    struct hb_buf out = HB_BUF_INIT;

    ck_assert_int_eq(EVP_set_default_properties(NULL, "fips=yes"), 1);
    ck_assert_int_eq(known_hosts_read(&k, "n1", "f", line, strlen(line)),
                     -HVD_EUNSUPPORTED);
    ck_assert_int_eq(known_hosts_line("n1", "x", 1, salt, &out),
                     -HVD_EUNSUPPORTED);
    hb_buf_free(&out);
}
END_TEST
#endif

START_TEST(patterns)
{
    static const struct {
        const char *patterns, *name;
        int match;
    } cases[] = {
        {"n1", "n1", 1},
        {"N1", "n1", 1},
        {"n1", "n11", 0},
        {"n11", "n1", 0},
        {"", "n1", 0},
        {"a,n1,b", "n1", 1},
        {"a,b", "n1", 0},
        {",,n1", "n1", 1},
        {"n?", "n1", 1},
        {"n?", "n", 0},
        {"n?", "n12", 0},
        {"*", "n1", 1},
        {"*", "", 1},
        {"n*", "n", 1},
        {"*1", "n1", 1},
        {"*.example", "n1.example", 1},
        {"*.example", "example", 0},
        {"a*b*c", "aXbXbXc", 1},
        {"a*b*c", "aXcXb", 0},
        {"**a**", "bab", 1},
        {"!n1,*", "n1", 0},
        {"*,!n1", "n1", 0},
        {"*,!n1", "n2", 1},
        {"!n1", "n2", 0},
        {"[n1]:22*", "[n1]:2222", 1},
        {"[n1]", "n", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(known_hosts_match(cases[i].patterns,
                                        strlen(cases[i].patterns),
                                        cases[i].name) == cases[i].match,
                      "%s %s", cases[i].patterns, cases[i].name);
}
END_TEST

/* A pattern with many stars does not take exponential time. */
START_TEST(a_hostile_pattern)
{
    char pattern[4001], name[2001];

    for (int i = 0; i < 4000; i += 2)
        memcpy(pattern + i, "*a", 2);
    pattern[4000] = '\0';
    memset(name, 'a', 2000);
    name[2000] = '\0';
    ck_assert_int_eq(known_hosts_match(pattern, 4000, name), 1);
    name[1999] = 'b';
    ck_assert_int_eq(known_hosts_match(pattern, 4000, name), 0);
}
END_TEST

/* ---- Verdicts ---- */

START_TEST(verdicts)
{
    reads("n1", "");
    ck_assert_int_eq(judged("ssh-ed25519", 1), KNOWN_UNKNOWN);
    reads_line("n1", "n2", "ssh-ed25519", 1);
    ck_assert_int_eq(judged("ssh-ed25519", 1), KNOWN_UNKNOWN);
    reads_line("n1", "n1", "ssh-ed25519", 1);
    ck_assert_int_eq(judged("ssh-ed25519", 1), KNOWN_MATCH);
    ck_assert_int_eq(judged("ssh-ed25519", 2), KNOWN_CHANGED);
    /* another machine may choose its key's type */
    ck_assert_int_eq(judged("ecdsa-sha2-nistp256", 1), KNOWN_CHANGED);
}
END_TEST

/* Adds a line; "%s" in `text` is the key. */
static void add(const char *text, struct key a)
{
    const char *at = strstr(text, "%s");
    char line[1024];

    if (at)
        snprintf(line, sizeof(line), "%.*s%s%s", (int)(at - text), text,
                 a.base64, at + 2);
    else
        snprintf(line, sizeof(line), "%s", text);
    ck_assert_int_eq(known_hosts_read(&k, "n1", "file", line, strlen(line)), 0);
}

START_TEST(several_lines)
{
    struct key a = key("ssh-ed25519", 1), b = key("ssh-ed25519", 2);
    const struct known_key *which;

    add("# comment\n\n n1 ssh-ed25519 %s a comment\r\n", a);
    add("\n\n\nn1\tssh-ed25519\t%s", b);
    ck_assert_uint_eq(k.count, 2);
    ck_assert_int_eq(known_hosts_judge(&k, b.blob, b.len, &which), KNOWN_MATCH);
    ck_assert_int_eq(which->line, 4);
    ck_assert_str_eq(which->file, "file");
    ck_assert_int_eq(judged("ssh-ed25519", 1), KNOWN_MATCH);
    ck_assert_int_eq(judged("ssh-ed25519", 3), KNOWN_CHANGED);
    add("@revoked * ssh-ed25519 %s\n", a);
    ck_assert_int_eq(known_hosts_judge(&k, a.blob, a.len, &which),
                     KNOWN_REVOKED);
    ck_assert_int_eq(which->marker, KNOWN_REVOKED_KEY);
    ck_assert_int_eq(judged("ssh-ed25519", 2), KNOWN_MATCH);
    ck_assert_int_eq(known_hosts_has_authority(&k), 0);
}
END_TEST

START_TEST(markers)
{
    struct key a = key("ssh-ed25519", 1);

    add("@cert-authority * ssh-ed25519 %s\n", a);
    ck_assert_int_eq(known_hosts_has_authority(&k), 1);
    ck_assert_int_eq(judged("ssh-ed25519", 1), KNOWN_UNKNOWN);
    known_hosts_free(&k);
    add("@revoked n2 ssh-ed25519 %s\n", a);
    add("@unknown n1 ssh-ed25519 %s\n", a);
    add("@revokedn1 ssh-ed25519 %s\n", a);
    add("@revoked\n", a);
    ck_assert_uint_eq(k.count, 0);
}
END_TEST

START_TEST(lines_that_make_no_sense)
{
    struct key a = key("ssh-ed25519", 1);

    add("n1\n", a);
    add("n1 ssh-ed25519\n", a);
    add("n1 ssh-rsa %s\n", a); /* the line claims another type */
    add("n1 ssh-ed25519 !!%s\n", a);
    add("n1 ssh-ed25519 AAAA\n", a);
    add("n1 ssh-ed25519 %s=\n", a);
    add("|1|x|y ssh-ed25519 %s\n", a);
    add("|1|| ssh-ed25519 %s\n", a);
    add("|1| ssh-ed25519 %s\n", a);
    add("|2|c2FsdA==|aGFzaA== ssh-ed25519 %s\n", a);
    add("|1|c2FsdA==|aGFzaA== ssh-ed25519 %s\n", a);
    ck_assert_uint_eq(k.count, 0);
    ck_assert_int_eq(
        known_hosts_read(&k, "n1", "f", "n1 \0 ssh-ed25519 x\n", 20), 0);
    ck_assert_uint_eq(k.count, 0);
}
END_TEST

/* ---- Algorithms ---- */

static const char able[] = "ecdsa-sha2-nistp256,ssh-ed25519,rsa-sha2-512,"
                           "rsa-sha2-256,ecdsa-sha2-nistp256-cert-v01@x";
static const char allowed[] =
    "ecdsa-sha2-nistp256-cert-v01@x,ssh-ed25519,ecdsa-sha2-nistp256,"
    "rsa-sha2-512,rsa-sha2-256,sk-ssh-ed25519@openssh.com";

static const char *algorithms(const char *able_list)
{
    static struct hb_buf b;
    int rc;

    hb_buf_clear(&b);
    rc = known_hosts_algorithms(&k, allowed, able_list, &b);
    ck_assert_int_eq(hb_buf_puts(&b, ""), 0);
    return rc == 0                   ? hb_buf_data(&b)
           : rc == -HVD_EUNSUPPORTED ? "unsupported"
                                     : "error";
}

START_TEST(orders_of_algorithms)
{
    ck_assert_str_eq(algorithms(able), "ssh-ed25519,ecdsa-sha2-nistp256,"
                                       "rsa-sha2-512,rsa-sha2-256");
    reads_line("n1", "n1", "ecdsa-sha2-nistp256", 1);
    ck_assert_str_eq(algorithms(able), "ecdsa-sha2-nistp256,ssh-ed25519,"
                                       "rsa-sha2-512,rsa-sha2-256");
    reads_line("n1", "n1", "ssh-rsa", 1);
    ck_assert_str_eq(algorithms(able), "rsa-sha2-512,rsa-sha2-256,ssh-ed25519,"
                                       "ecdsa-sha2-nistp256");
    /* the only known key has a type that cannot be asked for */
    ck_assert_str_eq(algorithms("ssh-ed25519,ssh-rsa"), "unsupported");
    reads_line("n1", "@revoked n1", "ssh-rsa", 1);
    ck_assert_str_eq(algorithms("ssh-ed25519,ssh-rsa"), "ssh-ed25519");
    ck_assert_str_eq(algorithms("ssh-dss"), "unsupported");
    ck_assert_str_eq(algorithms(""), "unsupported");
    algorithms(able);
}
END_TEST

/* ---- Writing ---- */

START_TEST(written_lines_are_read)
{
    static const unsigned char salt[KNOWN_HOSTS_SALT_BYTES] = "0123456789";
    struct key a = key("ssh-ed25519", 1);
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_int_eq(known_hosts_line("[n1]:2222", a.blob, a.len, NULL, &b), 0);
    ck_assert_int_eq(strncmp(hb_buf_data(&b), "[n1]:2222 ssh-ed25519 ", 22), 0);
    ck_assert_int_eq(known_hosts_line("n1", a.blob, a.len, salt, &b), 0);
    ck_assert_ptr_nonnull(strstr(hb_buf_data(&b), "\n|1|MDEyMzQ1Njc4OQAAAA"));
    reads("[n1]:2222", hb_buf_data(&b));
    ck_assert_int_eq(judged("ssh-ed25519", 1), KNOWN_MATCH);
    ck_assert_uint_eq(k.count, 1);
    reads("n1", hb_buf_data(&b));
    ck_assert_int_eq(judged("ssh-ed25519", 1), KNOWN_MATCH);
    reads("n2", hb_buf_data(&b));
    ck_assert_uint_eq(k.count, 0);
    hb_buf_free(&b);
}
END_TEST

START_TEST(key_types)
{
    char type[8];
    struct key a = key("ssh-ed25519", 1);

    known_hosts_key_type(a.blob, a.len, type, sizeof(type));
    ck_assert_str_eq(type, "ssh-ed2");
    known_hosts_key_type(a.blob, 14, type, sizeof(type));
    ck_assert_str_eq(type, "");
    known_hosts_key_type("", 0, type, sizeof(type));
    ck_assert_str_eq(type, "");
    known_hosts_key_type("\0\0\0\2a\0", 6, type, sizeof(type));
    ck_assert_str_eq(type, "");
}
END_TEST

/* Returns what a command prints, without its newline; "" if it fails. */
static const char *shell(const char *command)
{
    static char out[4096];
    FILE *f = popen(command, "r");
    size_t n = fread(out, 1, sizeof(out) - 1, f);

    out[pclose(f) == 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return out;
}

START_TEST(as_ssh_keygen_has_it)
{
    char text[8192], command[1024], dir[] = "/tmp/hvd-known-XXXXXX";
    struct hb_buf b = HB_BUF_INIT;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(command, sizeof(command),
             "cd %s && ssh-keygen -q -t ed25519 -N '' -f k && "
             "printf 'n1,n2 %%s\\n' \"$(cat k.pub)\" >f && "
             "ssh-keygen -q -H -f f 2>/dev/null && head -n 1 f",
             dir);
    snprintf(text, sizeof(text), "%s\n", shell(command));
    snprintf(command, sizeof(command), "ssh-keygen -lf %s/k | cut -d' ' -f2",
             dir);
    if (text[0] == '|') {
        reads("n1", text);
        ck_assert_uint_eq(k.count, 1);
        ck_assert_int_eq(
            known_hosts_fingerprint(k.keys[0].blob, k.keys[0].len, &b), 0);
        ck_assert_str_eq(hb_buf_data(&b), shell(command));
    }
    hb_buf_free(&b);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    shell(command);
}
END_TEST

/* ---- Memory ---- */

static int attempt(void *arg)
{
    static const unsigned char salt[KNOWN_HOSTS_SALT_BYTES] = "x";
    const struct key *a = arg;
    struct known_hosts read = KNOWN_HOSTS_INIT;
    struct hb_buf b = HB_BUF_INIT;
    int rc = known_hosts_line("n1", a->blob, a->len, salt, &b);

    if (rc == 0)
        rc =
            known_hosts_read(&read, "n1", "f", hb_buf_data(&b), hb_buf_len(&b));
    hb_buf_clear(&b);
    if (rc == 0)
        rc = known_hosts_algorithms(&read, allowed, able, &b);
    if (rc == 0)
        rc = known_hosts_fingerprint(a->blob, a->len, &b);
    known_hosts_free(&read);
    hb_buf_free(&b);
    return rc;
}

START_TEST(out_of_memory)
{
    struct key a = key("ssh-ed25519", 1);

    unit_fail_each(attempt, &a);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("known_hosts");
    TCase *t = tcase_create("all");

    suite_add_tcase(s, t);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, names);
    tcase_add_test(t, a_hashed_name);
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
    tcase_add_test(t, a_hash_that_is_refused);
#endif
    tcase_add_test(t, patterns);
    tcase_add_test(t, a_hostile_pattern);
    tcase_add_test(t, verdicts);
    tcase_add_test(t, several_lines);
    tcase_add_test(t, markers);
    tcase_add_test(t, lines_that_make_no_sense);
    tcase_add_test(t, orders_of_algorithms);
    tcase_add_test(t, written_lines_are_read);
    tcase_add_test(t, key_types);
    tcase_add_test(t, as_ssh_keygen_has_it);
    tcase_add_test(t, out_of_memory);
    return unit_run(s);
}
