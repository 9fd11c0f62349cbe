# SPDX-License-Identifier: Apache-2.0
"""The sizes of ResNet-50's gradients."""

# Blocks of ResNet-50: their number and width in its four stages.
# Source: He et al., Deep Residual Learning (CVPR 2016), table 1.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))


def resnet50_counts():
    """The elements of ResNet-50's 161 gradients, in the order of backward."""
    counts = []

    def conv(inputs, outputs, kernel):
        counts.extend((inputs * outputs * kernel * kernel, outputs, outputs))

    conv(3, 64, 7)
    inputs = 64
    for blocks, width in STAGES:
        for block in range(blocks):
            conv(inputs, width, 1)
            conv(width, width, 3)
            conv(width, 4 * width, 1)
            if block == 0:
                conv(inputs, 4 * width, 1)
            inputs = 4 * width
    counts.extend((2048 * 1000, 1000))
    return counts[::-1]
