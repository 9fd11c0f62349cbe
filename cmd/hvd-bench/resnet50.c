/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the sizes of ResNet-50's gradients from its structure. */
#include "cmd/hvd-bench/resnet50.h"

/* A list that is filled from the end. */
struct list {
    size_t *counts;
    int left;
};

static void add(struct list *list, size_t count)
{
    list->counts[--list->left] = count;
}

/* Adds a k x k convolution without bias, and its normalisation. */
static void add_conv(struct list *list, size_t in, size_t out, size_t k)
{
    add(list, in * out * k * k);
    add(list, out); /* scale */
    add(list, out); /* shift */
}

static size_t add_bottleneck(struct list *list, size_t in, size_t width,
                             int projects)
{
    size_t out = 4 * width;

    add_conv(list, in, width, 1);
    add_conv(list, width, width, 3);
    add_conv(list, width, out, 1);
    if (projects)
        add_conv(list, in, out, 1);
    return out;
}

void bench_resnet50(size_t counts[RESNET50_TENSORS])
{
    static const int blocks[] = {3, 4, 6, 3};
    struct list list = {counts, RESNET50_TENSORS};
    size_t channels = 64;

    add_conv(&list, 3, channels, 7);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < blocks[stage]; i++)
            channels =
                add_bottleneck(&list, channels, (size_t)64 << stage, i == 0);
    add(&list, channels * 1000);
    add(&list, 1000);
}
