    .section .rodata
    .balign 64
    .globl convtrace_stats_fatbin
    .hidden convtrace_stats_fatbin
    .type convtrace_stats_fatbin, @object
convtrace_stats_fatbin:
    .incbin CONVTRACE_FATBIN
    .size convtrace_stats_fatbin, . - convtrace_stats_fatbin
    .section .note.GNU-stack, "", @progbits
