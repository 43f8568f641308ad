/* stubs.S — defines a hidden function for each driver function; it jumps to the address in its slot
 * of sie_driver_slots.
 *
 * At first a slot leads to sie_driver_resolve (stubs.cc), which looks the function up and fills the
 * slot. When the driver's function begins, the stack and every register that may hold an argument
 * are as the caller left them. From the second call on a stub is one indirect jump. Both ABIs:
 * System V x86-64 and AAPCS64. */
#define SIE_DRIVER_FUNCTION(name) stub name

#if defined(__x86_64__)

	.macro stub name
	.text
	.p2align 4
	.globl \name
	.hidden \name
	.type \name, @function
\name:
	endbr64
	jmp *sie_driver_slots + 8 * number(%rip)
1:
	endbr64
	pushq $number
	jmp resolve
	.size \name, . - \name
	.section .data.rel.local, "aw"
	.quad 1b
	.set number, number + 1
	.endm

#elif defined(__aarch64__)

	.macro stub name
	.text
	.p2align 4
	.globl \name
	.hidden \name
	.type \name, %function
\name:
	hint #34 /* bti c */
	adrp x16, sie_driver_slots + 8 * number
	ldr x16, [x16, :lo12:sie_driver_slots + 8 * number]
	br x16
1:
	hint #34
	mov w17, #number
	b resolve
	.size \name, . - \name
	.section .data.rel.local, "aw"
	.xword 1b
	.set number, number + 1
	.endm

#else
#error "the stubs of the CUDA driver are written for x86-64 and arm64; this processor needs its own (csrc/cuda/driver/stubs.S)"
#endif

	.section .data.rel.local, "aw"
	.p2align 3
	.globl sie_driver_slots
	.hidden sie_driver_slots
sie_driver_slots:
	.set number, 0
#include "functions.inc"

	.text
	.p2align 4
#if defined(__x86_64__)
	.type resolve, @function
/* On the stack: the stub's number, then the caller's return address. The seven pushes below them
 * align the stack. */
resolve:
	pushq %rdi
	pushq %rsi
	pushq %rdx
	pushq %rcx
	pushq %r8
	pushq %r9
	pushq %rax
	subq $136, %rsp
	movups %xmm0, (%rsp)
	movups %xmm1, 16(%rsp)
	movups %xmm2, 32(%rsp)
	movups %xmm3, 48(%rsp)
	movups %xmm4, 64(%rsp)
	movups %xmm5, 80(%rsp)
	movups %xmm6, 96(%rsp)
	movups %xmm7, 112(%rsp)
	movl 192(%rsp), %edi
	call sie_driver_resolve
	movq %rax, %r11
	movups (%rsp), %xmm0
	movups 16(%rsp), %xmm1
	movups 32(%rsp), %xmm2
	movups 48(%rsp), %xmm3
	movups 64(%rsp), %xmm4
	movups 80(%rsp), %xmm5
	movups 96(%rsp), %xmm6
	movups 112(%rsp), %xmm7
	addq $136, %rsp
	popq %rax
	popq %r9
	popq %r8
	popq %rcx
	popq %rdx
	popq %rsi
	popq %rdi
	addq $8, %rsp
	jmp *%r11
#else
	.type resolve, %function
/* In w17: the stub's number. Nothing has been pushed. */
resolve:
	stp x29, x30, [sp, #-224]!
	mov x29, sp
	stp x0, x1, [sp, #16]
	stp x2, x3, [sp, #32]
	stp x4, x5, [sp, #48]
	stp x6, x7, [sp, #64]
	str x8, [sp, #80]
	stp q0, q1, [sp, #96]
	stp q2, q3, [sp, #128]
	stp q4, q5, [sp, #160]
	stp q6, q7, [sp, #192]
	mov w0, w17
	bl sie_driver_resolve
	mov x16, x0
	ldp q6, q7, [sp, #192]
	ldp q4, q5, [sp, #160]
	ldp q2, q3, [sp, #128]
	ldp q0, q1, [sp, #96]
	ldr x8, [sp, #80]
	ldp x6, x7, [sp, #64]
	ldp x4, x5, [sp, #48]
	ldp x2, x3, [sp, #32]
	ldp x0, x1, [sp, #16]
	ldp x29, x30, [sp], #224
	br x16
#endif
	.size resolve, . - resolve
	.section .note.GNU-stack, "", %progbits
