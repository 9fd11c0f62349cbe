/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encrypted key files: the input is the decrypted content.  Few inputs run in a
 * second, as bcrypt is slow on purpose.
 */
#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/ssh/keys/bcrypt_pbkdf.h"
#include "lib/ssh/keys/ssh_key.h"
#include "lib/ssh/keys/ssh_pem.h"
#include "tests/fuzz/fuzz.h"

#include <openssl/evp.h>

enum { AES_KEY_BYTES = 32, AES_BLOCK_BYTES = 16 };

static const char phrase[] = "open";
static const char salt[] = "0123456789abcdef";

static void put(struct hb_buf *out, const void *bytes, size_t len)
{
    int rc = hb_buf_put_u32(out, (uint32_t)len);

    FUZZ_CHECK(rc == 0 && hb_buf_append(out, bytes, len) == 0);
}

/* Returns the key for the passphrase above; computed once, as bcrypt is
 * slow. */
static const unsigned char *section_key(void)
{
    static unsigned char key[AES_KEY_BYTES + AES_BLOCK_BYTES];
    static int found;

    if (!found)
        FUZZ_CHECK(bcrypt_pbkdf(phrase, strlen(phrase), salt, strlen(salt), 1,
                                key, sizeof(key)) == 0);
    found = 1;
    return key;
}

static void put_encrypted(const uint8_t *data, size_t size, struct hb_buf *out)
{
    static const char magic[] = "openssh-key-v1";
    static const char blob[] = "\0\0\0\013ssh-ed25519\0\0\0\1x";
    const unsigned char *key = section_key();
    struct hb_buf options = HB_BUF_INIT;
    unsigned char *section = malloc(size + 1);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n;

    FUZZ_CHECK(section && ctx);
    FUZZ_CHECK(EVP_EncryptInit_ex(ctx, EVP_aes_256_ctr(), NULL, key,
                                  key + AES_KEY_BYTES));
    FUZZ_CHECK(EVP_EncryptUpdate(ctx, section, &n, data, (int)size));
    EVP_CIPHER_CTX_free(ctx);
    put(&options, salt, strlen(salt));
    FUZZ_CHECK(hb_buf_put_u32(&options, 1) == 0);
    FUZZ_CHECK(hb_buf_append(out, magic, sizeof(magic)) == 0);
    put(out, "aes256-ctr", 10);
    put(out, "bcrypt", 6);
    put(out, hb_buf_data(&options), hb_buf_len(&options));
    FUZZ_CHECK(hb_buf_put_u32(out, 1) == 0);
    put(out, blob, sizeof(blob) - 1);
    put(out, section, size);
    free(section);
    hb_buf_free(&options);
}

/* Decryption succeeds only if the section begins with the same number twice,
 * and only with the right passphrase. */
static void check_decryption(const uint8_t *data, size_t size)
{
    struct ssh_key k = SSH_KEY_INIT;
    struct hb_buf container = HB_BUF_INIT;
    int twice = size >= 8 && memcmp(data, data + 4, 4) == 0;
    char *text;
    size_t len;
    int rc;

    put_encrypted(data, size, &container);
    FUZZ_CHECK(ssh_pem_write("OPENSSH PRIVATE KEY", hb_buf_data(&container),
                             hb_buf_len(&container), &text, &len) == 0);
    if (len < SSH_KEY_FILE_MAX && ssh_key_parse(text, len, &k) == 0) {
        FUZZ_CHECK(k.encrypted);
        rc = ssh_key_decrypt(&k, phrase);
        FUZZ_CHECK(rc != 0 || (twice && !k.encrypted));
        FUZZ_CHECK(rc != -HVD_EPERM || !twice);
        FUZZ_CHECK(k.text && strlen(k.text) == k.text_len);
    }
    ssh_key_free(&k);
    hb_free(text);
    hb_buf_free(&container);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_decryption(data, size);
    return 0;
}
