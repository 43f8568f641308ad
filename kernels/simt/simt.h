// simt.h — the emulator's entry points, which the wrappers of kernels/cuda/ptx call under g++.
//
// A launch runs on the calling thread and returns when the grid has finished. A launch with a
// stream is passed to the sink of streams, if there is one. Each CUDA thread is a fiber. The
// threads of a CTA (and of its cluster) run in random order between the points where they
// synchronise; CTAs run in random order, now and then two at once. An operation that is
// asynchronous on the device happens at a random moment between issue and wait. All randomness
// comes from one seed: SIE_SIMT_SEED in the environment, or seed(); a failure prints it.
//
// A broken rule (see README.md) prints kernel, block, threads and seed to stderr and aborts the
// process. Launches from several threads take turns. Device memory is host memory.
#ifndef SIE_KERNELS_SIMT_SIMT_H
#define SIE_KERNELS_SIMT_SIMT_H

#include <stddef.h>
#include <stdint.h>

#include "sie.h"
#include "simt/language.h"

namespace simt {

struct Launch {
  const char *kernel;  // borrowed
  dim3 grid, block;
  uint32_t cluster;  // CTAs along x
  size_t shared_bytes;
  int32_t sm;            // 80, 86, 89, 90: decides the instructions and the size of shared memory
  bool pdl;              // each thread must call grid_dependency_wait
  const void *function;  // the kernel's address, for the record of launches (launches.cc)
};

// Runs thread(body) for each thread of the grid. SIE_UNSUPPORTED: the target lacks the shared
// memory or clusters; SIE_INTERNAL: a shape that CUDA would refuse; SIE_OUT_OF_MEMORY: more than
// 2²⁴ CTAs.
sie_status launch(const Launch &launch, void (*thread)(const void *body), const void *body);

// ---- launches that wait for their turn in a stream

// Takes over a launch with a stream. Some thread calls run(kernel) when the stream reaches it
// (never, once, or often: a CUDA graph replays it), then destroy(kernel) once. programmatic: it may
// start under the end of the kernel before. Where the sink does not return SIE_OK, it has taken
// nothing.
using StreamSink = sie_status (*)(void *stream, void (*run)(void *kernel), void *kernel,
                                  void (*destroy)(void *kernel), bool programmatic);
// From now on launches with a stream are passed to the sink; with NULL, as at the start, they run
// at once.
void set_stream_sink(StreamSink sink);
// launch() for a stream that is not NULL; refuses a shape that CUDA would refuse. It owns body,
// which destroy frees, and calls thread(body) as often as the sink runs the launch.
sie_status launch_in_stream(void *stream, const Launch &launch, void (*thread)(const void *body), void *body,
                            void (*destroy)(void *body));

// Starts the sequence of random choices anew; the next launches depend on it alone.
void seed(uint64_t value);
// The number of launches since the process began; a test reads it to know that a path ran.
uint64_t launches();

// ---- device side: only inside a launch

// Prints the error and its place, and aborts.
[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char *format, ...);
// Aborts unless the target of the launch has the instruction.
void require(int32_t sm, const char *instruction);

unsigned char *dynamic_shared();
uint32_t shared_address(const void *shared);
void check_shared(const void *shared, size_t alignment);
void check_global(const void *global, size_t alignment);

void named_barrier(uint32_t id, uint32_t threads, bool wait);
uint32_t cluster_rank();
uint32_t cluster_size();
void cluster_arrive();
void cluster_wait();
void set_registers(int32_t count);
void grid_dependency_wait();
// Says that the previous kernel writes these bytes, from the next launch on: in a programmatic
// launch no thread may copy from them before its grid_dependency_wait. bytes = 0: no such bytes.
void written_before(const void *p, size_t bytes);

enum class Shuffle { exclusive_or, from, up, down };
void shuffle(Shuffle kind, uint32_t mask, void *value, size_t size, int32_t argument);
uint32_t ballot(uint32_t mask, bool predicate);
enum class Reduce { add, min, max, bit_or };
uint32_t reduce(Reduce kind, uint32_t mask, uint32_t value);

void ldmatrix(uint32_t *registers, int32_t count, bool transposed, uint32_t row);
void stmatrix(const uint32_t *registers, int32_t count, bool transposed, uint32_t row);

enum class Element { bf16, f16, e4m3 };  // the order of ptx::Operand
void mma(Element type, float *d, const uint32_t *a, uint32_t b0, uint32_t b1);

// Copies the first `read` of `bytes` bytes, zeros for the others.
void cp_async(uint32_t shared, const void *global, uint32_t bytes, uint32_t read);
void cp_async_commit();
void cp_async_wait(int32_t pending);

void wgmma_fence();
// a_registers: the A fragment, or NULL with A in shared memory at descriptor a.
void wgmma(Element type, int32_t n, float *d, const uint32_t *a_registers, uint64_t a, uint64_t b,
           bool accumulate, bool b_by_rows);
void wgmma_commit();
void wgmma_wait(int32_t pending);
// The awaited values enter the registers here, so that a kernel without this call computes with
// NaN.
void wgmma_keep(float *d);

void fence_proxy_async();
void fence_mbarrier_init();
void mbarrier_init(uint64_t *barrier, uint32_t count);
void mbarrier_arrive(uint64_t *barrier, uint32_t expected_bytes);
void mbarrier_arrive_cluster(uint64_t *barrier, uint32_t rank);
bool mbarrier_test(uint64_t *barrier, uint32_t parity);
void mbarrier_wait(uint64_t *barrier, uint32_t parity);

// Has the size and alignment of the driver's, with contents of our own.
struct alignas(64) TensorMap {
  uint64_t magic;
  uint8_t *p;
  int32_t rank, element, swizzle;
  int32_t box[3];
  int64_t extent[3];
  int64_t stride[3];  // bytes; [0] is the element
  int64_t reserved[3];
};
static_assert(sizeof(TensorMap) == 128, "a CUtensorMap has 128 bytes");

// Host side. The rules of cuTensorMapEncodeTiled.
sie_status encode_tensor_map(TensorMap *map, int32_t dtype, const void *p, int32_t rank,
                             const int64_t *extent, const int64_t *stride, const int32_t *box,
                             int32_t swizzle);
// ctas: bits of the CTAs of the cluster that receive the box; 0: the caller's own.
void tma_load(void *shared, const TensorMap *map, int32_t rank, const int32_t *at, uint64_t *barrier,
              uint16_t ctas);
void bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *barrier);
void tma_store(const TensorMap *map, int32_t rank, const int32_t *at, const void *shared);
void tma_store_commit();
void tma_store_wait(int32_t pending, bool read_only);

}  // namespace simt

#endif  // SIE_KERNELS_SIMT_SIMT_H
