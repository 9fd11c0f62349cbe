/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key files, and the keys that an ssh-agent lists.
 *
 * The first byte may say that the rest is the content of base64: 1 of an
 * OpenSSH key file, 3 of a public key, 4 the section of an ECDSA key, 5 a key
 * as ssh-add sends it.  Any other input is a file as it is.
 */
#include "lib/base/alloc.h"
#include "lib/base/buf.h"
#include "lib/ssh/keys/ssh_agent.h"
#include "lib/ssh/keys/ssh_key.h"
#include "lib/ssh/keys/ssh_pem.h"
#include "lib/ssh/known_hosts.h"
#include "tests/fuzz/fuzz.h"

#include <sodium.h>

static void check_key(const struct ssh_key *k)
{
    FUZZ_CHECK(k->blob || k->text);
    FUZZ_CHECK(!k->text || strlen(k->text) == k->text_len);
    FUZZ_CHECK(!k->blob || k->type[0]);
}

static void check_file(const char *text, size_t size)
{
    struct ssh_key k = SSH_KEY_INIT;

    if (ssh_key_parse(text, size, &k) == 0)
        check_key(&k);
    ssh_key_free(&k);
}

static void check_list(const char *bytes, size_t size)
{
    struct ssh_agent_keys keys = {NULL, 0};

    if (ssh_agent_parse_keys(bytes, size, &keys) == 0)
        for (size_t i = 0; i < keys.count; i++)
            FUZZ_CHECK(keys.items[i].len > 0);
    ssh_agent_keys_free(&keys);
}

/* Reads the bytes, at least one, as a key file: encoded, with header and
 * footer.  OpenSSL writes no file without content. */
static void check_container(const void *bytes, size_t size)
{
    char *text;
    size_t len;

    FUZZ_CHECK(ssh_pem_write("OPENSSH PRIVATE KEY", bytes, size, &text, &len) ==
               0);
    check_file(text, len);
    hb_free(text);
}

/* Reads the bytes as a .pub file: "TYPE BASE64". */
static void check_public(const uint8_t *data, size_t size)
{
    size_t max =
        sodium_base64_encoded_len(size, sodium_base64_VARIANT_ORIGINAL);
    char *base64 = malloc(max), type[SSH_KEY_TYPE_MAX];
    struct hb_buf line = HB_BUF_INIT;
    struct ssh_key k = SSH_KEY_INIT;
    uint32_t n = size < 4 ? 0 : (uint32_t)data[2] << 8 | (uint32_t)data[3];

    FUZZ_CHECK(base64);
    sodium_bin2base64(base64, max, data, size, sodium_base64_VARIANT_ORIGINAL);
    if (n > 0 && n < sizeof(type) && n <= size - 4) {
        memcpy(type, data + 4, n);
        type[n] = '\0';
        FUZZ_CHECK(hb_buf_printf(&line, "%s %s comment", type, base64) == 0);
        if (ssh_key_parse_public(hb_buf_data(&line), hb_buf_len(&line), &k) ==
            0) {
            FUZZ_CHECK(k.blob_len == size && memcmp(k.blob, data, size) == 0);
            FUZZ_CHECK(!k.text);
        }
    }
    ssh_key_free(&k);
    hb_buf_free(&line);
    free(base64);
}

static void check_ec(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size), *text;
    size_t len;

    if (ssh_pem_write_ec(copy, size, &text, &len) == 0) {
        FUZZ_CHECK(strlen(text) == len);
        check_file(text, len);
        hb_free(text);
    }
    free(copy);
}

/* Reads the bytes as a private key whose public part is unknown. */
static void check_private(const uint8_t *data, size_t size)
{
    struct ssh_key k = SSH_KEY_INIT, again = SSH_KEY_INIT;
    char *copy = fuzz_copy(data, size);

    k.encrypted = 1;
    if (ssh_key_set_private(&k, copy, size) == 0) {
        FUZZ_CHECK(!k.encrypted && k.text);
        FUZZ_CHECK(strlen(k.text) == k.text_len);
        if (k.text_len < SSH_KEY_FILE_MAX)
            FUZZ_CHECK(ssh_key_parse(k.text, k.text_len, &again) == 0 &&
                       !again.encrypted);
    }
    ssh_key_free(&again);
    ssh_key_free(&k);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size > 1 && data[0] == 1) {
        check_container(data + 1, size - 1);
    } else if (size > 0 && data[0] == 3) {
        check_public(data + 1, size - 1);
    } else if (size > 0 && data[0] == 4) {
        check_ec(data + 1, size - 1);
    } else if (size > 0 && data[0] == 5) {
        check_private(data + 1, size - 1);
    } else {
        text = fuzz_copy(data, size);
        check_file(text, size);
        check_list(text, size);
        free(text);
    }
    return 0;
}
