/* dlsym, interposed, as in dlsym_x86_64.S: where the answer is not ours the real dlsym is entered by a
 * jump, with the caller's arguments and return address. */

	.text
	.globl	dlsym
	.type	dlsym, %function
	.p2align 2
dlsym:
	.cfi_startproc
	hint	#34			/* bti c */
	stp	x29, x30, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	add	x2, sp, #24		/* where the name is kept */
	bl	convtrace_dlsym		/* x0: value, x1: next */
	mov	x17, x0
	mov	x16, x1			/* a jump through it may enter a function that begins with bti c */
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #32
	.cfi_adjust_cfa_offset -32
	.cfi_restore x29
	.cfi_restore x30
	cbz	x16, 1f
	br	x16
1:	mov	x0, x17
	ret
	.cfi_endproc
	.size	dlsym, .-dlsym
	.section .note.GNU-stack, "", %progbits
