/* SPDX-License-Identifier: Apache-2.0 */
/* The fat binary of kernels.cu, which HVD__FATBIN names. */
        .section .rodata, "a", %progbits
        .balign 64
        .globl hvd__kernels_image
        .hidden hvd__kernels_image
        .type hvd__kernels_image, %object
hvd__kernels_image:
        .incbin HVD__FATBIN
        .byte 0
        .size hvd__kernels_image, . - hvd__kernels_image
        .section .note.GNU-stack, "", %progbits
