/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between an agent and hvd-pmix.  The input is a type and a
 * payload.  What a decoder accepts, the encoder gives back byte for byte, so
 * every length and range was checked alike on both sides.
 */
#include "lib/protocol/pmix_wire.h"
#include "tests/fuzz/fuzz.h"

static void check_same(const struct hb_buf *made, uint8_t type, const void *p,
                       size_t len)
{
    struct frame f;

    FUZZ_CHECK(frame_decode(made, FRAME_PAYLOAD_MAX, &f, NULL) == 1);
    FUZZ_CHECK(f.type == type && f.len == len);
    FUZZ_CHECK(len == 0 || memcmp(f.payload, p, len) == 0);
}

static void take_setup(const void *p, size_t len)
{
    struct hb_buf made = HB_BUF_INIT;
    struct pmix_setup m;

    if (pmix_wire_decode_setup(p, len, &m) < 0) {
        FUZZ_CHECK(!m.host_of && !m.hosts.items);
        return;
    }
    FUZZ_CHECK(m.size > 0 && m.host_index < m.hosts.count);
    for (uint32_t i = 0; i < m.size; i++)
        FUZZ_CHECK(m.host_of[i] < m.hosts.count);
    FUZZ_CHECK(pmix_wire_encode_setup(&made, &m) == 0);
    check_same(&made, PMIX_WIRE_SETUP, p, len);
    hb_buf_free(&made);
    pmix_setup_fini(&m);
}

static void take_ready(const void *p, size_t len)
{
    struct hb_buf made = HB_BUF_INIT;
    struct pmix_ready m;

    if (pmix_wire_decode_ready(p, len, &m) < 0) {
        FUZZ_CHECK(!m.ranks && m.count == 0);
        return;
    }
    for (uint32_t i = 0; i < m.count; i++)
        for (size_t j = 0; j < m.ranks[i].env.count; j++)
            FUZZ_CHECK(strchr(m.ranks[i].env.items[j], '='));
    FUZZ_CHECK(pmix_wire_encode_ready(&made, &m) == 0);
    check_same(&made, PMIX_WIRE_READY, p, len);
    hb_buf_free(&made);
    pmix_ready_fini(&m);
}

static void take_item(uint8_t type, const void *p, size_t len)
{
    struct hb_buf made = HB_BUF_INIT;
    struct pmix_wire_item m;

    if (pmix_wire_decode(type, p, len, &m) < 0) {
        FUZZ_CHECK(m.len == 0);
        return;
    }
    FUZZ_CHECK(m.len <= PMIX_WIRE_DATA_MAX);
    FUZZ_CHECK(pmix_wire_encode(&made, type, &m) == 0);
    check_same(&made, type, p, len);
    hb_buf_free(&made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t type;
    char *copy;

    if (size < 1)
        return 0;
    type = data[0];
    copy = fuzz_copy(data + 1, size - 1);
    if (type == PMIX_WIRE_SETUP)
        take_setup(copy, size - 1);
    else if (type == PMIX_WIRE_READY)
        take_ready(copy, size - 1);
    else
        take_item(type, copy, size - 1);
    free(copy);
    return 0;
}
