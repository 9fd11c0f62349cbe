/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of ResNet-50 (He et al., CVPR 2016, with the usual bottleneck
 * blocks, batch normalisation and 1000 classes): how many elements each of
 * its 161 parameter tensors has, in the order in which back propagation
 * finishes them, the last layer first.  Together 25 557 032.
 *
 * Needs no other header of the project, as the peers in tests/bench use it,
 * too.
 */
#ifndef HVD_BENCH_RESNET50_H
#define HVD_BENCH_RESNET50_H

#include <stddef.h>

enum { RESNET50_TENSORS = 161, RESNET50_ELEMENTS = 25557032 };

void bench_resnet50(size_t counts[RESNET50_TENSORS]);

#endif
