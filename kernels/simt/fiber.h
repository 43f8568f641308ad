// fiber.h — stacks and the switch between them.
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

// Leaves the running stack in *save and goes on at `to`, which lies on `to_stack` (NULL: the
// thread's own). leaving: the running stack is never continued.
void switch_stack(void **save, void *to, const uint8_t *to_stack, bool leaving);
// Before the first switch of a launch: any thread may be the one that launches.
void forget_thread_stack();
// The first thing entry does.
void arrived_on_stack();

}  // namespace simt

#endif  // SIE_KERNELS_SIMT_FIBER_H
