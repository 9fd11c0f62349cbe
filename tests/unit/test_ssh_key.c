/* SPDX-License-Identifier: Apache-2.0 */
/* lib/ssh/keys/ssh_key.h and its parts, with keys made by ssh-keygen and
 * openssl, where they are installed. */
#include "lib/base/hvd_status.h"
#include "lib/ssh/keys/ssh_add.h"
#include "lib/ssh/keys/ssh_key.h"
#include "lib/ssh/keys/ssh_pem.h"
#include "tests/unit/unit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/hvd-key-XXXXXX";
static int have_keygen;

static const char *path(const char *name)
{
    static char paths[4][64];
    static unsigned next;
    char *p = paths[next++ % 4];

    snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
    return p;
}

/* Returns what a command prints in the directory, "" if it fails. */
static const char *shell(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

static const char *shell(const char *fmt, ...)
{
    static char out[8192];
    char command[2048];
    va_list ap;
    FILE *f;
    size_t n = (size_t)snprintf(command, sizeof(command), "cd %s && ", dir);

    va_start(ap, fmt);
    vsnprintf(command + n, sizeof(command) - n, fmt, ap);
    va_end(ap);
    f = popen(command, "r");
    n = fread(out, 1, sizeof(out) - 1, f);
    out[pclose(f) == 0 ? n : 0] = '\0';
    return out;
}

/* ---- Keys ---- */

static const struct kind {
    const char *name, *options, *type, *format;
} kinds[] = {
    {"ed25519", "-t ed25519", "ssh-ed25519", "OPENSSH"},
    {"p256", "-t ecdsa", "ecdsa-sha2-nistp256", "EC"},
    {"p384", "-t ecdsa -b 384", "ecdsa-sha2-nistp384", "EC"},
    {"p521", "-t ecdsa -b 521", "ecdsa-sha2-nistp521", "EC"},
    {"rsa", "-t rsa -b 2048", "ssh-rsa", "OPENSSH"},
    {"gcm", "-t ed25519 -Z aes256-gcm@openssh.com", "ssh-ed25519", "OPENSSH"},
};

/* Checks that ssh-keygen derives the same public key from the key's text. */
static void check_text(const struct ssh_key *k, const char *name)
{
    char want[2048], first[64];
    FILE *f = fopen(path("text"), "w");

    ck_assert_uint_eq(strlen(k->text), k->text_len);
    fputs(k->text, f);
    fclose(f);
    chmod(path("text"), 0600);
    snprintf(want, sizeof(want), "%s", shell("cut -d' ' -f1,2 %s.pub", name));
    ck_assert_str_ne(want, "");
    ck_assert_str_eq(shell("ssh-keygen -y -P '' -f text | cut -d' ' -f1,2"),
                     want);
    snprintf(first, sizeof(first), "%.*s", (int)strcspn(k->text, "\n"),
             k->text);
    unlink(path("text"));
}

/* Decrypts a key by ssh-add.  Returns 0 or a status. */
static int decrypt(struct ssh_key *k, const char *name, const char *passphrase)
{
    struct hb_buf plain = HB_BUF_INIT;
    char why[SSH_ADD_WHY_MAX], *program = ssh_add_find();
    int rc;

    ck_assert_ptr_nonnull(program);
    rc = ssh_add_decrypt(program, path(name), passphrase, -1, &plain, why);
    if (rc == 0)
        rc = ssh_key_set_private(k, hb_buf_data(&plain), hb_buf_len(&plain));
    hb_buf_free(&plain);
    hb_free(program);
    return rc;
}

START_TEST(openssh_keys)
{
    const struct kind *kind = &kinds[_i];
    struct ssh_key k = SSH_KEY_INIT;
    char begin[64];

    if (!have_keygen)
        return;
    shell("ssh-keygen -q %s -N '' -f %s", kind->options, kind->name);
    snprintf(begin, sizeof(begin), "-----BEGIN %s PRIVATE KEY-----\n",
             kind->format);
    ck_assert_int_eq(ssh_key_load(path(kind->name), &k), 0);
    ck_assert_str_eq(k.type, kind->type);
    ck_assert_int_eq(k.encrypted, 0);
    ck_assert_ptr_nonnull(k.blob);
    ck_assert_int_eq(strncmp(k.text, begin, strlen(begin)), 0);
    check_text(&k, kind->name);
    ssh_key_free(&k);

    shell("ssh-keygen -q -p -a 2 -N 'a b' %s -f %s",
          strstr(kind->options, "-Z") ? strstr(kind->options, "-Z") : "",
          kind->name);
    ck_assert_int_eq(ssh_key_load(path(kind->name), &k), 0);
    ck_assert_int_eq(k.encrypted, 1);
    ck_assert_int_eq(k.openssh, 1);
    ck_assert_str_eq(k.type, kind->type);
    ck_assert_int_eq(decrypt(&k, kind->name, "a"), -HVD_EPERM);
    ck_assert_int_eq(decrypt(&k, kind->name, ""), -HVD_EPERM);
    ck_assert_int_eq(k.encrypted, 1);
    ck_assert_int_eq(decrypt(&k, kind->name, "a b"), 0);
    ck_assert_int_eq(k.encrypted, 0);
    ck_assert_int_eq(strncmp(k.text, begin, strlen(begin)), 0);
    check_text(&k, kind->name);
    ssh_key_free(&k);
    ck_assert_ptr_null(k.text);
}
END_TEST

/* What comes as a key must be one, with the same public part. */
START_TEST(private_parts_that_are_none)
{
    static const char ed25519[] = "\0\0\0\13ssh-ed25519\0\0\0\1x";
    static const char another[] = "\0\0\0\13ssh-ed25519\0\0\0\1y";
    static const char longer[] = "\0\0\0\13ssh-ed25519\0\0\0\2xy";
    struct ssh_key k = SSH_KEY_INIT;

    ck_assert_int_eq(ssh_key_set_private(&k, ed25519, 15), -HVD_EPROTO);
    ck_assert_int_eq(
        ssh_key_parse("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAAXg= x", 42, &k), 0);
    ck_assert_int_eq(ssh_key_set_private(&k, "", 0), -HVD_EPROTO);
    ck_assert_int_eq(ssh_key_set_private(&k, "\0\0\0\7ssh-rsa", 11),
                     -HVD_EPROTO);
    ck_assert_int_eq(ssh_key_set_private(&k, another, 20), -HVD_EPROTO);
    ck_assert_int_eq(ssh_key_set_private(&k, longer, 21), -HVD_EPROTO);
    ck_assert_int_eq(ssh_key_set_private(&k, longer, 20), -HVD_EPROTO);
    ck_assert_ptr_null(k.text);
    ck_assert_int_eq(ssh_key_set_private(&k, ed25519, 20), 0);
    ck_assert_ptr_nonnull(k.text);
    ssh_key_free(&k);
    /* without a public part, it must be of the type, if that is known */
    snprintf(k.type, sizeof(k.type), "ssh-rsa");
    ck_assert_int_eq(ssh_key_set_private(&k, ed25519, 20), -HVD_EPROTO);
    k.type[0] = '\0';
    ck_assert_int_eq(ssh_key_set_private(&k, ed25519, 20), 0);
    ssh_key_free(&k);
}
END_TEST

START_TEST(other_formats)
{
    static const struct {
        const char *command, *type;
        int encrypted;
    } cases[] = {
        {"ssh-keygen -q -t rsa -b 2048 -m PEM -N ''", "ssh-rsa", 0},
        {"ssh-keygen -q -t rsa -b 2048 -m PEM -N secret", "ssh-rsa", 1},
        {"ssh-keygen -q -t rsa -b 2048 -m PKCS8 -N ''", "ssh-rsa", 0},
        {"ssh-keygen -q -t rsa -b 2048 -m PKCS8 -N secret", "", 1},
        {"ssh-keygen -q -t ecdsa -m PEM -N ''", "", 0},
        {"ssh-keygen -q -t ecdsa -m PKCS8 -N ''", "ecdsa-sha2-nistp256", 0},
        {"ssh-keygen -q -t ecdsa -b 521 -m PKCS8 -N ''", "ecdsa-sha2-nistp521",
         0},
    };

    for (size_t i = 0; have_keygen && i < sizeof(cases) / sizeof(cases[0]);
         i++) {
        struct ssh_key k = SSH_KEY_INIT;

        shell("rm -f x x.pub && %s -f x && mv x.pub y.pub", cases[i].command);
        ck_assert_int_eq(ssh_key_load(path("x"), &k), 0);
        ck_assert_str_eq(k.type, cases[i].type);
        ck_assert_int_eq(k.encrypted, cases[i].encrypted);
        ck_assert_ptr_null(k.blob);
        ck_assert_ptr_nonnull(k.text);
        ck_assert_int_eq(k.openssh, 0);
        ssh_key_free(&k);
        /* the public part is beside it, or alone */
        shell("mv y.pub x.pub");
        ck_assert_int_eq(ssh_key_load(path("x"), &k), 0);
        ck_assert_ptr_nonnull(k.blob);
        ck_assert_str_ne(k.type, "");
        ck_assert_int_eq(ssh_key_rsa_bits(k.blob, k.blob_len),
                         strcmp(k.type, "ssh-rsa") == 0 ? 2048 : -1);
        ck_assert_int_le(ssh_key_rsa_bits(k.blob, k.blob_len / 2), 0);
        ssh_key_free(&k);
        shell("rm x");
        ck_assert_int_eq(ssh_key_load(path("x"), &k), 0);
        ck_assert_ptr_nonnull(k.blob);
        ck_assert_ptr_null(k.text);
        ssh_key_free(&k);
    }
}
END_TEST

START_TEST(files)
{
    struct ssh_key k = SSH_KEY_INIT;

    ck_assert_int_eq(ssh_key_load("/nonexistent/key", &k), -HVD_ENOENT);
    ck_assert_int_eq(ssh_key_load("/", &k), -HVD_EPROTO);
    ck_assert_int_eq(ssh_key_load("/dev/null", &k), -HVD_EPROTO);
    shell("head -c 70000 /dev/zero >big; echo rubbish >rubbish; mkfifo fifo");
    ck_assert_int_eq(ssh_key_load(path("big"), &k), -HVD_EPROTO);
    ck_assert_int_eq(ssh_key_load(path("rubbish"), &k), -HVD_EPROTO);
    ck_assert_int_eq(ssh_key_load(path("fifo"), &k), -HVD_EPROTO);
    ck_assert_ptr_null(k.blob);
    if (!have_keygen)
        return;
    shell("ssh-keygen -q -t ed25519 -N '' -f open && chmod 640 open");
    ck_assert_int_eq(ssh_key_load(path("open"), &k), -HVD_EPERM);
    ck_assert_int_eq(ssh_key_load(path("open.pub"), &k), 0);
    ck_assert_ptr_null(k.text);
    ssh_key_free(&k);
}
END_TEST

/* ---- Damage ---- */

static char *slurp(const char *name, size_t *len)
{
    FILE *f = fopen(path(name), "r");
    char *text = calloc(1, 8192);

    ck_assert_ptr_nonnull(f);
    *len = fread(text, 1, 8191, f);
    fclose(f);
    return text;
}

static int parse(const char *text, size_t len)
{
    struct ssh_key k = SSH_KEY_INIT;
    int rc = ssh_key_parse(text, len, &k);

    ssh_key_free(&k);
    return rc;
}

/* A file cut or changed anywhere gives an error or a key, without harm. */
START_TEST(damaged_keys)
{
    char *text;
    size_t len;

    if (!have_keygen)
        return;
    shell("ssh-keygen -q -t ecdsa -a 1 -N '' -f damage");
    text = slurp("damage", &len);
    ck_assert_int_eq(parse(text, len), 0);
    for (size_t i = 0; i + 1 < len; i++)
        parse(text, i);
    for (size_t i = 0; i < len; i++) {
        char was = text[i];

        text[i] = was == 'A' ? 'B' : 'A';
        parse(text, len);
        text[i] = '\0';
        parse(text, len);
        text[i] = was;
    }
    free(text);
}
END_TEST

START_TEST(sections_that_are_none)
{
    char *text;
    size_t len;

    ck_assert_int_eq(ssh_pem_write_ec("", 0, &text, &len), -HVD_EUNSUPPORTED);
    ck_assert_int_eq(ssh_pem_write_ec("\0\0\0\1\0\0\0\1\0\0\0\13ssh-ed25519",
                                      23, &text, &len),
                     -HVD_EUNSUPPORTED);
    ck_assert_int_eq(ssh_pem_write_ec("\0\0\0\1\0\0\0\1\0\0\0\14ecdsa-sha2-x",
                                      24, &text, &len),
                     -HVD_EPROTO);
}
END_TEST

static int attempt(void *arg)
{
    size_t *len = arg;
    struct ssh_key k = SSH_KEY_INIT;
    int rc = ssh_key_parse((char *)(len + 1), *len, &k);

    if (rc == 0)
        rc = ssh_key_set_private(&k, k.blob, k.blob_len);
    ssh_key_free(&k);
    return rc;
}

START_TEST(out_of_memory)
{
    size_t len, *both;
    char *text;

    if (!have_keygen)
        return;
    shell("ssh-keygen -q -t ed25519 -a 1 -N 'a b' -f memory");
    text = slurp("memory", &len);
    both = calloc(1, sizeof(len) + len);
    *both = len;
    memcpy(both + 1, text, len);
    unit_fail_each(attempt, both);
    free(text);
    free(both);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ssh_key");
    TCase *t = tcase_create("all");
    int rc;

    suite_add_tcase(s, t);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, openssh_keys, 0,
                        (int)(sizeof(kinds) / sizeof(kinds[0])));
    tcase_add_test(t, private_parts_that_are_none);
    tcase_add_test(t, other_formats);
    tcase_add_test(t, files);
    tcase_add_test(t, damaged_keys);
    tcase_add_test(t, sections_that_are_none);
    tcase_add_test(t, out_of_memory);
    if (!mkdtemp(dir))
        return EXIT_FAILURE;
    umask(077);
    have_keygen = *shell("command -v ssh-keygen") != '\0';
    rc = unit_run(s);
    shell("rm -rf %s", dir);
    return rc;
}
