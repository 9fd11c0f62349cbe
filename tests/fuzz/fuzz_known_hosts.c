/* SPDX-License-Identifier: Apache-2.0 */
/* known_hosts: a key that is listed is judged as its marker says, and a line
 * that is written for it is read again. */
#include "lib/transport/known_hosts.h"
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct known_hosts k = KNOWN_HOSTS_INIT;
    struct hb_buf list = HB_BUF_INIT;
    char *text = fuzz_copy(data, size);

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
