/* SPDX-License-Identifier: Apache-2.0 */
/* PEM, and the DER of elliptic curve keys; see ssh_pem.h. */
#include "lib/transport/ssh_pem.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/hvd_status.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum {
    LINE = 64,
    LABEL_MAX = 128, /* both lines with labels */
    DER_MAX = 1024,
    DER_INTEGER = 0x02,
    DER_BITS = 0x03,
    DER_BYTES = 0x04,
    DER_OID = 0x06,
    DER_SEQUENCE = 0x30,
    DER_PARAMETERS = 0xa0,
    DER_PUBLIC = 0xa1,
};

int ssh_pem_write(const char *label, const void *bytes, size_t len, char **text,
                  size_t *text_len)
{
    const int variant = sodium_base64_VARIANT_ORIGINAL;
    size_t max = sodium_base64_encoded_len(len, variant);
    size_t size = max + max / LINE + LABEL_MAX;
    char *base64 = hb_malloc(max), *out = hb_calloc(1, size);
    size_t n;

    if (!base64 || !out) {
        hb_free(base64);
        hb_free(out);
        return -HVD_ENOMEM;
    }
    sodium_bin2base64(base64, max, bytes, len, variant);
    n = (size_t)snprintf(out, size, "-----BEGIN %s-----\n", label);
    for (size_t i = 0; base64[i]; i += strnlen(base64 + i, LINE))
        n += (size_t)snprintf(out + n, size - n, "%.*s\n", LINE, base64 + i);
    n += (size_t)snprintf(out + n, size - n, "-----END %s-----\n", label);
    sodium_memzero(base64, max);
    hb_free(base64);
    *text = out;
    *text_len = n;
    return 0;
}

/* ---- Elliptic curves ---- */

struct curve {
    const char *name;
    size_t bytes; /* of a number */
    const char *oid;
    size_t oid_len;
};

static const struct curve curves[] = {
    {"nistp256", 32, "\x2a\x86\x48\xce\x3d\x03\x01\x07", 8},
    {"nistp384", 48, "\x2b\x81\x04\x00\x22", 5},
    {"nistp521", 66, "\x2b\x81\x04\x00\x23", 5},
};

struct ec_key {
    const struct curve *curve;
    const unsigned char *point, *number;
    uint32_t point_len, number_len;
};

static const struct curve *find_curve(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(curves) / sizeof(curves[0]); i++)
        if (name && len == strlen(curves[i].name) &&
            memcmp(curves[i].name, name, len) == 0)
            return &curves[i];
    return NULL;
}

static int read_section(const void *section, size_t len, struct ec_key *k)
{
    static const char kind[] = "ecdsa-sha2-";
    struct hb_reader r;
    const char *type, *name;
    uint32_t type_len, name_len;

    hb_reader_init(&r, section, len);
    hb_read_u32(&r);
    hb_read_u32(&r);
    type_len = hb_read_u32(&r);
    type = hb_read_bytes(&r, type_len);
    if (!type || type_len < sizeof(kind) - 1 ||
        memcmp(type, kind, sizeof(kind) - 1) != 0)
        return -HVD_EUNSUPPORTED;
    name_len = hb_read_u32(&r);
    name = hb_read_bytes(&r, name_len);
    k->curve = find_curve(name, name_len);
    k->point_len = hb_read_u32(&r);
    k->point = hb_read_bytes(&r, k->point_len);
    k->number_len = hb_read_u32(&r);
    k->number = hb_read_bytes(&r, k->number_len);
    if (r.bad)
        return -HVD_EPROTO;
    while (k->number_len > 0 && *k->number == 0) { /* the sign */
        k->number++;
        k->number_len--;
    }
    if (!k->curve || k->number_len > k->curve->bytes ||
        k->point_len != 2 * k->curve->bytes + 1)
        return -HVD_EPROTO;
    return 0;
}

static size_t head_len(size_t len)
{
    return len < 0x80 ? 2 : 3; /* 255 at most */
}

/* The buffer has room for all. */
static void put_head(struct hb_buf *b, int tag, size_t len)
{
    hb_buf_put_u8(b, (uint8_t)tag);
    if (len >= 0x80)
        hb_buf_put_u8(b, 0x81);
    hb_buf_put_u8(b, (uint8_t)len);
}

static void put_key(struct hb_buf *b, const struct ec_key *k)
{
    size_t number = k->curve->bytes, oid = k->curve->oid_len;
    size_t bits = k->point_len + 1;
    size_t public = head_len(bits) + bits;
    size_t all =
        3 + head_len(number) + number + 4 + oid + head_len(public) + public;

    put_head(b, DER_SEQUENCE, all);
    put_head(b, DER_INTEGER, 1);
    hb_buf_put_u8(b, 1); /* the version */
    put_head(b, DER_BYTES, number);
    for (size_t i = k->number_len; i < number; i++)
        hb_buf_put_u8(b, 0);
    hb_buf_append(b, k->number, k->number_len);
    put_head(b, DER_PARAMETERS, 2 + oid);
    put_head(b, DER_OID, oid);
    hb_buf_append(b, k->curve->oid, oid);
    put_head(b, DER_PUBLIC, public);
    put_head(b, DER_BITS, bits);
    hb_buf_put_u8(b, 0); /* unused bits */
    hb_buf_append(b, k->point, k->point_len);
}

int ssh_pem_write_ec(const void *section, size_t len, char **text,
                     size_t *text_len)
{
    struct hb_buf der = HB_BUF_INIT;
    struct ec_key k;
    int rc = read_section(section, len, &k);

    if (rc == 0)
        rc = hb_buf_reserve(&der, DER_MAX);
    if (rc < 0)
        return rc;
    put_key(&der, &k);
    rc = ssh_pem_write("EC PRIVATE KEY", hb_buf_data(&der), hb_buf_len(&der),
                       text, text_len);
    sodium_memzero(hb_buf_data(&der), hb_buf_len(&der));
    hb_buf_free(&der);
    return rc;
}
