    .section .rodata
    .balign 64
    .globl gpu_check_fatbin
    .type gpu_check_fatbin, @object
gpu_check_fatbin:
    .incbin GPU_CHECK_FATBIN
    .size gpu_check_fatbin, . - gpu_check_fatbin
    .section .note.GNU-stack, "", @progbits
