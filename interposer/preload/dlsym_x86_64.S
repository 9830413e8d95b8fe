/* dlsym, interposed. Where the answer is not ours the real dlsym is entered by a jump, with the
 * caller's arguments and return address: RTLD_NEXT and RTLD_DEFAULT depend on who calls. */

#include <cet.h>

	.text
	.globl	dlsym
	.type	dlsym, @function
	.p2align 4
dlsym:
	.cfi_startproc
	_CET_ENDBR
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	leaq	8(%rsp), %rdx		/* where the name is kept */
	call	convtrace_dlsym		/* rax: value, rdx: next */
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	testq	%rdx, %rdx
	jz	1f
	jmpq	*%rdx
1:	ret
	.cfi_endproc
	.size	dlsym, .-dlsym
	.section .note.GNU-stack, "", @progbits
