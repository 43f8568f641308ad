// fiber.h — stacks, and switching between them.
#ifndef SIE_KERNELS_SIMT_FIBER_H
#define SIE_KERNELS_SIMT_FIBER_H

#include <stddef.h>
#include <stdint.h>

namespace simt {

// One stack for each thread of a CTA, below it a page that faults.
extern const size_t stack_bytes;
uint8_t *new_stack();

// A stack pointer that starts `entry` at the next switch to it. entry never returns.
void *prepare_stack(uint8_t *stack, void (*entry)());

// Leaves the running stack in *save and continues at `to`, which lies on `to_stack` (NULL: the
// thread's own). leaving: the running stack is never continued.
void switch_stack(void **save, void *to, const uint8_t *to_stack, bool leaving);
// Call it before the first switch of a launch: any thread may launch.
void forget_thread_stack();
// Every entry function calls this first.
void arrived_on_stack();

}  // namespace simt

#endif  // SIE_KERNELS_SIMT_FIBER_H
