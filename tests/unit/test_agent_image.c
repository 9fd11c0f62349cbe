/* SPDX-License-Identifier: Apache-2.0 */
/* lib/remote/agent_image.h and the hash that names an agent. */
#include "lib/remote/agent_image.h"
#include "tests/unit/unit.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

static char path[64];
static struct hb_error err;

static void setup(void)
{
    snprintf(path, sizeof(path), "/tmp/hvd-test-image.XXXXXX");
    close(mkstemp(path));
    hb_error_clear(&err);
}

static void teardown(void)
{
    unlink(path);
}

static void fill(const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_TRUNC);

    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

/* BLAKE2b-128 of "abc" and of no bytes. */
START_TEST(hashes)
{
    char hash[AGENT_HASH_HEX];
    int fd;

    agent_hash("abc", 3, hash);
    ck_assert_str_eq(hash, "cf4ab791c62b8d2b2109c90275287816");
    agent_hash("", 0, hash);
    ck_assert_str_eq(hash, "cae66941d9efbd404e4d88758ea67670");
    fill("abc", 3);
    fd = open(path, O_RDONLY);
    ck_assert_int_eq(agent_hash_fd(fd, hash), 0);
    ck_assert_str_eq(hash, "cf4ab791c62b8d2b2109c90275287816");
    close(fd);
    ck_assert_int_ne(agent_hash_fd(fd, hash), 0);
}
END_TEST

START_TEST(reads)
{
    struct agent_image image = AGENT_IMAGE_INIT;

    fill("abc", 3);
    ck_assert_int_eq(agent_image_read(path, &image, &err), 0);
    ck_assert_uint_eq(image.len, 3);
    ck_assert_int_eq(memcmp(image.bytes, "abc", 3), 0);
    ck_assert_str_eq(image.hash, "cf4ab791c62b8d2b2109c90275287816");
    ck_assert_str_eq(image.cpu, "*");
    agent_image_free(&image);
    agent_image_free(&image);
}
END_TEST

static const char *cpu(unsigned char class, unsigned char data, unsigned hi,
                       unsigned lo)
{
    unsigned char header[sizeof(Elf64_Ehdr)] = {0x7f, 'E',   'L',
                                                'F',  class, data};
    struct agent_image image = AGENT_IMAGE_INIT;

    header[data == ELFDATA2MSB ? 18 : 19] = (unsigned char)hi;
    header[data == ELFDATA2MSB ? 19 : 18] = (unsigned char)lo;
    fill(header, sizeof(header));
    ck_assert_int_eq(agent_image_read(path, &image, &err), 0);
    agent_image_free(&image);
    return image.cpu;
}

START_TEST(knows_cpu_types)
{
    ck_assert_str_eq(cpu(ELFCLASS64, ELFDATA2LSB, 0, EM_X86_64),
                     "x86_64|amd64");
    ck_assert_str_eq(cpu(ELFCLASS32, ELFDATA2LSB, 0, EM_386),
                     "i?86|x86_64|amd64");
    ck_assert_str_eq(cpu(ELFCLASS64, ELFDATA2LSB, 0, EM_AARCH64),
                     "aarch64|arm64");
    ck_assert_str_eq(cpu(ELFCLASS64, ELFDATA2MSB, 0, EM_S390), "s390x");
    ck_assert_str_eq(cpu(ELFCLASS64, ELFDATA2LSB, 1, EM_LOONGARCH & 255),
                     "loongarch64");
    ck_assert_str_eq(cpu(ELFCLASS32, ELFDATA2LSB, 0, EM_X86_64), "*");
    ck_assert_str_eq(cpu(ELFCLASS64, ELFDATA2LSB, 200, 200), "*");
}
END_TEST

/* A program that runs here is built for what uname reports, or for one of
 * those. */
START_TEST(knows_its_own)
{
    struct agent_image image = AGENT_IMAGE_INIT;
    struct utsname name;

    uname(&name);
    ck_assert_int_eq(agent_image_read("/proc/self/exe", &image, &err), 0);
    ck_assert_msg(strcmp(image.cpu, "*") == 0 ||
                      strstr(image.cpu, name.machine) != NULL,
                  "%s", image.cpu);
    agent_image_free(&image);
}
END_TEST

START_TEST(truncated_header)
{
    struct agent_image image = AGENT_IMAGE_INIT;

    fill("\x7f"
         "ELF\2\1",
         6);
    ck_assert_int_eq(agent_image_read(path, &image, &err), 0);
    ck_assert_str_eq(image.cpu, "*");
    agent_image_free(&image);
}
END_TEST

static void refused(const char *name, int status, const char *text)
{
    struct agent_image image = AGENT_IMAGE_INIT;

    hb_error_clear(&err);
    ck_assert_int_eq(agent_image_read(name, &image, &err), -status);
    ck_assert_msg(strstr(err.text, text) && strstr(err.text, name), "%s",
                  err.text);
    ck_assert_ptr_null(image.bytes);
}

START_TEST(what_is_no_agent)
{
    refused("/nonexistent/hvd-agent", HVD_ENOENT, "No such file");
    refused("/tmp", HVD_ESYSTEM, "Exec format error");
    refused("/dev/null", HVD_ESYSTEM, "Exec format error");
    refused(path, HVD_ESYSTEM, "Exec format error");
    ck_assert_int_eq(truncate(path, (off_t)AGENT_IMAGE_MAX + 1), 0);
    refused(path, HVD_ESYSTEM, "File too large");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("agent_image");
    TCase *tc = tcase_create("all");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, hashes);
    tcase_add_test(tc, reads);
    tcase_add_test(tc, knows_cpu_types);
    tcase_add_test(tc, knows_its_own);
    tcase_add_test(tc, truncated_header);
    tcase_add_test(tc, what_is_no_agent);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
