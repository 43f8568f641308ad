#include "simt/fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {

#if defined(__SANITIZE_ADDRESS__)
// Red zones and fake frames make frames several times larger.
const size_t stack_bytes = 512 << 10;
#else
const size_t stack_bytes = 124 << 10;
#endif

namespace {

// Stacks end at 63 different places within a page. If all ended at the same one, all threads' innermost
// frames would share a few sets of the cache, and each switch would miss it.
constexpr size_t place_bytes = 64, places = 63;

size_t next_place() {
  static size_t stacks = 0;
  return stacks++ % places * place_bytes;
}

}  // namespace

uint8_t *new_stack() {
  size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void *memory = mmap(nullptr, page + places * place_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
    fprintf(stderr, "simt: no memory for a stack\n");
    abort();
  }
  return static_cast<uint8_t *>(memory) + page + next_place();
}

#if defined(__SANITIZE_ADDRESS__)
namespace {
const void *thread_stack;  // of the thread that launches
size_t thread_stack_bytes;

// A function's red zones vanish when it returns, so an exited thread leaves only those of the few
// functions that it exited through. Clearing the whole stack's shadow at every start would take a
// third of the emulator's time.
void forget_red_zones(uint8_t *stack) {
  constexpr size_t left_behind = 16 << 10;
  __asan_unpoison_memory_region(stack + stack_bytes - left_behind, left_behind);
}
}  // namespace
#endif

#if defined(__x86_64__)

// Saves what a call preserves and swaps stacks. No signal masks: nothing here changes them.
extern "C" void simt_switch(void **save, void *to);
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch, @function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch, .-simt_switch
)");

void *prepare_stack(uint8_t *stack, void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  forget_red_zones(stack);
#endif
  // Six registers and the return address; above it an empty slot, so that the stack is aligned as
  // after a call.
  void **top = reinterpret_cast<void **>(stack + stack_bytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void *>(entry);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  return top;
}

#else

void *prepare_stack(uint8_t *stack, void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  forget_red_zones(stack);
#endif
  // The context lies at the bottom of the stack it describes.
  ucontext_t *context = reinterpret_cast<ucontext_t *>(stack);
  getcontext(context);
  context->uc_stack.ss_sp = stack + sizeof *context;
  context->uc_stack.ss_size = stack_bytes - sizeof *context;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}

static void simt_switch(void **save, void *to) {
  ucontext_t here;
  *save = &here;
  swapcontext(&here, static_cast<ucontext_t *>(to));
}

#endif

void switch_stack(void **save, void *to, const uint8_t *to_stack, bool leaving) {
#if defined(__SANITIZE_ADDRESS__)
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(leaving ? nullptr : &fake, to_stack != nullptr ? to_stack : thread_stack,
                                 to_stack != nullptr ? stack_bytes : thread_stack_bytes);
  simt_switch(save, to);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  (void)to_stack;
  (void)leaving;
  simt_switch(save, to);
#endif
}

void forget_thread_stack() {
#if defined(__SANITIZE_ADDRESS__)
  thread_stack = nullptr;
#endif
}

void arrived_on_stack() {
#if defined(__SANITIZE_ADDRESS__)
  const void *from;
  size_t bytes;
  __sanitizer_finish_switch_fiber(nullptr, &from, &bytes);
  // The first fiber of a launch is entered from the thread's own stack.
  if (thread_stack == nullptr) {
    thread_stack = from;
    thread_stack_bytes = bytes;
  }
#endif
}

}  // namespace simt
