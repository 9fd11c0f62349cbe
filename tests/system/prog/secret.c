/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the copies of a job's secret in the memory of processes:
 *
 *     secret JOB_ID HVDRUN_PID PID...
 *
 * Prints for each PID the number of copies as bytes, and as hex digits.  The
 * secret is the 32 bytes after the job's id in hvdrun's struct job_config.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ID_BYTES = 33, SECRET_BYTES = 32 };

static unsigned char secret[SECRET_BYTES];
static char hex[2 * SECRET_BYTES + 1];
static const char *job_id;
static int found, raw_count, hex_count;

static void look_for_secret(const unsigned char *p, size_t len)
{
    for (size_t i = 0; i + ID_BYTES + SECRET_BYTES <= len; i++) {
        const unsigned char *s = p + i + ID_BYTES;
        int large = 0;

        if (memcmp(p + i, job_id, ID_BYTES) != 0)
            continue;
        for (int k = 0; k < SECRET_BYTES; k++)
            large += s[k] >= 0x80;
        if (large < 4) /* other copies of the id are followed by text, or
                        * zeros */
            continue;
        memcpy(secret, s, SECRET_BYTES);
        found = 1;
    }
}

static void count(const unsigned char *p, size_t len)
{
    for (size_t i = 0; i + SECRET_BYTES <= len; i++) {
        raw_count += memcmp(p + i, secret, SECRET_BYTES) == 0;
        hex_count += i + sizeof(hex) - 1 <= len &&
                     memcmp(p + i, hex, sizeof(hex) - 1) == 0;
    }
}

/* Calls look for each part of the process's memory that can be written. */
static void walk(const char *pid, void (*look)(const unsigned char *, size_t))
{
    char path[64], line[512];
    unsigned long long from, to;
    FILE *maps;
    int mem;

    snprintf(path, sizeof(path), "/proc/%s/mem", pid);
    mem = open(path, O_RDONLY);
    snprintf(path, sizeof(path), "/proc/%s/maps", pid);
    maps = fopen(path, "r");
    if (mem < 0 || !maps) {
        perror(path);
        exit(99);
    }
    while (fgets(line, sizeof(line), maps)) {
        unsigned char *p;
        ssize_t n;

        if (sscanf(line, "%llx-%llx rw-p", &from, &to) != 2 ||
            !strstr(line, "rw-p"))
            continue;
        p = malloc(to - from);
        n = p ? pread(mem, p, to - from, (off_t)from) : 0;
        if (n > 0)
            look(p, (size_t)n);
        free(p);
    }
    fclose(maps);
    close(mem);
}

int main(int argc, char **argv)
{
    if (argc < 4 || strlen(argv[1]) != ID_BYTES - 1)
        return 99;
    job_id = argv[1];
    walk(argv[2], look_for_secret);
    if (!found) {
        fprintf(stderr, "secret: none behind the job's id\n");
        return 99;
    }
    for (int i = 0; i < SECRET_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", secret[i]);
    for (int i = 3; i < argc; i++) {
        raw_count = hex_count = 0;
        walk(argv[i], count);
        printf("%d %d\n", raw_count, hex_count);
    }
    return 0;
}
