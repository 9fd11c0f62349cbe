/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ssh's messages, jump hosts of a configuration, and --rsh templates.  The
 * first byte selects one.
 */
#include "lib/base/quote.h"
#include "lib/remote/rsh.h"
#include "lib/ssh/openssh.h"
#include "tests/fuzz/fuzz.h"

static void check_explain(const char *said)
{
    const struct openssh_options o = {
        .host = "n1", .user = "me", .port = 23, .known_hosts = "/a b"};
    struct hb_error err = HB_ERROR_INIT;
    int known = openssh_explain(said, &o, &err);

    FUZZ_CHECK(known == (err.status != 0));
    fuzz_check_error(err.status, &err);
}

/* Whatever the configuration contains, ssh gets one host, which is no
 * option. */
static void check_jump(const char *jump)
{
    const struct openssh_options o = {.host = "n1"};
    struct hb_error err = HB_ERROR_INIT;
    struct hb_strv argv = HB_STRV_INIT;
    int rc = openssh_jump_argv(&o, jump, "10.0.0.1", 22, &argv, &err);

    fuzz_check_error(rc, &err);
    if (rc == 0) {
        FUZZ_CHECK(argv.count >= 2);
        FUZZ_CHECK(strcmp(argv.items[argv.count - 2], "--") == 0);
        FUZZ_CHECK(argv.items[argv.count - 1][0] != '\0');
        for (size_t i = 0; i + 1 < argv.count; i++)
            if (strcmp(argv.items[i], "-l") == 0 ||
                strcmp(argv.items[i], "-p") == 0)
                FUZZ_CHECK(argv.items[i + 1][0] != '-' &&
                           argv.items[i + 1][0] != '\0');
    }
    hb_strv_free(&argv);
}

/* Words that are quoted and joined can be split into the same words. */
static void check_split(const char *text)
{
    struct hb_error err = HB_ERROR_INIT;
    struct hb_strv words = HB_STRV_INIT, again = HB_STRV_INIT;
    struct hb_buf joined = HB_BUF_INIT;
    int rc = rsh_split(text, &words, &err);

    fuzz_check_error(rc, &err);
    FUZZ_CHECK(hb_buf_puts(&joined, "") == 0);
    for (size_t i = 0; rc == 0 && i < words.count; i++) {
        FUZZ_CHECK(hb_quote_word(words.items[i], &joined) == 0);
        FUZZ_CHECK(hb_buf_putc(&joined, ' ') == 0);
    }
    if (rc == 0)
        FUZZ_CHECK(rsh_split(hb_buf_data(&joined), &again, &err) == 0);
    FUZZ_CHECK(rc != 0 || again.count == words.count);
    for (size_t i = 0; i < again.count; i++)
        FUZZ_CHECK(strcmp(words.items[i], again.items[i]) == 0);
    hb_strv_free(&words);
    hb_strv_free(&again);
    hb_buf_free(&joined);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size == 0)
        return 0;
    text = fuzz_string(data + 1, size - 1);
    if (data[0] == 'j')
        check_jump(text);
    else if (data[0] == 'r')
        check_split(text);
    else
        check_explain(text);
    free(text);
    return 0;
}
