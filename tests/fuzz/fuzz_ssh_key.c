/* SPDX-License-Identifier: Apache-2.0 */
/* Key files, and what an ssh-agent lists. */
#include "lib/transport/ssh_agent.h"
#include "lib/transport/ssh_key.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ssh_agent_keys keys = {NULL, 0};
    struct ssh_key k = SSH_KEY_INIT;
    char *text = fuzz_copy(data, size);
    int rc = ssh_key_parse(text, size, &k);

    if (rc == 0) {
        FUZZ_CHECK(k.blob || k.text);
        FUZZ_CHECK(!k.text || strlen(k.text) == k.text_len);
        FUZZ_CHECK(!k.blob || k.type[0]);
    }
    ssh_key_free(&k);
    if (ssh_agent_parse_keys(text, size, &keys) == 0)
        for (size_t i = 0; i < keys.count; i++)
            FUZZ_CHECK(keys.items[i].len > 0);
    ssh_agent_keys_free(&keys);
    free(text);
    return 0;
}
