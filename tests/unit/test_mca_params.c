/* SPDX-License-Identifier: Apache-2.0 */
/* lib/agent/wireup/pmix/mca_params.h, lib/agent/machine/fabric.h: what may be
 * added to a parameter of Open MPI, and on which host. */
#include "lib/agent/machine/fabric.h"
#include "lib/agent/wireup/pmix/mca_params.h"
#include "tests/unit/agent_util.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYSTEM "opt/mpi/etc/openmpi-mca-params.conf"
#define USER "home/.openmpi/mca-params.conf"

static struct fixture f;
static struct hb_strv env, rank_env;

static const char *at(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", f.root, name);
    return path;
}

static void setup(void)
{
    fixtures_setup();
    fixture_open(&f);
    fixture_file(&f, "opt/mpi/lib/libmpi.so.40", "");
    fixture_file(&f, SYSTEM, "# nothing\n");
    ck_assert_int_eq(hb_env_set(&env, "HOME", at("home")), 0);
}

static void teardown(void)
{
    hb_strv_free(&env);
    hb_strv_free(&rank_env);
    fixture_close(&f);
    fixtures_teardown();
}

/* Adds x and y to what is left out of mtl, by the library at that place. */
static void added_at(const char *library, const char *expected)
{
    static const char *const more[] = {"x", "y"};
    char path[256];
    const struct mca_search s = {f.root, library ? path : NULL, &env,
                                 &rank_env};
    char *list;

    snprintf(path, sizeof(path), "%s/%s", f.root, library ? library : "");
    list = mca_leave_out(&s, "mtl", more, 2);
    if (expected) {
        ck_assert_ptr_nonnull(list);
        ck_assert_str_eq(list, expected);
    } else {
        ck_assert_msg(!list, "%s", list);
    }
    hb_free(list);
}

static void added(const char *expected)
{
    added_at("opt/mpi/lib/libmpi.so.40", expected);
}

START_TEST(lists)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"", "^x,y"},
        {"pml = ^ucx\nmtl_base_verbose = 1\nmtlx = ofi\n# mtl = ofi\n", "^x,y"},
        {"mtl = ^ofi\n", "^ofi,x,y"},
        {"  mtl\t=^ofi \t\r\n", "^ofi,x,y"},
        {"mtl = ^y,ofi", "^y,ofi,x"},
        {"mtl = ^x,y", "^x,y"},
        {"mtl = ^xx,yy", "^xx,yy,x,y"},
        {"mtl = ^ofi\nmtl = ^portals4\n", "^portals4,x,y"},
        /* What is to be used, or cannot be told, is left alone. */
        {"mtl = ofi\n", NULL},
        {"mtl = \n", NULL},
        {"mtl = ^ofi # for a reason\n", NULL},
        {"mtl = \"^ofi\"\n", NULL},
        {"mtl = ^ofi\n-mca mtl psm2\n", NULL},
        {"mtl = ^ofi\n/* mtl = ^psm\n*/\n", NULL},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture_file(&f, SYSTEM, cases[i].text);
        added(cases[i].expected);
    }
}
END_TEST

/* The user's file counts more than the installation's. */
START_TEST(files)
{
    fixture_file(&f, SYSTEM, "mtl = ^ofi\n");
    fixture_file(&f, USER, "pml = ob1\n");
    added("^ofi,x,y");
    fixture_file(&f, USER, "mtl = ^portals4\n");
    added("^portals4,x,y");
    fixture_file(&f, USER, "mtl = psm2\n");
    added(NULL);
    unlink(at(USER));
    added("^ofi,x,y");
    ck_assert_int_eq(mkfifo(at(USER), 0600), 0);
    added(NULL);
}
END_TEST

START_TEST(long_files)
{
    static char text[80 << 10];

    memset(text, '#', sizeof(text) - 1);
    fixture_file(&f, SYSTEM, text);
    added(NULL);
    memcpy(text, "mtl = ^", 7);
    memset(text + 7, 'a', 1023);
    strcpy(text + 7 + 1023, "\n");
    fixture_file(&f, SYSTEM, text);
    text[7 + 1023] = '\0';
    strcat(text, ",x,y");
    added(strchr(text, '^'));
    memset(text + 7, 'a', 1024);
    strcpy(text + 7 + 1024, "\n");
    fixture_file(&f, SYSTEM, text);
    added(NULL);
}
END_TEST

/* Without all the files, nothing is known. */
START_TEST(places)
{
    char debian[] = "usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4";

    added_at(NULL, NULL);
    added_at("opt/mpi/lib/libmpi.so.20", NULL);
    unlink(at(SYSTEM));
    added(NULL);
    fixture_file(&f, debian, "");
    added_at(debian, NULL);
    fixture_file(&f, "etc/openmpi/openmpi-mca-params.conf", "mtl = ^ofi\n");
    added_at(debian, "^ofi,x,y");
    added(NULL); /* that file is not of this installation */
    fixture_file(&f, "usr/lib/openmpi/lib/libmpi.so.40", "");
    added_at("usr/lib/openmpi/lib/libmpi.so.40", NULL);
}
END_TEST

START_TEST(variables)
{
    static const char *const names[] = {
        "OMPI_MCA_mtl", "OMPI_MCA_mca_base_param_files",
        "OMPI_MCA_mca_base_envar_file_prefix", "OPAL_PREFIX"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct hb_strv *in = i % 2 ? &env : &rank_env;
        struct hb_strv others = HB_STRV_INIT;

        hb_must(hb_strv_add_all(&others, in->items));
        hb_must(hb_strv_addf(in, "%s=", names[i]));
        added(NULL);
        hb_strv_free(in);
        *in = others;
        added("^x,y");
    }
    hb_must(hb_env_set(&rank_env, "OMPI_MCA_mtl_base_verbose", "1"));
    added("^x,y");
    /* Whose file would it be? */
    hb_strv_free(&env);
    hb_must(hb_env_set(&env, "LANG", "C"));
    added(NULL);
    hb_must(hb_env_set(&rank_env, "HOME", at("home")));
    added("^x,y");
}
END_TEST

START_TEST(fabrics)
{
    static const char *const devices[] = {
        "sys/class/infiniband/mlx5_0/x", "dev/infiniband/uverbs0", "dev/hfi1_0",
        "dev/ipath", "sys/class/cxi/cxi0/x"};

    fixture_file(&f, "dev/null", "");
    fixture_file(&f, "sys/class/net/eth0/x", "");
    ck_assert_int_eq(mkdir(at("sys/class/infiniband"), 0755), 0);
    ck_assert_int_eq(fabric_present(f.root), 0);
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        fixture_file(&f, devices[i], "");
        ck_assert_msg(fabric_present(f.root), "%s", devices[i]);
        fixture_close(&f);
        fixture_open(&f);
        ck_assert_int_eq(fabric_present(f.root), 0);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mca_params");
    TCase *tc = tcase_create("all");

    suite_add_tcase(s, tc);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, lists);
    tcase_add_test(tc, files);
    tcase_add_test(tc, long_files);
    tcase_add_test(tc, places);
    tcase_add_test(tc, variables);
    tcase_add_test(tc, fabrics);
    return unit_run(s);
}
