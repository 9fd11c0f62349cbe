/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of the program hvd-pmix, which HVD__PMIX_IMAGE names. */
        .section .rodata, "a", %progbits
        .balign 64
        .globl pmix_image_begin, pmix_image_end
        .hidden pmix_image_begin
        .hidden pmix_image_end
pmix_image_begin:
        .incbin HVD__PMIX_IMAGE
pmix_image_end:
        .byte 0
        .section .note.GNU-stack, "", %progbits
