/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the host's key as OpenSSH does: known_hosts files,
 * StrictHostKeyChecking, HostKeyAlias; see ssh2_impl.h.
 *
 * Key algorithms are requested in the order that known_hosts suggests: a server
 * with several keys shows the one for the first algorithm.
 */
#include "lib/ssh/ssh2_impl.h"

#include "lib/base/alloc.h"
#include "lib/base/quote.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 64 << 20, READ_BYTES = 64 << 10, KIND_MAX = 16 };

/* ---- Reading ---- */

/* Reads a file; a missing one counts as empty. */
static int read_file(const char *path, struct hb_buf *out, struct hb_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n = 1;
    int rc = 0;

    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : hb_error_sys(err, errno, "ssh: cannot read %s", path);
    while (rc == 0 && n > 0 && hb_buf_len(out) < FILE_MAX) {
        rc = hb_buf_reserve(out, READ_BYTES);
        n = rc == 0 ? read(fd, out->data + out->off + out->len, READ_BYTES)
                    : -1;
        if (n > 0)
            out->len += (size_t)n;
    }
    if (rc < 0)
        hb_die_oom();
    if (n < 0)
        rc = hb_error_sys(err, errno, "ssh: cannot read %s", path);
    close(fd);
    return rc;
}

static int read_list(const struct hb_strv *files, struct ssh2_hosts *h,
                     const char *host, struct hb_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < files->count && rc == 0; i++) {
        const char *path = files->items[i];
        struct hb_buf text = HB_BUF_INIT;

        rc = read_file(path, &text, err);
        if (rc == 0)
            rc = known_hosts_read(&h->known, hb_buf_data(&h->name), path,
                                  hb_buf_data(&text), hb_buf_len(&text));
        if (rc == 0 && host)
            rc = known_hosts_read(&h->by_host, host, path, hb_buf_data(&text),
                                  hb_buf_len(&text));
        hb_buf_free(&text);
        if (rc == -HVD_ENOMEM)
            hb_die_oom();
        if (rc == -HVD_EUNSUPPORTED)
            hb_error_set(err, HVD_EUNSUPPORTED,
                         "ssh: %s has hashed names, and libcrypto refuses "
                         "SHA-1",
                         path);
    }
    return rc;
}

int ssh2_hosts_read(struct ssh2_task *t, struct ssh2_hosts *h,
                    struct hb_error *err)
{
    const struct ssh_config *c = &t->config;
    const char *alias = c->host_key_alias;
    struct hb_buf host = HB_BUF_INIT;
    int has_port = !alias && c->port != SSH_CONFIG_DEFAULT_PORT;
    int rc;

    memset(h, 0, sizeof(*h));
    rc = known_hosts_name(alias ? alias : c->hostname, alias ? 22 : c->port,
                          &h->name);
    if (rc == 0)
        rc = known_hosts_name(c->hostname, 22, &host);
    if (rc < 0)
        hb_die_oom();
    rc = read_list(&c->user_known_hosts, h,
                   has_port ? hb_buf_data(&host) : NULL, err);
    if (rc == 0)
        rc = read_list(&c->global_known_hosts, h,
                       has_port ? hb_buf_data(&host) : NULL, err);
    hb_buf_free(&host);
    return rc;
}

void ssh2_hosts_free(struct ssh2_hosts *h)
{
    known_hosts_free(&h->known);
    known_hosts_free(&h->by_host);
    hb_buf_free(&h->name);
}

/* ---- Before the key exchange ---- */

static int has_plain(const struct known_hosts *k)
{
    for (size_t i = 0; i < k->count; i++)
        if (k->keys[i].marker == KNOWN_NO_MARKER)
            return 1;
    return 0;
}

static int only_authority(const struct ssh2_hosts *h)
{
    return known_hosts_has_authority(&h->known) && !has_plain(&h->known);
}

int ssh2_hosts_prepare(struct ssh2_task *t, const struct ssh2_hosts *h,
                       struct hb_error *err)
{
    struct hb_buf able = HB_BUF_INIT, list = HB_BUF_INIT;
    const struct known_hosts *k = &h->known;
    int rc;

    if (only_authority(h))
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "ssh: known_hosts trusts an authority for it "
                            "(@cert-authority), which libssh2 cannot check");
    rc = ssh2_session_able(t->session, LIBSSH2_METHOD_HOSTKEY, &able);
    if (rc == 0)
        rc = known_hosts_algorithms(k, t->config.host_key_algorithms,
                                    hb_buf_data(&able), &list);
    if (rc == 0)
        rc = ssh2_session_prefer(t->session, LIBSSH2_METHOD_HOSTKEY,
                                 hb_buf_data(&list));
    if (rc == -HVD_EUNSUPPORTED)
        hb_error_set(err, HVD_EUNSUPPORTED,
                     has_plain(k) ? "ssh: known_hosts has only keys for it "
                                    "that libssh2 %s cannot use"
                                  : "ssh: libssh2 %s can use none of the "
                                    "HostKeyAlgorithms",
                     libssh2_version(0));
    else if (rc < 0)
        hb_error_set(err, HVD_ENOMEM, "ssh: no memory");
    hb_buf_free(&able);
    hb_buf_free(&list);
    return rc;
}

/* ---- Accepting ---- */

/* Makes the directory for a first known_hosts file, as ssh does. */
static void make_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = hb_strndup(path, slash ? (size_t)(slash - path) : 0);

    if (dir && *dir)
        mkdir(dir, 0700);
    hb_free(dir);
}

/* Returns whether the file is empty or ends with a newline. */
static int ends_in_line(int fd)
{
    char last = '\n';
    off_t size = lseek(fd, 0, SEEK_END);

    return size <= 0 || pread(fd, &last, 1, size - 1) != 1 || last == '\n';
}

/* Appends by one write under a lock, so that lines of several hvdruns do not
 * mix. */
static int append_line(const char *path, const struct hb_buf *line)
{
    struct hb_buf out = HB_BUF_INIT;
    int fd, rc = 0;

    make_directory(path);
    fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0)
        return errno;
    flock(fd, LOCK_EX);
    if ((!ends_in_line(fd) && hb_buf_putc(&out, '\n') < 0) ||
        hb_buf_append(&out, hb_buf_data(line), hb_buf_len(line)) < 0)
        rc = ENOMEM;
    if (!rc && write(fd, hb_buf_data(&out), hb_buf_len(&out)) !=
                   (ssize_t)hb_buf_len(&out))
        rc = errno ? errno : ENOSPC;
    close(fd);
    hb_buf_free(&out);
    return rc;
}

struct server_key {
    const char *blob;
    size_t len;
    char kind[KIND_MAX]; /* "ED25519" */
    struct hb_buf fingerprint;
};

static void remember(struct ssh2_task *t, const struct ssh2_hosts *h,
                     const struct server_key *key)
{
    const struct ssh_config *c = &t->config;
    unsigned char salt[KNOWN_HOSTS_SALT_BYTES];
    struct hb_buf line = HB_BUF_INIT;
    const char *path;
    int rc, hash = c->hash_known_hosts;

    path = c->user_known_hosts.items[0];
    if (hash && getrandom(salt, sizeof(salt), 0) != sizeof(salt))
        hash = 0;
    rc = known_hosts_line(hb_buf_data(&h->name), key->blob, key->len,
                          hash ? salt : NULL, &line);
    if (rc == -HVD_ENOMEM)
        hb_die_oom();
    rc = rc < 0 ? EOPNOTSUPP : append_line(path, &line);
    hb_buf_free(&line);
    if (rc)
        ssh2_task_note(t, HB_LOG_WARNING, "cannot add its host key to %s: %s",
                       path, strerror(rc));
    else
        ssh2_task_note(t, HB_LOG_INFO, "added its host key %s %s to %s",
                       key->kind, hb_buf_data(&key->fingerprint), path);
}

/* ---- Refusing ---- */

/* Returns why a new key cannot be added to a file, and what to do, or NULL: ssh
 * does not accept a key then, whatever StrictHostKeyChecking is. */
static const char *why_not_stored(const struct ssh_config *c)
{
    if (c->user_known_hosts.count == 0)
        return "there is no file to add it to; give one with "
               "--ssh-known-hosts";
    if (strpbrk(c->hostname, "@?*#[]|'\"\\"))
        return "its name cannot be written to known_hosts";
    return NULL;
}

static int refuse_unknown(struct ssh2_task *t, const struct server_key *key,
                          struct hb_error *err)
{
    const char *why = why_not_stored(&t->config);

    if (why)
        return hb_error_set(err, HVD_EPERM,
                            "ssh: its host key is not known: %s %s; %s",
                            key->kind, hb_buf_data(&key->fingerprint), why);
    return hb_error_set(err, HVD_EPERM,
                        "ssh: its host key is not known: %s %s; see and "
                        "accept it with: %s true",
                        key->kind, hb_buf_data(&key->fingerprint),
                        t->config.login);
}

static int refuse_changed(const struct ssh2_hosts *h,
                          const struct server_key *key,
                          const struct known_key *old, struct hb_error *err)
{
    struct hb_buf file = HB_BUF_INIT, name = HB_BUF_INIT;
    int rc;

    if (hb_quote_word(old->file, &file) < 0 ||
        hb_quote_word(hb_buf_data(&h->name), &name) < 0)
        hb_die_oom();
    rc = hb_error_set(err, HVD_EPERM,
                      "ssh: its host key has changed, to %s %s (%s:%d has "
                      "another); if that is right, remove the old one with: "
                      "ssh-keygen -f %s -R %s",
                      key->kind, hb_buf_data(&key->fingerprint), old->file,
                      old->line, hb_buf_data(&file), hb_buf_data(&name));
    hb_buf_free(&file);
    hb_buf_free(&name);
    return rc;
}

/* ---- After the key exchange ---- */

/* Converts "ssh-ed25519" to "ED25519", as ssh shows it. */
static void set_kind(struct server_key *key)
{
    char type[64];
    const char *from = type;
    size_t n = 0;

    known_hosts_key_type(key->blob, key->len, type, sizeof(type));
    if (strncmp(type, "ssh-", 4) == 0)
        from += 4;
    while (n < sizeof(key->kind) - 1 && from[n] && from[n] != '-') {
        key->kind[n] = (char)toupper((unsigned char)from[n]);
        n++;
    }
    key->kind[n] = '\0';
}

/* Refuses a changed key, or with StrictHostKeyChecking=no accepts it, as ssh
 * does. */
static int judge_changed(struct ssh2_task *t, const struct ssh2_hosts *h,
                         const struct server_key *key,
                         const struct known_key *old, struct hb_error *err)
{
    if (t->config.strict != SSH_STRICT_OFF)
        return refuse_changed(h, key, old, err);
    ssh2_task_note(t, HB_LOG_WARNING,
                   "its host key has changed, to %s %s; accepted because "
                   "StrictHostKeyChecking is off",
                   key->kind, hb_buf_data(&key->fingerprint));
    return 0;
}

static int judge(struct ssh2_task *t, const struct ssh2_hosts *h,
                 const struct server_key *key, struct hb_error *err)
{
    const struct known_key *which, *other;
    enum known_verdict v =
        known_hosts_judge(&h->known, key->blob, key->len, &which);
    enum known_verdict by_host =
        known_hosts_judge(&h->by_host, key->blob, key->len, &other);

    if (by_host == KNOWN_REVOKED) {
        v = by_host;
        which = other;
    }
    if (v == KNOWN_REVOKED)
        return hb_error_set(err, HVD_EPERM,
                            "ssh: its host key %s %s is marked as revoked in "
                            "%s:%d",
                            key->kind, hb_buf_data(&key->fingerprint),
                            which->file, which->line);
    if (v == KNOWN_MATCH)
        return 0;
    if (known_hosts_has_authority(&h->known))
        return hb_error_set(err, HVD_EUNSUPPORTED,
                            "ssh: known_hosts has another key, and an "
                            "authority, which libssh2 cannot check");
    if (v == KNOWN_CHANGED)
        return judge_changed(t, h, key, which, err);
    if (by_host == KNOWN_MATCH)
        return 0;
    if (t->config.strict == SSH_STRICT_YES || why_not_stored(&t->config))
        return refuse_unknown(t, key, err);
    remember(t, h, key);
    return 0;
}

static int check_length(struct ssh2_task *t, const struct server_key *key,
                        struct hb_error *err)
{
    int bits = ssh_key_rsa_bits(key->blob, key->len);

    if (bits < 0 || bits >= t->config.rsa_bits)
        return 0;
    return hb_error_set(err, HVD_EPERM,
                        "ssh: its host key %s %s has %d bits, and "
                        "RequiredRSASize is %d; give the host a longer one",
                        key->kind, hb_buf_data(&key->fingerprint), bits,
                        t->config.rsa_bits);
}

int ssh2_hosts_check(struct ssh2_task *t, const struct ssh2_hosts *h,
                     struct hb_error *err)
{
    struct server_key key = {.fingerprint = HB_BUF_INIT};
    int type, rc;

    key.blob = libssh2_session_hostkey(t->session->lib, &key.len, &type);
    if (!key.blob)
        return ssh2_failed(t, "the key exchange", err);
    set_kind(&key);
    if (known_hosts_fingerprint(key.blob, key.len, &key.fingerprint) < 0)
        hb_die_oom();
    rc = check_length(t, &key, err);
    if (rc == 0)
        rc = judge(t, h, &key, err);
    hb_buf_free(&key.fingerprint);
    return rc;
}
