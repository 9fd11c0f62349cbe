/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main program of a fuzzer that only replays: passes each file named on the
 * command line to LLVMFuzzerTestOneInput once.  `make fuzz` links libFuzzer
 * instead.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns 0, or -1 with errno.  The input is in a block of exactly its size, so
 * that a sanitizer notices the first byte read past its end. */
static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    long size;
    int rc = -1;

    if (!f || fseek(f, 0, SEEK_END) < 0 || (size = ftell(f)) < 0)
        goto out;
    rewind(f);
    data = malloc(size ? (size_t)size : 1);
    if (!data || fread(data, 1, (size_t)size, f) != (size_t)size)
        goto out;
    LLVMFuzzerTestOneInput(data, (size_t)size);
    rc = 0;
out:
    free(data);
    if (f)
        fclose(f);
    return rc;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (replay(argv[i]) < 0) {
            perror(argv[i]);
            return 1;
        }
    }
    printf("%d inputs\n", argc - 1);
    return argc > 1 ? 0 : 1;
}
