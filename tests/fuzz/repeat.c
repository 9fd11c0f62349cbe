/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes libFuzzer reach the limits of parsers.  Small inputs are the fast ones,
 * so those that it keeps are small, and it would hardly ever grow one past a
 * limit of 64 KiB.  One mutation in 256 repeats a part of an input instead of
 * changing a few bytes: many lines, many fields, one long word.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
                               unsigned seed);

/* Returns a number below n from *seed, and changes *seed (a linear congruential
 * generator, of which the high bits are used). */
static size_t random_below(unsigned *seed, size_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (size_t)(((uint64_t)*seed * n) >> 32);
}

/* Inserts, after a random part of data, as many copies of that part as there is
 * room for, or for half, a quarter ... of that.  Returns the new size. */
static size_t repeat(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    size_t first = random_below(&seed, size);
    size_t len = 1 + random_below(&seed, size - first);
    size_t rest = size - first - len;
    size_t room = (max_size - size) >> random_below(&seed, 12);
    size_t added = room - room % len;

    memmove(data + first + len + added, data + first + len, rest);
    for (size_t i = 0; i < added; i += len)
        memcpy(data + first + len + i, data + first, len);
    return size + added;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
                               unsigned seed)
{
    if (size > 0 && size < max_size && seed % 256 == 0) {
        size_t bytes = repeat(data, size, max_size, seed / 256);

        if (bytes > size)
            return bytes;
    }
    return LLVMFuzzerMutate(data, size, max_size);
}
