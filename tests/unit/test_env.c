/* SPDX-License-Identifier: Apache-2.0 */
/* lib/base/env.h: numbers, switches, durations, sizes and knobs. */
#include "lib/base/env.h"
#include "runtime/core/world/launcher.h"
#include "tests/unit/unit.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(test_i64_good)
{
    static const struct {
        const char *s;
        int64_t v;
    } cases[] = {{"0", 0},
                 {"-0", 0},
                 {"007", 7},
                 {"-12", -12},
                 {"9223372036854775807", INT64_MAX},
                 {"-9223372036854775808", INT64_MIN}};
    size_t i;
    int64_t v;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(
            hb_parse_i64(cases[i].s, INT64_MIN, INT64_MAX, &v, NULL), 0);
        ck_assert(v == cases[i].v);
    }
}
END_TEST

START_TEST(test_i64_bad)
{
    static const char *const bad[] = {"",
                                      " 1",
                                      "1 ",
                                      "+1",
                                      "1x",
                                      "0x10",
                                      "1.0",
                                      "1e3",
                                      "-",
                                      "--1",
                                      "\n1",
                                      "1\n2",
                                      "9223372036854775808"};
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct hb_error err = HB_ERROR_INIT;
        int64_t v = 77;

        ck_assert_int_eq(hb_parse_i64(bad[i], INT64_MIN, INT64_MAX, &v, &err),
                         -HVD_EINVAL);
        ck_assert(v == 77);
        ck_assert_int_eq(err.status, -HVD_EINVAL);
        ck_assert_str_ne(err.text, "");
    }
}
END_TEST

START_TEST(test_i64_range_and_texts)
{
    struct hb_error err = HB_ERROR_INIT;
    int64_t v = 0;

    ck_assert_int_eq(hb_parse_i64("1", 1, 10, &v, &err), 0);
    ck_assert_int_eq(hb_parse_i64("10", 1, 10, &v, &err), 0);
    ck_assert_int_eq(hb_parse_i64("11", 1, 10, &v, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text,
                     "11 is out of range; give a number from 1 to 10");
    hb_error_clear(&err);
    ck_assert_int_eq(hb_parse_i64("0", 1, 10, &v, &err), -HVD_EINVAL);
    hb_error_clear(&err);
    ck_assert_int_eq(hb_parse_i64("two", 1, 10, &v, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text,
                     "'two' is not a whole number; give one from 1 to 10");
    ck_assert(v == 10);
}
END_TEST

START_TEST(test_double)
{
    static const char *const bad[] = {"",    "x",     "1,5", "nan",
                                      "inf", "0x1p3", "1e",  " 1",
                                      "1 ",  "1e999", "--1", "1.2.3"};
    struct hb_error err = HB_ERROR_INIT;
    double v = 5;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(hb_parse_double(bad[i], -1e300, 1e300, &v, NULL),
                         -HVD_EINVAL);
    ck_assert_double_eq(v, 5);
    ck_assert_int_eq(hb_parse_double("-1.5e2", -1e3, 1e3, &v, NULL), 0);
    ck_assert_double_eq(v, -150);
    ck_assert_int_eq(hb_parse_double(".5", 0, 1, &v, NULL), 0);
    ck_assert_double_eq(v, 0.5);
    ck_assert_int_eq(hb_parse_double("1.5", 0, 1, &v, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text,
                     "1.5 is out of range; give a number from 0 to 1");
}
END_TEST

/* A locale with a decimal comma, where installed, changes nothing. */
START_TEST(test_double_ignores_the_locale)
{
    double v;

    setlocale(LC_ALL, "de_DE.UTF-8");
    ck_assert_int_eq(hb_parse_double("1.5", 0, 2, &v, NULL), 0);
    ck_assert_double_eq(v, 1.5);
    ck_assert_int_eq(hb_parse_double("1,5", 0, 2, &v, NULL), -HVD_EINVAL);
    setlocale(LC_ALL, "C");
}
END_TEST

START_TEST(test_bool)
{
    static const char *const yes[] = {"1", "yes", "true", "ON", "Yes"};
    static const char *const no[] = {"0", "no", "FALSE", "off"};
    static const char *const bad[] = {"", "2", "y", "yes ", "enable"};
    struct hb_error err = HB_ERROR_INIT;
    size_t i;
    int v;

    for (i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        v = 7;
        ck_assert_int_eq(hb_parse_bool(yes[i], &v, NULL), 0);
        ck_assert_int_eq(v, 1);
    }
    for (i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        ck_assert_int_eq(hb_parse_bool(no[i], &v, NULL), 0);
        ck_assert_int_eq(v, 0);
    }
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(hb_parse_bool(bad[i], &v, NULL), -HVD_EINVAL);
    hb_parse_bool("maybe", &v, &err);
    ck_assert_ptr_nonnull(strstr(err.text, "'maybe' is neither"));
    ck_assert_int_eq(v, 0);
}
END_TEST

START_TEST(test_duration)
{
    static const struct {
        const char *s;
        int64_t ms;
    } good[] = {{"0", 0},       {"30", 30000},  {"1.5", 1500},
                {"500ms", 500}, {"2m", 120000}, {"1h", 3600000},
                {"1.1s", 1100}, {"0.0001", 1},  {"0.2ms", 1},
                {"0.0", 0},     {"1.6ms", 2},   {"876000h", 3153600000000},
                {".25s", 250},  {"2.s", 2000}};
    static const char *const bad[] = {"",
                                      "s",
                                      "-1",
                                      "1 s",
                                      "1S",
                                      "1d",
                                      "1e3s",
                                      "1.2.3",
                                      ".",
                                      "1ms2",
                                      "inf",
                                      "876001h",
                                      "99999999999999999"};
    struct hb_error err = HB_ERROR_INIT;
    int64_t v = 3;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(hb_parse_duration_ms(bad[i], &v, NULL) == -HVD_EINVAL,
                      "%s was accepted", bad[i]);
    ck_assert(v == 3);
    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_int_eq(hb_parse_duration_ms(good[i].s, &v, NULL), 0);
        ck_assert_msg(v == good[i].ms, "%s gave %" PRId64, good[i].s, v);
    }
    hb_parse_duration_ms("soon", &v, &err);
    ck_assert_ptr_nonnull(strstr(err.text, "'soon' is not a duration"));
}
END_TEST

START_TEST(test_size)
{
    static const struct {
        const char *s;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"65536", 65536},
                {"64K", 65536},
                {"64k", 65536},
                {"64KiB", 65536},
                {"2M", 2u << 20},
                {"1GiB", 1u << 30},
                {"3T", UINT64_C(3) << 40},
                {"18446744073709551615", UINT64_MAX},
                {"16777215T", UINT64_C(16777215) << 40}};
    static const char *const bad[] = {"",
                                      "K",
                                      "-1",
                                      "1.5K",
                                      "64KB",
                                      "64Ki",
                                      "1X",
                                      "1 K",
                                      "1KK",
                                      "1iB",
                                      "18446744073709551616",
                                      "16777216T"};
    struct hb_error err = HB_ERROR_INIT;
    uint64_t v = 3;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(hb_parse_size(bad[i], &v, NULL) == -HVD_EINVAL,
                      "%s was accepted", bad[i]);
    ck_assert(v == 3);
    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_int_eq(hb_parse_size(good[i].s, &v, NULL), 0);
        ck_assert_msg(v == good[i].bytes, "%s gave %" PRIu64, good[i].s, v);
    }
    hb_parse_size("64KB", &v, &err);
    ck_assert_ptr_nonnull(strstr(err.text, "'64KB' is not a size"));
}
END_TEST

START_TEST(test_knob_lookup)
{
    char name[200];

    unsetenv("HVD_TEST_KNOB");
    unsetenv("HOROVOD_TEST_KNOB");
    ck_assert_ptr_null(hb_knob("TEST_KNOB"));
    ck_assert_int_eq(hb_knob_is_horovods("TEST_KNOB"), 0);
    setenv("HOROVOD_TEST_KNOB", "theirs", 1);
    ck_assert_str_eq(hb_knob("TEST_KNOB"), "theirs");
    ck_assert_int_eq(hb_knob_is_horovods("TEST_KNOB"), 1);
    setenv("HVD_TEST_KNOB", "ours", 1);
    ck_assert_str_eq(hb_knob("TEST_KNOB"), "ours");
    ck_assert_int_eq(hb_knob_is_horovods("TEST_KNOB"), 0);
    setenv("HVD_TEST_KNOB", "", 1);
    ck_assert_str_eq(hb_knob("TEST_KNOB"), "theirs");
    setenv("HOROVOD_TEST_KNOB", "", 1);
    ck_assert_ptr_null(hb_knob("TEST_KNOB"));
    memset(name, 'N', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    ck_assert_ptr_null(hb_knob(name));
}
END_TEST

START_TEST(test_knob_values)
{
    struct hb_error err = HB_ERROR_INIT;
    int64_t n = 11;
    int flag = 1;

    ck_assert_int_eq(hb_knob_i64("TEST_N", 0, 99, &n, &err), 0);
    ck_assert_int_eq(hb_knob_bool("TEST_B", &flag, &err), 0);
    ck_assert(n == 11);
    ck_assert_int_eq(flag, 1);
    setenv("HVD_TEST_N", "42", 1);
    setenv("HOROVOD_TEST_B", "off", 1);
    ck_assert_int_eq(hb_knob_i64("TEST_N", 0, 99, &n, &err), 0);
    ck_assert_int_eq(hb_knob_bool("TEST_B", &flag, &err), 0);
    ck_assert(n == 42);
    ck_assert_int_eq(flag, 0);
    setenv("HVD_TEST_N", "100", 1);
    ck_assert_int_eq(hb_knob_i64("TEST_N", 0, 99, &n, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "HVD_TEST_N: 100 is out of range; give a "
                               "number from 0 to 99");
    hb_error_clear(&err);
    setenv("HOROVOD_TEST_B", "x", 1);
    ck_assert_int_eq(hb_knob_bool("TEST_B", &flag, &err), -HVD_EINVAL);
    ck_assert_int_eq(strncmp(err.text, "HOROVOD_TEST_B: 'x'", 19), 0);
    ck_assert(n == 42);
    ck_assert_int_eq(hb_knob_i64("TEST_N", 0, 99, &n, NULL), -HVD_EINVAL);
}
END_TEST

/* Exit codes of this program when it is run again. */
enum { READS_THEM = 10, READS_NONE, NOT_SECURE, NOT_TOLD };

static int answer(void)
{
    int reads = hb_knob("TEST_N") || hb_variable("HVD_TEST_N");
    struct hb_error err = HB_ERROR_INIT;
    struct hvd__launcher l;

    /* An ignored variable is reported as present. */
    if ((hb_ignored_variable("HVD_TEST_N") != NULL) == reads ||
        hb_ignored_variable("HVD_TEST_NONE"))
        return NOT_TOLD;
    /* A rank of mpirun that may not read its variables does not go on alone. */
    if (hvd__launcher_read(&l, &err) != (reads ? 1 : -HVD_EPERM))
        return NOT_TOLD;
    return reads ? READS_THEM : getauxval(AT_SECURE) ? READS_NONE : NOT_SECURE;
}

/* Runs a copy of this program, owned by root and with that mode, as another
 * user. */
static int answer_with_mode(mode_t mode)
{
    char path[] = "/tmp/hvd-env-XXXXXX", command[128];
    int fd = mkstemp(path), status;
    pid_t pid;

    ck_assert_int_ge(fd, 0);
    close(fd);
    snprintf(command, sizeof(command), "cat /proc/%d/exe >%s", (int)getpid(),
             path);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(chmod(path, mode), 0);
    pid = fork();
    if (pid == 0) {
        setenv("HVD_TEST_N", "1", 1);
        setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
        if (setgid(65534) == 0 && setuid(65534) == 0)
            execl(path, path, "answer", (char *)NULL);
        _exit(127);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    unlink(path);
    return WEXITSTATUS(status);
}

START_TEST(test_setuid_programs_read_no_variables)
{
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(answer_with_mode(0755), READS_THEM);
    /* nosuid file systems ignore the mode */
    if (system("findmnt -nT /tmp -O nosuid >/dev/null") != 0)
        ck_assert_int_eq(answer_with_mode(04755), READS_NONE);
}
END_TEST

int main(int argc, char *argv[])
{
    Suite *s;
    TCase *c;

    if (argc > 1 && strcmp(argv[1], "answer") == 0)
        return answer();
    s = suite_create("env");
    c = tcase_create("env");
    tcase_add_test(c, test_i64_good);
    tcase_add_test(c, test_i64_bad);
    tcase_add_test(c, test_i64_range_and_texts);
    tcase_add_test(c, test_double);
    tcase_add_test(c, test_double_ignores_the_locale);
    tcase_add_test(c, test_bool);
    tcase_add_test(c, test_duration);
    tcase_add_test(c, test_size);
    tcase_add_test(c, test_knob_lookup);
    tcase_add_test(c, test_knob_values);
    tcase_add_test(c, test_setuid_programs_read_no_variables);
    suite_add_tcase(s, c);
    return unit_run(s);
}
