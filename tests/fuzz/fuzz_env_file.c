/* SPDX-License-Identifier: Apache-2.0 */
/* --env-file: every item read is NAME=VALUE. */
#include "cmd/hvdrun/options/env_file.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hb_strv items = HB_STRV_INIT;
    struct hb_error err = HB_ERROR_INIT;
    char *text = fuzz_copy(data, size);
    int rc;

    rc = env_file_parse("f", text, size, &items, &err);
    free(text);
    fuzz_check_error(rc, &err);
    for (size_t i = 0; i < items.count; i++) {
        const char *equals = strchr(items.items[i], '=');

        FUZZ_CHECK(equals != NULL);
        FUZZ_CHECK(
            env_name_ok(items.items[i], (size_t)(equals - items.items[i])));
    }
    hb_strv_free(&items);
    return 0;
}
