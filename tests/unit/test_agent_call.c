/* SPDX-License-Identifier: Apache-2.0 */
/* A request to the job's store while the world runs: replies of any size, and
 * the end of the job behind a reply.  The test writes the agent's answer before
 * the call. */
#include "lib/base/sys/clock.h"
#include "runtime/core/world/agent_call.h"
#include "tests/unit/unit.h"

#include <check.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Makes an agent that has answered its first request with `len` bytes, and then
 * told that rank 1 is dead. */
static void answered(struct hvd__agent *a, int fds[2], size_t len)
{
    struct worker_abort dead = {.rank = 1, .text = "rank 1 is dead"};
    struct hb_buf out = HB_BUF_INIT;
    unsigned char *value = calloc(len, 1);
    struct rdv_reply reply = {.id = 1, .value = value, .len = len};

    ck_assert_ptr_nonnull(value);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds),
                     0);
    a->fd = fds[0];
    ck_assert_int_eq(rdv_encode_reply(&out, WORKER_RDV_REPLY, &reply), 0);
    ck_assert_int_eq(worker_encode_abort(&out, &dead), 0);
    ck_assert_int_eq(send(fds[1], hb_buf_data(&out), hb_buf_len(&out), 0),
                     (ssize_t)hb_buf_len(&out));
    hb_buf_free(&out);
    free(value);
}

static void call(size_t len)
{
    struct hvd__agent a = HVD__AGENT_INIT;
    struct rdv_request get = {.op = RDV_GET, .scope = "s", .key = "k"};
    struct hb_buf value = HB_BUF_INIT;
    struct hb_error err = HB_ERROR_INIT;
    int fds[2];

    answered(&a, fds, len);
    ck_assert_msg(hvd__agent_call(&a, &get, &value,
                                  hb_now_ns() + UINT64_C(10000000000),
                                  &err) == 0,
                  "%s", err.text);
    ck_assert_uint_eq(hb_buf_len(&value), len);
    ck_assert_msg(err.status == 0, "%s", err.text);
    /* The next one fails. */
    ck_assert_int_eq(hvd__agent_call(&a, &get, &value, hb_now_ns(), &err),
                     -HVD_EPEER);
    ck_assert_int_eq(err.rank, 1);
    hb_buf_free(&value);
    hvd__agent_close(&a);
    close(fds[1]);
}

START_TEST(test_reply_then_end)
{
    call(3);
}
END_TEST

/* Larger than any other message of the agent's. */
START_TEST(test_large_reply)
{
    call(WORKER_PAYLOAD_MAX + 20000);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("agent_call");
    TCase *tc = tcase_create("agent_call");

    tcase_set_timeout(tc, 30);
    tcase_add_test(tc, test_reply_then_end);
    tcase_add_test(tc, test_large_reply);
    suite_add_tcase(s, tc);
    return unit_run(s);
}
