// alloc_failure_test.cc — every allocation of open, record, run and close fails once: nothing leaks
// (sanitizer builds check this), nothing crashes, and the status is right.
//
// The test binary is linked with --wrap, which redirects the library's calls here.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>

#include "executor.h"
#include "heads.h"
#include "hooks.h"
#include "model.h"
#include "tests/check.h"
#include "wrapped.h"

namespace {

using wrapped::calls_left;

std::atomic<int> failed_calls{0};

bool fails_now() {
  int left = calls_left.load();
  if (left < 0) return false;
  if (calls_left.fetch_sub(1) != 0) return false;
  failed_calls.fetch_add(1);
  return true;
}

}  // namespace

extern "C" {

int __real_posix_memalign(void **p, size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **p, size_t alignment, size_t bytes);
void *__real_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
int __real_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes);
int __real_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*entry)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*entry)(void *),
                          void *argument);

int __wrap_posix_memalign(void **p, size_t alignment, size_t bytes) {
  // Where the C library refuses sizes that no machine has, AddressSanitizer would end the process.
  bool absurd = bytes >> 40 != 0;
  return absurd || fails_now() ? ENOMEM : __real_posix_memalign(p, alignment, bytes);
}

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (address == nullptr) address = wrapped::next_mapping.exchange(nullptr);
  return fails_now() ? MAP_FAILED : __real_mmap(address, bytes, protection, flags, file, offset);
}

// Ends the process where munmap refuses: a pointer that csrc never set is hardly ever a page's.
int __wrap_munmap(void *address, size_t bytes) {
  const int status = __real_munmap(address, bytes);
  if (status != 0) {
    fprintf(stderr, "munmap(%p, %zu): %s\n", address, bytes, strerror(errno));
    abort();
  }
  return status;
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*entry)(void *),
                          void *argument) {
  return fails_now() ? EAGAIN : __real_pthread_create(id, attributes, entry, argument);
}

}  // extern "C"

// Opens the model with each allocation failing in turn; then runs the batch with none allowed.
static void fail_each(const model::Shape &shape, const model::Batch &batch) {
  int n = 0;
  for (;; n++) {
    model::Model m;
    failed_calls.store(0);
    calls_left.store(n);
    sie_status status = m.open(SIE_DEVICE_CPU, 0, 3, SIE_COMPUTE_F32, shape);
    bool hit = failed_calls.load() > 0;
    calls_left.store(-1);
    if (!hit) {
      CHECK(status == SIE_OK, "without a failure: %s", m.err.message);
      if (status != SIE_OK) return;
      // submit and wait must allocate nothing: from here every allocation fails.
      calls_left.store(0);
      model::Result result = run(&m, batch);
      CHECK(result.status == SIE_OK && failed_calls.load() == 0, "a run allocates (status %d)",
            result.status);
      calls_left.store(-1);
      break;
    }
    CHECK(status == SIE_OUT_OF_MEMORY, "allocation %d: status %d (%s)", n, status, m.err.message);
    if (n > 5000) break;
  }
  CHECK(n > 50 && n <= 5000, "%d allocations seen", n);
  printf("     %d allocations and threads failed in turn\n", n);
}

TEST(allocations_fail_one_by_one) {
  model::Shape shape;
  shape.layers = 1;
  model::Batch batch;
  for (int i = 0; i < 5; i++) batch.add(shape, i, 9 * i);
  fail_each(shape, batch);
}

// Without the start-up test, whose allocations fail in the case before: with it this would be most of
// what csrc's tests take.
TEST(allocations_of_heads_fail_one_by_one) {
  sie::hooks::no_self_tests.store(true);
  for (int i = 0; i < heads::count; i++) {
    const heads::Head &head = heads::all[i];
    model::Shape shape;
    shape.layers = 1;
    shape.tail = head.tail;
    model::Model m;
    if (m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, shape) == SIE_UNSUPPORTED) continue;
    fail_each(shape, heads::batch_of(head, shape, {1, 2, 3, 5}, false));
  }
  sie::hooks::no_self_tests.store(false);
}

TEST(executors_say_which_could_not_be_started) {
  sie::Executors executors;
  sie_error err = {};
  calls_left.store(3);  // the threads' list and two threads succeed
  sie_status status = executors.start(4, nullptr, &err);
  calls_left.store(-1);
  CHECK(status == SIE_OUT_OF_MEMORY && strstr(err.message, "executor 3 of 4 ") != nullptr, "status %d: %s",
        status, err.message);
}

// As many threads as asked for, and none more: the call behind the last one would fail.
TEST(executors_start_as_many_as_asked) {
  sie::Executors executors;
  sie_error err = {};
  calls_left.store(4);  // the threads' list and three threads
  const sie_status status = executors.start(3, nullptr, &err);
  const int left = calls_left.exchange(-1);
  CHECK(status == SIE_OK && left == 0, "status %d, %d calls left: %s", status, left, err.message);
  executors.stop();
}
