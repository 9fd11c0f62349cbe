/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/machine/gpu_list.h: GPUs from fixture trees. */
#include "lib/agent/machine/gpu_list.h"
#include "lib/base/alloc.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#define INFO(minor, uuid)                                                   \
    "Model: \t\t NVIDIA H200\nIRQ:   \t\t 200\nGPU UUID: \t " uuid          \
    "\nVideo BIOS: \t 96.00\nDevice Minor: \t " #minor "\nGPU Excluded:\t " \
    "No\n"

static struct fixture fixture;

static void setup(void)
{
    fixture_open(&fixture);
}

static void teardown(void)
{
    fixture_close(&fixture);
}

static void make_gpu(const char *bus, const char *text)
{
    char path[128];

    snprintf(path, sizeof(path), "proc/driver/nvidia/gpus/%s/information", bus);
    fixture_file(&fixture, path, text);
}

static void make_three(void)
{
    make_gpu("0000:b1:00.0", INFO(2, "GPU-cc33-3"));
    make_gpu("0000:17:00.0", INFO(0, "GPU-aa11-1"));
    make_gpu("0000:65:00.0", INFO(1, "GPU-aa22-2"));
}

/* Compares what the local ranks in turn may see, until the GPUs are used up. */
static void expect(const char *visible, int per_rank, const char *expected)
{
    char text[512] = "";
    struct gpu_list l;

    gpu_list_read(fixture.root, visible, &l);
    for (int r = 0; (r + 1) * per_rank <= l.count; r++) {
        char *v = gpu_visible(&l, r, per_rank);

        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
                 r ? " " : "", v);
        hb_free(v);
    }
    ck_assert_str_eq(text, expected);
    gpu_list_fini(&l);
}

START_TEST(test_none)
{
    expect(NULL, 1, "");
    expect("0,1", 1, "");
}
END_TEST

START_TEST(test_driver_files_in_order_of_minor)
{
    make_three();
    expect(NULL, 1, "GPU-aa11-1 GPU-aa22-2 GPU-cc33-3");
    expect(NULL, 2, "GPU-aa11-1,GPU-aa22-2");
    expect(NULL, 4, "");
}
END_TEST

/* In a container only GPUs with a device node count: the driver may show all of
 * the host's. */
START_TEST(test_only_those_with_a_node)
{
    make_three();
    fixture_file(&fixture, "dev/nvidia2", "");
    expect(NULL, 1, "GPU-cc33-3");
    expect("0", 1, "GPU-cc33-3");
    fixture_file(&fixture, "dev/nvidia1", "");
    expect(NULL, 1, "GPU-aa22-2 GPU-cc33-3");
}
END_TEST

START_TEST(test_inherited_list)
{
    make_three();
    expect("2,0", 1, "GPU-cc33-3 GPU-aa11-1");
    expect("GPU-aa22-2", 1, "GPU-aa22-2");
    expect("GPU-c, 1", 1, "GPU-cc33-3 GPU-aa22-2");
    expect("GPU-aa", 1, "");          /* ambiguous */
    expect("1,9,0", 1, "GPU-aa22-2"); /* the list ends at an unknown GPU */
    expect("-1", 1, "");
    expect("", 1, "");
    expect("NoDevFiles", 1, "");
    expect("MIG-1234,0", 1, "MIG-1234 GPU-aa11-1");
}
END_TEST

START_TEST(test_unknown_uuid_gives_the_ordinal)
{
    make_gpu("0000:17:00.0", INFO(3, "GPU-x?"));
    make_gpu("0000:18:00.0", INFO(5, "GPU-yy"));
    expect(NULL, 1, "0 GPU-yy");
    expect("1,0", 1, "GPU-yy 0");
}
END_TEST

START_TEST(test_broken_information_is_skipped)
{
    make_gpu("0000:17:00.0", "");
    make_gpu("0000:18:00.0", "GPU UUID:\nDevice Minor:");
    make_gpu("0000:19:00.0", INFO(1, "GPU-bb"));
    expect(NULL, 1, "GPU-bb");
}
END_TEST

START_TEST(test_device_nodes)
{
    fixture_file(&fixture, "dev/nvidia1", "");
    fixture_file(&fixture, "dev/nvidia0", "");
    expect(NULL, 1, ""); /* no driver supports them */
    fixture_file(&fixture, "dev/nvidiactl", "");
    fixture_file(&fixture, "dev/nvidia-uvm", "");
    fixture_file(&fixture, "dev/nvidia12x", "");
    expect(NULL, 1, "0 1");
    expect("1", 1, "1");
}
END_TEST

/* A container with one of many GPUs: CUDA counts those that it can open. */
START_TEST(test_one_node_of_many)
{
    fixture_file(&fixture, "dev/nvidiactl", "");
    fixture_file(&fixture, "dev/nvidia3", "");
    expect(NULL, 1, "0");
    expect("0", 1, "0");
    expect("3", 1, "");
}
END_TEST

START_TEST(test_check)
{
    struct hb_error err = HB_ERROR_INIT;
    struct gpu_list l;

    make_three();
    gpu_list_read(fixture.root, NULL, &l);
    ck_assert_int_eq(gpu_check(&l, 3, 1, 0, &err), 0);
    ck_assert_int_eq(gpu_check(&l, 1, 3, 0, &err), 0);
    ck_assert_int_eq(gpu_check(&l, 2, 2, 0, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "2 ranks with 2 GPUs each need 4 GPUs, this "
                               "host has 3; use fewer ranks, or share them "
                               "with --oversubscribe-gpu");
    gpu_list_fini(&l);
}
END_TEST

START_TEST(test_check_shared)
{
    struct hb_error err = HB_ERROR_INIT;
    struct gpu_list l;

    make_three();
    gpu_list_read(fixture.root, NULL, &l);
    ck_assert_int_eq(gpu_check(&l, 1000, 3, 1, &err), 0);
    ck_assert_int_eq(gpu_check(&l, 1, 4, 1, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "a rank needs 4 GPUs, this host has 3; "
                               "nvidia-smi lists what its driver sees");
    gpu_list_fini(&l);
    gpu_list_read("/nonexistent", NULL, &l);
    hb_error_clear(&err);
    ck_assert_int_eq(gpu_check(&l, 1, 1, 1, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "a rank needs 1 GPU, this host has 0; "
                               "nvidia-smi lists what its driver sees");
    gpu_list_fini(&l);
}
END_TEST

/* Shared in turn: no rank gets a GPU twice, and after the last comes the
 * first. */
START_TEST(test_shared_in_turn)
{
    static const int expected[][2] = {{0, 1}, {2, 0}, {1, 2}, {0, 1}};
    struct gpu_list l;
    char *v;

    make_three();
    gpu_list_read(fixture.root, NULL, &l);
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(gpu_of(&l, r, 2, i), expected[r][i]);
    ck_assert_int_eq(gpu_of(&l, 100000, 1, 0), 100000 % 3);
    v = gpu_visible(&l, 1, 2);
    ck_assert_str_eq(v, "GPU-cc33-3,GPU-aa11-1");
    hb_free(v);
    gpu_list_fini(&l);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("gpu");
    TCase *t = tcase_create("gpu");

    tcase_add_unchecked_fixture(t, fixtures_setup, fixtures_teardown);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_none);
    tcase_add_test(t, test_driver_files_in_order_of_minor);
    tcase_add_test(t, test_only_those_with_a_node);
    tcase_add_test(t, test_inherited_list);
    tcase_add_test(t, test_unknown_uuid_gives_the_ordinal);
    tcase_add_test(t, test_broken_information_is_skipped);
    tcase_add_test(t, test_device_nodes);
    tcase_add_test(t, test_one_node_of_many);
    tcase_add_test(t, test_check);
    tcase_add_test(t, test_check_shared);
    tcase_add_test(t, test_shared_in_turn);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return unit_run(suite());
}
