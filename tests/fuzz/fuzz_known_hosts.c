/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known_hosts: a listed key is judged as its marker says, and a line that is
 * written for a key can be read again.
 *
 * An input that begins with a zero byte stands for a list of lines, each known
 * to match the host or not.  The verdict is also derived from that list by
 * OpenSSH's rules, and compared.
 */
#include "lib/ssh/known_hosts.h"
#include "tests/fuzz/fuzz.h"

static const char name[] = "[n1]:2222";

static void check_key(const struct known_hosts *k, const struct known_key *key)
{
    static const unsigned char salt[KNOWN_HOSTS_SALT_BYTES] = "salt";
    const struct known_key *which;
    enum known_verdict v = known_hosts_judge(k, key->blob, key->len, &which);
    struct known_hosts again = KNOWN_HOSTS_INIT;
    struct hb_buf line = HB_BUF_INIT;
    char type[64];

    FUZZ_CHECK(key->marker != KNOWN_REVOKED_KEY || v == KNOWN_REVOKED);
    FUZZ_CHECK(key->marker != KNOWN_NO_MARKER || v == KNOWN_MATCH ||
               v == KNOWN_REVOKED);
    FUZZ_CHECK((v == KNOWN_UNKNOWN) == (which == NULL));
    known_hosts_key_type(key->blob, key->len, type, sizeof(type));
    FUZZ_CHECK(strcmp(type, key->type) == 0);
    for (int i = 0; i < 2; i++) {
        hb_buf_clear(&line);
        FUZZ_CHECK(known_hosts_line(name, key->blob, key->len, i ? salt : NULL,
                                    &line) == 0);
        FUZZ_CHECK(known_hosts_read(&again, name, "f", hb_buf_data(&line),
                                    hb_buf_len(&line)) == 0);
        FUZZ_CHECK(again.count == 1 && again.keys[0].len == key->len);
        known_hosts_free(&again);
    }
    hb_buf_free(&line);
}

/* ---- Lists of lines ---- */

enum { ITEM_BYTES = 4, ITEMS_MAX = 64 };

static const char *const types[] = {"ssh-ed25519", "ecdsa-sha2-nistp256",
                                    "ssh-rsa", "ssh-dss"};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

static const struct {
    const char *names;
    int about; /* matches the host */
} patterns[] = {
    {"[n1]:2222", 1},
    {"[N1]:2222", 1},
    {"n1", 0},
    {"n2", 0},
    {"*", 1},
    {"[n?]:22*", 1},
    {"[n1]:222", 0},
    {"n2,[n1]:2222,10.0.0.1", 1},
    {"*,![n1]:2222", 0},
    {"![n1]:2222,*", 0},
    {"!n1,[n1]:2222", 1},
    {"?n1]:2222", 1},
    {"![n2]:2222", 0},
    {"[n1]:2222,![N1]:*", 0},
    {"|1|salt|rubbish=", 0},
    {"", 0}, /* hashed */
};
enum { PATTERNS = sizeof(patterns) / sizeof(patterns[0]) };

/* One line, from four bytes of the input. */
struct item {
    unsigned marker; /* none, none, revoked, authority, unknown */
    unsigned pattern;
    unsigned type, number; /* of the key */
    int about;
};

static struct item read_item(const uint8_t *p)
{
    struct item i = {p[0] % 5, p[1] % PATTERNS, p[2] % TYPES, p[3] % 4, 0};

    i.about =
        i.pattern == PATTERNS - 1 ? p[0] >= 128 : patterns[i.pattern].about;
    return i;
}

static void put_blob(const struct item *i, struct hb_buf *out)
{
    int rc = hb_buf_put_u32(out, (uint32_t)strlen(types[i->type]));

    if (rc == 0)
        rc = hb_buf_puts(out, types[i->type]);
    if (rc == 0)
        rc = hb_buf_printf(out, "key %u", i->number);
    FUZZ_CHECK(rc == 0);
}

/* Writes the line of an item, without marker and newline. */
static void put_key(const struct item *i, struct hb_buf *out)
{
    static const unsigned char salt[KNOWN_HOSTS_SALT_BYTES] = "salt";
    struct hb_buf blob = HB_BUF_INIT, line = HB_BUF_INIT;
    int hashed = i->pattern == PATTERNS - 1;
    const char *rest;

    put_blob(i, &blob);
    FUZZ_CHECK(known_hosts_line(i->about ? name : "n3", hb_buf_data(&blob),
                                hb_buf_len(&blob), hashed ? salt : NULL,
                                &line) == 0);
    rest = hashed ? hb_buf_data(&line) : strchr(hb_buf_data(&line), ' ');
    FUZZ_CHECK(hb_buf_printf(out, "%s%s",
                             hashed ? "" : patterns[i->pattern].names,
                             rest) == 0);
    hb_buf_free(&blob);
    hb_buf_free(&line);
}

static void put_item(const struct item *i, struct hb_buf *out)
{
    static const char *const markers[] = {"", "", "@revoked ",
                                          "@cert-authority ", "@other "};

    FUZZ_CHECK(hb_buf_puts(out, markers[i->marker]) == 0);
    put_key(i, out);
}

/* Judges like OpenSSH's hostfile.c: a revoked key counts first, then an equal
 * key; any other key of the host means that its key has changed. */
static enum known_verdict expected(const struct item *items, size_t count,
                                   const struct item *shown)
{
    int same = 0, other = 0;

    for (size_t n = 0; n < count; n++) {
        const struct item *i = &items[n];
        int equal = i->type == shown->type && i->number == shown->number;

        if (!i->about)
            continue;
        if (i->marker == 2 && equal)
            return KNOWN_REVOKED;
        if (i->marker < 2 && equal)
            same = 1;
        if (i->marker < 2 && !equal)
            other = 1;
    }
    return same ? KNOWN_MATCH : other ? KNOWN_CHANGED : KNOWN_UNKNOWN;
}

static void check_list(const uint8_t *data, size_t size)
{
    struct item items[ITEMS_MAX], shown;
    struct known_hosts k = KNOWN_HOSTS_INIT;
    struct hb_buf text = HB_BUF_INIT, blob = HB_BUF_INIT;
    const struct known_key *which;
    enum known_verdict v;
    size_t count = 0;

    if (size < ITEM_BYTES)
        return;
    shown = read_item(data);
    for (size_t at = ITEM_BYTES; at + ITEM_BYTES <= size && count < ITEMS_MAX;
         at += ITEM_BYTES) {
        items[count] = read_item(data + at);
        put_item(&items[count++], &text);
    }
    put_blob(&shown, &blob);
    FUZZ_CHECK(known_hosts_read(&k, name, "file", hb_buf_data(&text),
                                hb_buf_len(&text)) == 0);
    v = known_hosts_judge(&k, hb_buf_data(&blob), hb_buf_len(&blob), &which);
    FUZZ_CHECK(v == expected(items, count, &shown));
    FUZZ_CHECK((v == KNOWN_UNKNOWN) == (which == NULL));
    known_hosts_free(&k);
    hb_buf_free(&text);
    hb_buf_free(&blob);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct known_hosts k = KNOWN_HOSTS_INIT;
    struct hb_buf list = HB_BUF_INIT;
    char *text;

    if (size > 0 && data[0] == 0) {
        check_list(data + 1, size - 1);
        return 0;
    }
    text = fuzz_copy(data, size);
    FUZZ_CHECK(known_hosts_read(&k, name, "file", text, size) == 0);
    free(text);
    for (size_t i = 0; i < k.count && i < 16; i++)
        check_key(&k, &k.keys[i]);
    known_hosts_algorithms(&k, "ssh-ed25519,rsa-sha2-512,x", "x,ssh-ed25519",
                           &list);
    FUZZ_CHECK(hb_buf_len(&list) <= strlen("ssh-ed25519,x"));
    hb_buf_free(&list);
    known_hosts_free(&k);
    return 0;
}
