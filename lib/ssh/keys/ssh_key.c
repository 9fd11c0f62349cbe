/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key files; see ssh_key.h.  OpenSSH's format is in its PROTOCOL.key: base64 of
 *
 *     "openssh-key-v1" 0, cipher, kdf, kdf options, u32 number of keys,
 *     public key, private section
 *
 * where the decrypted section begins with one number, repeated.
 */
#include "lib/ssh/keys/ssh_key.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/hvd_status.h"
#include "lib/ssh/keys/ssh_pem.h"
#include "lib/ssh/known_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char begin_openssh[] = "-----BEGIN OPENSSH PRIVATE KEY-----";
static const char end_openssh[] = "-----END OPENSSH PRIVATE KEY-----";
static const char magic[] = "openssh-key-v1"; /* including its final 0 */

enum { PEM_LINE = 64, BLOCK_BYTES = 8 };

void ssh_key_free(struct ssh_key *k)
{
    if (k->text)
        sodium_memzero(k->text, k->text_len);
    hb_free(k->text);
    hb_free(k->blob);
    memset(k, 0, sizeof(*k));
}

/* ---- OpenSSH's format ---- */

struct part {
    const unsigned char *p;
    size_t len;
};

struct container {
    struct part cipher, public, private;
};

static struct part read_part(struct hb_reader *r)
{
    uint32_t n = hb_read_u32(r);
    struct part part = {hb_read_bytes(r, n), n};

    if (!part.p)
        part.len = 0;
    return part;
}

static int is_part(const struct part *part, const char *s)
{
    return part->len == strlen(s) && part->p &&
           memcmp(part->p, s, part->len) == 0;
}

static int read_container(const unsigned char *bytes, size_t len,
                          struct container *c)
{
    struct hb_reader r;
    const char *start;

    hb_reader_init(&r, bytes, len);
    start = hb_read_bytes(&r, sizeof(magic));
    if (!start || memcmp(start, magic, sizeof(magic)) != 0)
        return -HVD_EPROTO;
    c->cipher = read_part(&r);
    read_part(&r); /* kdf */
    read_part(&r); /* its options */
    if (hb_read_u32(&r) != 1)
        return -HVD_EPROTO;
    c->public = read_part(&r);
    c->private = read_part(&r);
    return r.bad ? -HVD_EPROTO : 0;
}

/* Decodes the base64 between the first and the last line; the heap bytes must
 * be wiped. */
static int decode_container(const char *text, size_t len, unsigned char **out,
                            size_t *out_len)
{
    const char *from = memmem(text, len, begin_openssh, strlen(begin_openssh));
    const char *to = memmem(text, len, end_openssh, strlen(end_openssh));
    size_t max;
    int bad;

    if (!from || !to || to < from)
        return -HVD_EPROTO;
    from += strlen(begin_openssh);
    if (to < from)
        return -HVD_EPROTO;
    max = (size_t)(to - from) / 4 * 3 + 3;
    *out = hb_malloc(max);
    if (!*out)
        return -HVD_ENOMEM;
    bad = sodium_base642bin(*out, max, from, (size_t)(to - from), " \t\r\n",
                            out_len, NULL, sodium_base64_VARIANT_ORIGINAL);
    if (!bad)
        return 0;
    hb_free(*out);
    return -HVD_EPROTO;
}

static int set_blob(struct ssh_key *k, const void *blob, size_t len)
{
    unsigned char *copy = hb_malloc(len);

    if (!copy)
        return -HVD_ENOMEM;
    memcpy(copy, blob, len);
    hb_free(k->blob);
    k->blob = copy;
    k->blob_len = len;
    known_hosts_key_type(blob, len, k->type, sizeof(k->type));
    return k->type[0] ? 0 : -HVD_EPROTO;
}

/* ---- Without a passphrase ---- */

static int put_part(struct hb_buf *out, const void *bytes, size_t len)
{
    int rc = hb_buf_put_u32(out, (uint32_t)len);

    return rc < 0 ? rc : hb_buf_append(out, bytes, len);
}

static int put_plain(const struct hb_buf *public, const void *section,
                     size_t len, struct hb_buf *out)
{
    int rc = hb_buf_append(out, magic, sizeof(magic));

    if (rc == 0)
        rc = put_part(out, "none", 4);
    if (rc == 0)
        rc = put_part(out, "none", 4);
    if (rc == 0)
        rc = put_part(out, "", 0);
    if (rc == 0)
        rc = hb_buf_put_u32(out, 1);
    if (rc == 0)
        rc = put_part(out, hb_buf_data(public), hb_buf_len(public));
    if (rc == 0)
        rc = put_part(out, section, len);
    return rc;
}

static void set_text(struct ssh_key *k, char *text, size_t len)
{
    if (k->text)
        sodium_memzero(k->text, k->text_len);
    hb_free(k->text);
    k->text = text;
    k->text_len = len;
    k->encrypted = 0;
}

/* Stores the key as PEM, because libssh2 1.10 leaks the numbers of ECDSA keys
 * in OpenSSH's format. */
static int set_ec(struct ssh_key *k, const void *section, size_t len)
{
    char *text;
    size_t text_len;
    int rc = ssh_pem_write_ec(section, len, &text, &text_len);

    if (rc == 0)
        set_text(k, text, text_len);
    return rc;
}

static void wipe(struct hb_buf *b)
{
    sodium_memzero(hb_buf_data(b), hb_buf_len(b));
    hb_buf_free(b);
}

static int set_plain(struct ssh_key *k, const struct hb_buf *public,
                     const void *section, size_t len)
{
    struct hb_buf plain = HB_BUF_INIT;
    char *text;
    size_t text_len;
    int rc = hb_buf_reserve(&plain, SSH_KEY_FILE_MAX);

    if (rc == 0)
        rc = put_plain(public, section, len, &plain);
    if (rc == 0)
        rc = ssh_pem_write("OPENSSH PRIVATE KEY", hb_buf_data(&plain),
                           hb_buf_len(&plain), &text, &text_len);
    if (rc == 0)
        set_text(k, text, text_len);
    wipe(&plain);
    return rc;
}

/* Appends a private section: one number, repeated, the key, and 1, 2, 3 and so
 * on up to whole blocks. */
static int put_section(const void *key, size_t len, struct hb_buf *out)
{
    int rc = hb_buf_put_u64(out, 0);

    if (rc == 0)
        rc = hb_buf_append(out, key, len);
    for (uint8_t i = 1; rc == 0 && hb_buf_len(out) % BLOCK_BYTES; i++)
        rc = hb_buf_put_u8(out, i);
    return rc;
}

/* Appends the public part of a private key: some of its parts, in an order of
 * their own.  -HVD_EPROTO if there are fewer, or for a type without a row. */
static int put_public(const void *key, size_t len, struct hb_buf *out)
{
    enum { PARTS_MAX = 5 };
    static const struct {
        const char *type, *parts; /* numbers of the parts */
    } kinds[] = {
        {"ssh-ed25519", "01"},
        {"ecdsa-sha2-nistp256", "012"},
        {"ecdsa-sha2-nistp384", "012"},
        {"ecdsa-sha2-nistp521", "012"},
        {"ssh-rsa", "021"},
        {"ssh-dss", "01234"},
    };
    struct part parts[PARTS_MAX];
    struct hb_reader r;
    const char *p = NULL;
    int rc = 0;

    hb_reader_init(&r, key, len);
    parts[0] = read_part(&r);
    for (size_t i = 0; !p && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (is_part(&parts[0], kinds[i].type))
            p = kinds[i].parts;
    for (size_t i = 1; p && i < strlen(p); i++)
        parts[i] = read_part(&r);
    if (!p || r.bad)
        return -HVD_EPROTO;
    for (; *p && rc == 0; p++)
        rc = put_part(out, parts[*p - '0'].p, parts[*p - '0'].len);
    return rc;
}

/* Returns whether that public key may be k's. */
static int is_public(const struct ssh_key *k, const struct hb_buf *public)
{
    char type[SSH_KEY_TYPE_MAX];

    if (k->blob)
        return hb_buf_len(public) == k->blob_len &&
               memcmp(hb_buf_data(public), k->blob, k->blob_len) == 0;
    known_hosts_key_type(hb_buf_data(public), hb_buf_len(public), type,
                         sizeof(type));
    return !k->type[0] || strcmp(type, k->type) == 0;
}

int ssh_key_set_private(struct ssh_key *k, const void *key, size_t len)
{
    struct hb_buf section = HB_BUF_INIT, public = HB_BUF_INIT;
    int rc = -HVD_EPROTO;

    if (len <= SSH_KEY_FILE_MAX)
        rc = put_public(key, len, &public);
    if (rc == 0 && !is_public(k, &public))
        rc = -HVD_EPROTO;
    if (rc == 0)
        rc = hb_buf_reserve(&section, 3 * BLOCK_BYTES + len);
    if (rc == 0)
        rc = put_section(key, len, &section);
    if (rc == 0) {
        rc = set_ec(k, hb_buf_data(&section), hb_buf_len(&section));
        if (rc == -HVD_EUNSUPPORTED)
            rc = set_plain(k, &public, hb_buf_data(&section),
                           hb_buf_len(&section));
    }
    hb_buf_free(&public);
    wipe(&section);
    return rc;
}

/* ---- Formats ---- */

static int parse_openssh(const char *text, size_t len, struct ssh_key *out)
{
    unsigned char *bytes;
    size_t n;
    struct container c;
    int rc = decode_container(text, len, &bytes, &n);

    if (rc < 0)
        return rc;
    rc = read_container(bytes, n, &c);
    if (rc == 0)
        rc = set_blob(out, c.public.p, c.public.len);
    if (rc == 0) {
        out->encrypted = !is_part(&c.cipher, "none");
        out->openssh = 1;
        out->text = hb_strndup(text, len);
        out->text_len = out->text ? strlen(out->text) : 0;
        rc = out->text ? 0 : -HVD_ENOMEM;
    }
    if (rc == 0 && !out->encrypted) {
        rc = set_ec(out, c.private.p, c.private.len);
        rc = rc == -HVD_EUNSUPPORTED ? 0 : rc;
    }
    sodium_memzero(bytes, n);
    hb_free(bytes);
    return rc;
}

static int has(const char *text, size_t len, const char *part)
{
    return memmem(text, len, part, strlen(part)) != NULL;
}

/* Returns the type of a PKCS#8 key, which names its algorithm in the first line
 * of its base64. */
static const char *pkcs8_type(const char *text, size_t len)
{
    static const struct {
        const char *oid;
        size_t len;
        const char *type;
    } kinds[] = {
        {"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01", 9, "ssh-rsa"},
        {"\x2b\x65\x70", 3, "ssh-ed25519"},
        {"\x2a\x86\x48\xce\x3d\x03\x01\x07", 8, "ecdsa-sha2-nistp256"},
        {"\x2b\x81\x04\x00\x22", 5, "ecdsa-sha2-nistp384"},
        {"\x2b\x81\x04\x00\x23", 5, "ecdsa-sha2-nistp521"},
    };
    unsigned char head[PEM_LINE / 4 * 3];
    const char *from = memchr(text, '\n', len);
    size_t n = 0, line = 0;

    if (!from)
        return "";
    from++;
    while (line < PEM_LINE && from + line < text + len && from[line] > ' ')
        line++;
    sodium_base642bin(head, sizeof(head), from, line / 4 * 4, NULL, &n, NULL,
                      sodium_base64_VARIANT_ORIGINAL);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (memmem(head, n, kinds[i].oid, kinds[i].len))
            return kinds[i].type;
    return "";
}

static int parse_pem(const char *text, size_t len, struct ssh_key *out)
{
    const char *type = "";

    if (has(text, len, "-----BEGIN RSA PRIVATE KEY-----"))
        type = "ssh-rsa";
    else if (has(text, len, "-----BEGIN DSA PRIVATE KEY-----"))
        type = "ssh-dss";
    else if (has(text, len, "-----BEGIN PRIVATE KEY-----"))
        type = pkcs8_type(text, len);
    else if (!has(text, len, "-----BEGIN EC PRIVATE KEY-----") &&
             !has(text, len, "-----BEGIN ENCRYPTED PRIVATE KEY-----"))
        return -HVD_EPROTO;
    snprintf(out->type, sizeof(out->type), "%s", type);
    out->encrypted = has(text, len, "ENCRYPTED");
    out->text = hb_strndup(text, len);
    out->text_len = out->text ? strlen(out->text) : 0;
    return out->text ? 0 : -HVD_ENOMEM;
}

int ssh_key_parse_public(const char *text, size_t len, struct ssh_key *out)
{
    struct known_hosts k = KNOWN_HOSTS_INIT;
    struct hb_buf line = HB_BUF_INIT;
    const char *eol = memchr(text, '\n', len);
    int rc = hb_buf_puts(&line, "* "); /* a line of known_hosts */

    if (rc == 0)
        rc = hb_buf_append(&line, text, eol ? (size_t)(eol - text) : len);
    if (rc == 0)
        rc = known_hosts_read(&k, "x", "", hb_buf_data(&line),
                              hb_buf_len(&line));
    if (rc == 0)
        rc = k.count == 1 ? set_blob(out, k.keys[0].blob, k.keys[0].len)
                          : -HVD_EPROTO;
    known_hosts_free(&k);
    hb_buf_free(&line);
    return rc;
}

int ssh_key_parse(const char *text, size_t len, struct ssh_key *out)
{
    if (!has(text, len, "PRIVATE KEY-----"))
        return ssh_key_parse_public(text, len, out);
    return has(text, len, begin_openssh) ? parse_openssh(text, len, out)
                                         : parse_pem(text, len, out);
}

/* ---- Files ---- */

/* Reads a regular file of less than SSH_KEY_FILE_MAX bytes.  *exposed: others
 * may read it, which ssh refuses, too. */
static int read_file(const char *path, struct hb_buf *out, int *exposed)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int rc = 0;
    struct stat st;
    ssize_t n = 0;

    if (fd < 0)
        return -HVD_ENOENT;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        st.st_size >= SSH_KEY_FILE_MAX)
        rc = -HVD_EPROTO;
    if (rc == 0)
        rc = hb_buf_reserve(out, SSH_KEY_FILE_MAX);
    if (rc == 0) {
        *exposed = st.st_uid == getuid() && (st.st_mode & 077) != 0;
        n = read(fd, out->data, SSH_KEY_FILE_MAX);
        out->len = n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return n < 0 ? -HVD_EPROTO : rc;
}

/* Reads the public part from the file with ".pub" appended. */
static int load_public(const char *path, struct ssh_key *out)
{
    struct hb_buf text = HB_BUF_INIT;
    char *name = hb_xasprintf("%s.pub", path);
    int rc, exposed;

    rc = read_file(name, &text, &exposed);
    if (rc == 0)
        rc = ssh_key_parse_public(hb_buf_data(&text), hb_buf_len(&text), out);
    hb_buf_free(&text);
    hb_free(name);
    return rc;
}

int ssh_key_load(const char *path, struct ssh_key *out)
{
    struct hb_buf text = HB_BUF_INIT;
    int exposed = 0, rc_public = 0;
    int rc = read_file(path, &text, &exposed);

    if (rc == 0)
        rc = ssh_key_parse(hb_buf_data(&text), hb_buf_len(&text), out);
    wipe(&text);
    if (rc == 0 && out->text && exposed)
        rc = -HVD_EPERM;
    if (rc == -HVD_ENOENT || (rc == 0 && !out->blob))
        rc_public = load_public(path, out);
    if (rc == -HVD_ENOENT && rc_public == 0)
        rc = 0; /* the private part may be in an agent */
    if (rc_public == -HVD_ENOMEM)
        rc = rc_public;
    if (rc < 0)
        ssh_key_free(out);
    return rc;
}

/* ---- Length ---- */

int ssh_key_rsa_bits(const void *blob, size_t len)
{
    char type[SSH_KEY_TYPE_MAX];
    const unsigned char *n;
    struct hb_reader r;
    uint32_t size;
    int bits;

    known_hosts_key_type(blob, len, type, sizeof(type));
    if (strcmp(type, "ssh-rsa") != 0)
        return -1;
    hb_reader_init(&r, blob, len);
    hb_read_bytes(&r, hb_read_u32(&r)); /* the type */
    hb_read_bytes(&r, hb_read_u32(&r)); /* the exponent */
    size = hb_read_u32(&r);
    n = hb_read_bytes(&r, size);
    if (!n || size > SSH_KEY_FILE_MAX)
        return 0;
    for (; size > 0 && *n == 0; size--)
        n++;
    bits = (int)size * 8;
    for (int top = size ? *n : 0x80; !(top & 0x80); top <<= 1)
        bits--;
    return bits;
}
