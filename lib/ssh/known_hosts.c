/* SPDX-License-Identifier: Apache-2.0 */
/* The format of known_hosts files; see known_hosts.h and sshd(8). */
#include "lib/ssh/known_hosts.h"

#include "lib/base/alloc.h"
#include "lib/base/hvd_status.h"

#include <ctype.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sodium.h>
#include <string.h>
#include <strings.h>

enum { TYPE_MAX = 64, HASH_BYTES = 20 };

/* A part of a line. */
struct field {
    const char *s;
    size_t len;
};

static int is_field(const struct field *f, const char *s)
{
    return f->len == strlen(s) && memcmp(f->s, s, f->len) == 0;
}

/* ---- Base64 ---- */

/* Decodes base64 (heap), or returns NULL with *rc -HVD_EPROTO or
 * -HVD_ENOMEM. */
static unsigned char *decode(const struct field *f, size_t *len, int *rc)
{
    size_t max = f->len / 4 * 3 + 3;
    unsigned char *bytes = hb_malloc(max);

    *rc = -HVD_ENOMEM;
    if (!bytes)
        return NULL;
    *rc = 0;
    if (sodium_base642bin(bytes, max, f->s, f->len, NULL, len, NULL,
                          sodium_base64_VARIANT_ORIGINAL) == 0)
        return bytes;
    *rc = -HVD_EPROTO;
    hb_free(bytes);
    return NULL;
}

static int put_base64(const void *bytes, size_t len, int variant,
                      struct hb_buf *out)
{
    size_t max = sodium_base64_encoded_len(len, variant);
    char *text = hb_malloc(max);
    int rc;

    if (!text)
        return -HVD_ENOMEM;
    sodium_bin2base64(text, max, bytes, len, variant);
    rc = hb_buf_puts(out, text);
    hb_free(text);
    return rc;
}

/* ---- Names ---- */

int known_hosts_name(const char *host, int port, struct hb_buf *out)
{
    int rc = port == 22 ? hb_buf_puts(out, host)
                        : hb_buf_printf(out, "[%s]:%d", host, port);
    char *s = hb_buf_data(out);

    for (size_t i = 0; rc == 0 && i < hb_buf_len(out); i++)
        s[i] = (char)tolower((unsigned char)s[i]);
    return rc;
}

/* Matches one pattern; if the rest fails, `*` takes one more character. */
static int match_one(const char *p, const char *end, const char *name)
{
    const char *star = NULL, *back = NULL;

    while (*name) {
        if (p < end && *p == '*') {
            star = ++p;
            back = name;
        } else if (p < end &&
                   (*p == '?' || tolower((unsigned char)*p) ==
                                     tolower((unsigned char)*name))) {
            p++;
            name++;
        } else if (star) {
            p = star;
            name = ++back;
        } else {
            return 0;
        }
    }
    while (p < end && *p == '*')
        p++;
    return p == end;
}

int known_hosts_match(const char *patterns, size_t len, const char *name)
{
    const char *end = patterns + len;
    int found = 0;

    while (patterns < end) {
        const char *comma = memchr(patterns, ',', (size_t)(end - patterns));
        const char *stop = comma ? comma : end;
        int not = *patterns == '!';

        if (match_one(patterns + not, stop, name)) {
            if (not )
                return 0;
            found = 1;
        }
        patterns = stop + 1;
    }
    return found;
}

/* Hashes a name by HMAC-SHA1.  0, -HVD_ENOMEM, or -HVD_EUNSUPPORTED if
 * libcrypto refuses it, as its FIPS modes may. */
static int hash_name(const unsigned char *salt, size_t salt_len,
                     const char *name, unsigned char hash[HASH_BYTES])
{
    unsigned long why;

    ERR_clear_error();
    if (HMAC(EVP_sha1(), salt, (int)salt_len, (const unsigned char *)name,
             strlen(name), hash, NULL))
        return 0;
    why = ERR_peek_last_error();
    ERR_clear_error();
    return !why || ERR_GET_REASON(why) == ERR_R_MALLOC_FAILURE
               ? -HVD_ENOMEM
               : -HVD_EUNSUPPORTED;
}

/* Matches a hashed name: "|1|salt|hash". */
static int match_hashed(const struct field *f, const char *name, int *rc)
{
    const char *bar = memchr(f->s + 3, '|', f->len - 3);
    struct field salt, hash;
    unsigned char *s, *h = NULL, mine[HASH_BYTES];
    size_t salt_len = 0, hash_len = 0;
    int same = 0;

    if (!bar)
        return 0;
    salt = (struct field){f->s + 3, (size_t)(bar - f->s) - 3};
    hash = (struct field){bar + 1, f->len - salt.len - 4};
    s = decode(&salt, &salt_len, rc);
    if (s)
        h = decode(&hash, &hash_len, rc);
    if (h && hash_len == HASH_BYTES && salt_len <= INT_MAX) {
        *rc = hash_name(s, salt_len, name, mine);
        same = *rc == 0 && memcmp(mine, h, HASH_BYTES) == 0;
    }
    hb_free(s);
    hb_free(h);
    return same;
}

/* Matches a line's names; *rc: 0, -HVD_ENOMEM, -HVD_EUNSUPPORTED, or
 * -HVD_EPROTO if malformed. */
static int match_names(const struct field *f, const char *name, int *rc)
{
    *rc = 0;
    if (f->len > 3 && memcmp(f->s, "|1|", 3) == 0)
        return match_hashed(f, name, rc);
    return known_hosts_match(f->s, f->len, name);
}

/* ---- Lines ---- */

void known_hosts_key_type(const void *blob, size_t len, char *out, size_t size)
{
    struct hb_reader r;
    const char *type;
    uint32_t n;

    hb_reader_init(&r, blob, len);
    n = hb_read_u32(&r);
    type = r.bad ? NULL : hb_read_bytes(&r, n);
    out[0] = '\0';
    if (!type || memchr(type, '\0', n))
        return;
    if (n >= size)
        n = (uint32_t)size - 1;
    memcpy(out, type, n);
    out[n] = '\0';
}

static int next_field(struct field *line, struct field *f)
{
    size_t n = 0;

    while (line->len > 0 && (*line->s == ' ' || *line->s == '\t')) {
        line->s++;
        line->len--;
    }
    while (n < line->len && line->s[n] != ' ' && line->s[n] != '\t')
        n++;
    f->s = line->s;
    f->len = n;
    line->s += n;
    line->len -= n;
    return n > 0;
}

static int add_key(struct known_hosts *k, enum known_marker marker,
                   const struct field *type, unsigned char *blob, size_t len,
                   const char *file, int line)
{
    struct known_key *keys =
        hb_realloc_array(k->keys, k->count + 1, sizeof(*keys));
    struct known_key *key;

    if (!keys)
        return -HVD_ENOMEM;
    k->keys = keys;
    key = &keys[k->count];
    key->type = hb_strndup(type->s, type->len);
    key->file = hb_strdup(file);
    if (!key->type || !key->file) {
        hb_free(key->type);
        hb_free(key->file);
        return -HVD_ENOMEM;
    }
    key->marker = marker;
    key->blob = blob;
    key->len = len;
    key->line = line;
    k->count++;
    return 0;
}

static int read_line(struct known_hosts *k, const char *name, const char *file,
                     int number, struct field line)
{
    struct field marker, names, type, base64;
    enum known_marker m = KNOWN_NO_MARKER;
    char inner[TYPE_MAX];
    unsigned char *blob;
    size_t len;
    int rc;

    if (!next_field(&line, &names) || names.s[0] == '#')
        return 0;
    if (names.s[0] == '@') {
        marker = names;
        if (is_field(&marker, "@revoked"))
            m = KNOWN_REVOKED_KEY;
        else if (is_field(&marker, "@cert-authority"))
            m = KNOWN_AUTHORITY;
        else
            return 0;
        if (!next_field(&line, &names))
            return 0;
    }
    if (!next_field(&line, &type) || !next_field(&line, &base64))
        return 0;
    if (!match_names(&names, name, &rc))
        return rc == -HVD_EPROTO ? 0 : rc;
    blob = decode(&base64, &len, &rc);
    if (!blob)
        return rc == -HVD_ENOMEM ? rc : 0;
    known_hosts_key_type(blob, len, inner, sizeof(inner));
    if (!is_field(&type, inner)) {
        hb_free(blob);
        return 0;
    }
    rc = add_key(k, m, &type, blob, len, file, number);
    if (rc < 0)
        hb_free(blob);
    return rc;
}

int known_hosts_read(struct known_hosts *k, const char *name, const char *file,
                     const char *text, size_t len)
{
    const char *end = text + len;
    int rc = 0;

    for (int number = 1; rc == 0 && text < end; number++) {
        const char *eol = memchr(text, '\n', (size_t)(end - text));
        struct field line = {text, (size_t)((eol ? eol : end) - text)};

        text += line.len + 1;
        if (line.len > 0 && line.s[line.len - 1] == '\r')
            line.len--;
        if (!memchr(line.s, '\0', line.len))
            rc = read_line(k, name, file, number, line);
    }
    return rc;
}

void known_hosts_free(struct known_hosts *k)
{
    for (size_t i = 0; i < k->count; i++) {
        hb_free(k->keys[i].type);
        hb_free(k->keys[i].blob);
        hb_free(k->keys[i].file);
    }
    hb_free(k->keys);
    k->keys = NULL;
    k->count = 0;
}

/* ---- Questions ---- */

static int same_key(const struct known_key *key, const void *blob, size_t len)
{
    return key->len == len && memcmp(key->blob, blob, len) == 0;
}

enum known_verdict known_hosts_judge(const struct known_hosts *k,
                                     const void *blob, size_t len,
                                     const struct known_key **which)
{
    enum known_verdict verdict = KNOWN_UNKNOWN;

    *which = NULL;
    for (size_t i = 0; i < k->count; i++) {
        const struct known_key *key = &k->keys[i];
        int same = same_key(key, blob, len);

        if (key->marker == KNOWN_REVOKED_KEY && same) {
            *which = key;
            return KNOWN_REVOKED;
        }
        if (key->marker != KNOWN_NO_MARKER || verdict == KNOWN_MATCH)
            continue;
        if (same || verdict == KNOWN_UNKNOWN)
            *which = key;
        verdict = same ? KNOWN_MATCH : KNOWN_CHANGED;
    }
    return verdict;
}

int known_hosts_has_authority(const struct known_hosts *k)
{
    for (size_t i = 0; i < k->count; i++)
        if (k->keys[i].marker == KNOWN_AUTHORITY)
            return 1;
    return 0;
}

/* Returns the type of keys that an algorithm uses. */
static struct field algorithm_type(const struct field *algorithm)
{
    static const char rsa[] = "ssh-rsa";

    if (is_field(algorithm, "rsa-sha2-256") ||
        is_field(algorithm, "rsa-sha2-512"))
        return (struct field){rsa, sizeof(rsa) - 1};
    return *algorithm;
}

static int is_known_type(const struct known_hosts *k, const struct field *type)
{
    for (size_t i = 0; i < k->count; i++)
        if (k->keys[i].marker == KNOWN_NO_MARKER &&
            is_field(type, k->keys[i].type))
            return 1;
    return 0;
}

static int is_listed(const struct field *name, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, ",");
        if (n == name->len && memcmp(list, name->s, n) == 0)
            return 1;
        list += n + (list[n] == ',');
    }
    return 0;
}

static int has_part(const struct field *f, const char *part)
{
    return memmem(f->s, f->len, part, strlen(part)) != NULL;
}

/* Appends those of `allowed` and `able` for which a key is known or, with known
 * 0, is not. */
static int put_algorithms(const struct known_hosts *k, const char *allowed,
                          const char *able, int known, struct hb_buf *out)
{
    int rc = 0;

    while (rc == 0 && *allowed) {
        struct field f = {allowed, strcspn(allowed, ",")};
        struct field type = algorithm_type(&f);

        allowed += f.len + (allowed[f.len] == ',');
        if (f.len == 0 || has_part(&f, "-cert-") || !is_listed(&f, able) ||
            is_known_type(k, &type) != known)
            continue;
        if (hb_buf_len(out) > 0)
            rc = hb_buf_putc(out, ',');
        if (rc == 0)
            rc = hb_buf_append(out, f.s, f.len);
    }
    return rc;
}

int known_hosts_algorithms(const struct known_hosts *k, const char *allowed,
                           const char *able, struct hb_buf *out)
{
    int some = 0, rc;

    for (size_t i = 0; i < k->count; i++)
        some |= k->keys[i].marker == KNOWN_NO_MARKER;
    rc = put_algorithms(k, allowed, able, 1, out);
    if (rc == 0 && some && hb_buf_len(out) == 0)
        return -HVD_EUNSUPPORTED;
    if (rc == 0)
        rc = put_algorithms(k, allowed, able, 0, out);
    if (rc == 0 && hb_buf_len(out) == 0)
        return -HVD_EUNSUPPORTED;
    return rc;
}

/* ---- Writing ---- */

int known_hosts_fingerprint(const void *blob, size_t len, struct hb_buf *out)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    int rc = hb_buf_puts(out, "SHA256:");

    crypto_hash_sha256(hash, blob, len);
    if (rc == 0)
        rc = put_base64(hash, sizeof(hash),
                        sodium_base64_VARIANT_ORIGINAL_NO_PADDING, out);
    return rc;
}

static int put_hashed(const char *name, const unsigned char *salt,
                      struct hb_buf *out)
{
    unsigned char hash[HASH_BYTES];
    int rc = hash_name(salt, KNOWN_HOSTS_SALT_BYTES, name, hash);

    if (rc == 0)
        rc = hb_buf_puts(out, "|1|");
    if (rc == 0)
        rc = put_base64(salt, KNOWN_HOSTS_SALT_BYTES,
                        sodium_base64_VARIANT_ORIGINAL, out);
    if (rc == 0)
        rc = hb_buf_putc(out, '|');
    if (rc == 0)
        rc =
            put_base64(hash, sizeof(hash), sodium_base64_VARIANT_ORIGINAL, out);
    return rc;
}

int known_hosts_line(const char *name, const void *blob, size_t len,
                     const unsigned char salt[KNOWN_HOSTS_SALT_BYTES],
                     struct hb_buf *out)
{
    char type[TYPE_MAX];
    int rc = salt ? put_hashed(name, salt, out) : hb_buf_puts(out, name);

    known_hosts_key_type(blob, len, type, sizeof(type));
    if (rc == 0)
        rc = hb_buf_printf(out, " %s ", type);
    if (rc == 0)
        rc = put_base64(blob, len, sodium_base64_VARIANT_ORIGINAL, out);
    if (rc == 0)
        rc = hb_buf_putc(out, '\n');
    return rc;
}
