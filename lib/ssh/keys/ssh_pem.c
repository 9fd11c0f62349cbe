/* SPDX-License-Identifier: Apache-2.0 */
/* PEM, by libcrypto; see ssh_pem.h. */

/* OpenSSL 3 deprecates EC_KEY, but OpenSSL 1.1 has nothing else. */
#define OPENSSL_API_COMPAT 0x10100000L
#include "lib/ssh/keys/ssh_pem.h"

#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/base/hvd_status.h"

#include <limits.h>
#include <openssl/ec.h>
#include <openssl/objects.h>
#include <openssl/pem.h>
#include <string.h>

/* Copies what was written to bio, which is wiped when it is freed. */
static int copy_text(BIO *bio, char **text, size_t *text_len)
{
    char *bytes;
    long n = BIO_get_mem_data(bio, &bytes);

    *text = n > 0 ? hb_strndup(bytes, (size_t)n) : NULL;
    *text_len = *text ? (size_t)n : 0;
    return *text ? 0 : -HVD_ENOMEM;
}

int ssh_pem_write(const char *label, const void *bytes, size_t len, char **text,
                  size_t *text_len)
{
    BIO *bio = BIO_new(BIO_s_mem());
    int rc = -HVD_ENOMEM;

    if (bio && len <= INT_MAX &&
        PEM_write_bio(bio, label, "", bytes, (long)len) > 0)
        rc = copy_text(bio, text, text_len);
    BIO_free(bio);
    return rc;
}

/* ---- Elliptic curves ---- */

struct ec_key {
    int curve; /* libcrypto's number; NID_undef: unknown */
    const unsigned char *point, *number;
    uint32_t point_len, number_len;
};

static int find_curve(const char *name, size_t len)
{
    static const struct {
        const char *name;
        int nid;
    } curves[] = {
        {"nistp256", NID_X9_62_prime256v1},
        {"nistp384", NID_secp384r1},
        {"nistp521", NID_secp521r1},
    };

    for (size_t i = 0; i < sizeof(curves) / sizeof(curves[0]); i++)
        if (name && len == strlen(curves[i].name) &&
            memcmp(curves[i].name, name, len) == 0)
            return curves[i].nid;
    return NID_undef;
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
    return r.bad || k->curve == NID_undef ? -HVD_EPROTO : 0;
}

int ssh_pem_write_ec(const void *section, size_t len, char **text,
                     size_t *text_len)
{
    struct ec_key k;
    int rc = read_section(section, len, &k);
    EC_KEY *ec = rc == 0 ? EC_KEY_new_by_curve_name(k.curve) : NULL;
    BIO *bio = ec ? BIO_new(BIO_s_mem()) : NULL;

    if (rc == 0 && !bio)
        rc = -HVD_ENOMEM;
    if (rc == 0 &&
        (!EC_KEY_oct2key(ec, k.point, k.point_len, NULL) ||
         !EC_KEY_oct2priv(ec, k.number, k.number_len) ||
         !PEM_write_bio_ECPrivateKey(bio, ec, NULL, NULL, 0, NULL, NULL)))
        rc = -HVD_EPROTO;
    if (rc == 0)
        rc = copy_text(bio, text, text_len);
    BIO_free(bio);
    EC_KEY_free(ec);
    return rc;
}
