/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host's answers to the bootstrap.  The first byte is the size of the pieces
 * in which they arrive; a bit of the second says whether there is an agent to
 * send.  "M " stands for the marker.
 *
 * Another bit of the second byte means: two bytes follow, the length of the
 * noise, for which the rest is repeated.  If the noise is within the limit, the
 * agent must start after it, else not.
 */
#include "lib/remote/bootstrap.h"
#include "tests/fuzz/fuzz.h"

static char bytes[] = "the agent's bytes";

static void put_input(struct hb_buf *out, const uint8_t *p, size_t len)
{
    int rc = 0;

    for (size_t i = 0; i < len && rc == 0; i++)
        if (p[i] == 'M' && i + 1 < len && p[i + 1] == ' ')
            rc = hb_buf_puts(out, "hvd:0123456789abcdef0123456789abcdef");
        else
            rc = hb_buf_append(out, p + i, 1);
    FUZZ_CHECK(rc == 0);
}

static void check_bounds(const struct bootstrap *b)
{
    FUZZ_CHECK(hb_buf_len(&b->noise) <= BOOTSTRAP_NOISE_MAX);
    FUZZ_CHECK(b->searched <= hb_buf_len(&b->in));
    FUZZ_CHECK(!b->image || b->sent <= b->image->len);
    FUZZ_CHECK(b->pushes <= BOOTSTRAP_PUSH_MAX);
    if (b->state == BOOTSTRAP_RUNNING)
        FUZZ_CHECK(memcmp(hb_buf_data(&b->in), "hvD1", 4) == 0);
}

/* Noise within the limit, its line end included, must not hinder the start; one
 * byte more must end it. */
static void check_limit(const uint8_t *data, size_t size, size_t step)
{
    static const char run[] = "\nhvd:0123456789abcdef0123456789abcdef run\n";
    static char noise[BOOTSTRAP_NOISE_MAX + 1];
    size_t len = 1 + ((size_t)data[0] << 8 | data[1]), at = 0;
    struct hb_error err = HB_ERROR_INIT;
    struct bootstrap b;
    int rc = 0;

    for (size_t i = 0; i < len; i++)
        noise[i] = (char)data[2 + i % (size - 2)];
    if (memmem(noise, len, "hvD1", 4) || memmem(noise, len, "hvd:", 4))
        return;
    bootstrap_init(&b, NULL, "0123456789abcdef0123456789abcdef");
    for (step *= 64; at < len && rc == 0; at += step)
        rc = bootstrap_read(&b, noise + at, len - at < step ? len - at : step,
                            &err);
    if (rc == 0)
        rc = bootstrap_read(&b, run, strlen(run), &err);
    FUZZ_CHECK(rc == (len < BOOTSTRAP_NOISE_MAX ? 0 : -HVD_EPROTO));
    fuzz_check_error(rc, &err);
    if (rc == 0) {
        FUZZ_CHECK(b.state == BOOTSTRAP_STARTING);
        FUZZ_CHECK(bootstrap_read(&b, "hvD1", 4, &err) == 0);
        FUZZ_CHECK(b.state == BOOTSTRAP_RUNNING);
    }
    bootstrap_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct agent_image image = {bytes, sizeof(bytes) - 1, "beef", "*"};
    struct hb_error err = HB_ERROR_INIT;
    struct hb_buf in = HB_BUF_INIT;
    struct bootstrap b;
    const char *next;
    size_t step;
    int rc = 0;

    if (size < 2)
        return 0;
    step = data[0] ? data[0] : 1;
    if (data[1] & 2 && size < 5)
        return 0;
    if (data[1] & 2) {
        check_limit(data + 2, size - 2, step);
        return 0;
    }
    bootstrap_init(&b, data[1] & 1 ? &image : NULL,
                   "0123456789abcdef0123456789abcdef");
    put_input(&in, data + 2, size - 2);
    while (rc == 0 && b.state != BOOTSTRAP_RUNNING && hb_buf_len(&in) > 0) {
        size_t len = hb_buf_len(&in) < step ? hb_buf_len(&in) : step;
        char *piece = fuzz_copy(hb_buf_data(&in), len);
        rc = bootstrap_read(&b, piece, len, &err);
        fuzz_check_error(rc, &err);
        check_bounds(&b);
        if (rc == 0)
            rc = bootstrap_stderr(&b, piece, len, &err);
        while (bootstrap_next(&b, step, &next) > 0)
            continue;
        free(piece);
        hb_buf_consume(&in, len);
    }
    FUZZ_CHECK((rc < 0) == (b.state == BOOTSTRAP_FAILED));
    hb_error_clear(&err);
    rc = bootstrap_ended(&b, "it ended", &err);
    fuzz_check_error(rc, &err);
    bootstrap_fini(&b);
    hb_buf_free(&in);
    return 0;
}
