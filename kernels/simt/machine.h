// machine.h — inside the emulator: fibers, the scheduler, and the state of a CTA while it runs.
//
// One or two clusters of CTAs are resident at a time; all state hangs on `machine`, which launch()
// guards. A fiber runs until it blocks; then a random ready one continues. An asynchronous
// operation is carried out at once, or it floats (each switch may carry out one of those), or it
// lingers until no fiber is ready. A wait carries out the operations that it waits for, at once or
// when no fiber is ready. So now and then other fibers run as far ahead as barriers let them.
#ifndef SIE_KERNELS_SIMT_MACHINE_H
#define SIE_KERNELS_SIMT_MACHINE_H

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "simt/simt.h"

namespace simt {

struct Cta;
struct Cluster;
struct Warp;
struct Warpgroup;

// ---- asynchronous operations

// One operation in flight. step() advances it and returns true when it is finished.
struct Async {
  virtual ~Async() = default;
  virtual bool step() = 0;
  std::vector<Async *> *list = nullptr;  // machine.floating or lingering, if under way there
  size_t slot = 0;                       // in it
  bool finished = false;
};

// Adds an operation to those that float or linger; the caller keeps it alive until it is finished.
void float_async(Async *async);
void linger_async(Async *async);
// Steps until it is finished.
void finish_async(Async *async);
// Blocks until no fiber is ready: one time in two, or always when `sure`.
void dawdle(const char *what, bool sure = false);

struct Copy final : Async {  // cp.async
  bool step() override;
  uint8_t *to;
  const uint8_t *from;
  uint32_t bytes, read;
  uint64_t group;
};

struct Store final : Async {  // TMA store: reads shared memory at one step, writes global memory at another
  bool step() override;
  TensorMap map;
  int32_t at[3];
  const Cta *cta;
  uint32_t shared;
  std::vector<uint8_t> box;
  bool read = false;
  uint64_t group;
};

// ---- fibers

struct Fiber : Indices {
  void *stack_pointer;
  uint8_t *stack;
  Cta *cta;
  Warp *warp;
  uint32_t number;  // of the thread in its CTA
  uint32_t lane;
  bool done, dependency_waited, cluster_arrived, wgmma_fenced;
  bool proxy_fenced;                     // since its last group of TMA stores
  bool late;                             // from the barrier it waited at
  int32_t answer;                        // of the barrier it waited at
  const char *waits_for;                 // NULL: ready or running
  const void *waits_on;                  // the barrier, if one
  uint64_t copy_group, store_group;      // groups opened so far
  int32_t registers;                     // 0: as many as the launch gave
  uint64_t wgmma_issued, wgmma_awaited;  // operations
  std::deque<uint64_t> wgmma_groups;     // the last operation of each group not waited for
  uint64_t copies_awaited;               // groups before this one have been waited for
  std::vector<std::unique_ptr<Copy>> copies;
  std::vector<std::pair<uint64_t, uint32_t>> unmet;  // its copies marked in Cta::touched: group, place
  std::vector<std::unique_ptr<Store>> stores;
};

inline Fiber *current() { return static_cast<Fiber *>(self); }

// Blocks the running fiber until wake(); `what` appears in the report of a deadlock.
void block(const char *what, const void *on = nullptr);
void wake(Fiber *fiber);
// Lets other fibers run.
void yield();

// ---- where fibers meet

struct Meeting {  // of the lanes of a warp at one instruction
  const char *instruction = nullptr;
  uint32_t mask = 0, arrived = 0;
  void *arguments[32] = {};
  Fiber *lanes[32] = {};
};

struct Warp {
  uint32_t number;
  uint32_t exited = 0;
  uint32_t met = 0;               // times that a lane came to a barrier
  std::vector<Meeting> meetings;  // a few, by mask
};

// Brings the lanes of mask together; the last one runs act(arguments, mask) for all. arguments lie
// on the lanes' stacks, where act leaves their results.
void meet(const char *instruction, uint32_t mask, void *arguments,
          void (*act)(void *const *arguments, uint32_t mask));

struct Barrier {  // of a CTA, by number
  uint32_t expected = 0, arrived = 0;
  int32_t count = 0;
  bool of_all = false;  // __syncthreads: all living threads
  std::vector<Fiber *> waiting;
};

struct PhaseBarrier {  // an mbarrier
  uint32_t address;
  uint32_t count, pending;
  int64_t bytes = 0;      // expected minus written
  int64_t in_flight = 0;  // of loads under way
  uint64_t phase = 0;
  const Fiber *initialised_by = nullptr;
  bool published = false;  // by fence_mbarrier_init: TMA and other CTAs may see it
  std::vector<Fiber *> waiting;
};

struct Accumulator {  // registers a warpgroup's wgmma works on
  float *d[128];      // NULL: given back
  int32_t n;
  std::vector<float> value;  // [64, n]
  uint64_t last;             // operation
};

struct WgmmaOperation {
  Element type;
  bool a_in_registers, accumulate, b_by_rows;
  uint64_t a, b;
  std::vector<uint32_t> fragments;  // [128][4] or empty
  Accumulator *accumulator;
};

struct Warpgroup final : Async {
  bool step() override;  // the next operation
  Cta *cta;
  uint32_t number;
  uint64_t executed = 0;
  bool late = false;  // not before every thread waits
  std::deque<WgmmaOperation> queue;
  std::vector<std::unique_ptr<Accumulator>> accumulators;
  // the operation being gathered
  uint32_t arrived = 0;
  struct Call {
    Element type;
    int32_t n;
    float *d;
    const uint32_t *fragment;
    uint64_t a, b;
    bool accumulate, b_by_rows;
    Fiber *fiber;
  } calls[128];
};

struct Load final : Async {  // TMA load or bulk copy
  bool step() override;
  TensorMap map;  // rank 0: plain bytes
  const uint8_t *from;
  uint32_t bytes;
  int32_t at[3];
  uint32_t shared, barrier;
  std::vector<Cta *> to;
};

struct RemoteStore final : Async {  // st.async
  bool step() override;
  Cta *to;
  uint32_t shared, barrier;
  uint8_t value[16];
};

struct Cluster {  // without clusters, each CTA is one of its own
  std::vector<Cta *> ctas;
  uint32_t live = 0, arrived = 0;
  uint64_t phase = 0;
  std::vector<Fiber *> waiting;
};

// What cp.async and ldmatrix did to sixteen bytes of shared memory, until the thread or warp
// reaches a barrier.
struct Touch {
  uint16_t copier = 0, reader = 0;  // a thread, a warp; plus one
  uint32_t met = 0;                 // the warp's, when it read
};

struct Cta {
  Cluster *cluster;
  uint32_t rank;  // in it
  uint3 block;
  uint8_t *shared;
  uint32_t threads, live;
  std::vector<Fiber *> fibers;
  std::vector<Warp> warps;
  std::vector<std::unique_ptr<Warpgroup>> warpgroups;
  Barrier barriers[16];
  std::vector<PhaseBarrier> phase_barriers;
  std::vector<Touch> touched;  // empty before the first cp.async
};

struct Machine {
  Launch launch;
  uint64_t base_seed = 0, launch_number = 0, random_state = 0;
  void (*thread)(const void *);
  const void *body;
  std::vector<Fiber *> ready;
  std::vector<Async *> floating, lingering;
  std::vector<Fiber *> dawdling;
  std::vector<Cta> ctas;  // that are resident
  std::vector<Cluster> clusters;
  std::vector<std::unique_ptr<Async>> loads;  // and stores to other CTAs
  uint32_t float_switches = 1;                // of which one carries out something that floats
  uint32_t live = 0;
  bool infinite = false;  // fresh shared memory is full of infinities, not of NaN
};
extern Machine machine;

// The status that CUDA would return for a launch of this shape before anything runs.
sie_status check_shape(const Launch &launch);

// Records a launch for SIE_SIMT_LAUNCHES (launches.cc); does nothing without it.
void record_launch(const Launch &launch);

// A random number below n, from the seed.
uint32_t random_below(uint32_t n);

// Fails where the running thread has not waited for the kernel that writes the byte at p.
void check_written(const void *p);
// Returns the `bytes` bytes at an address of the CTA's shared memory; fails outside it, or
// misaligned.
uint8_t *shared_bytes(const Cta &cta, uint32_t address, size_t bytes, size_t alignment, const char *what);
// The start of shared memory; on a device the system uses the first KiB.
constexpr uint32_t shared_base = 1024;

// The running fiber reaches a barrier of any kind: other threads may now see the results of the
// copies that it has waited for, and may overwrite what its warp has read.
void arrive_at_barrier();
// ldmatrix of the warp reads these sixteen bytes; fails where a copy to them lacks its wait and a
// barrier after that.
void read_row(Cta &cta, const Warp &warp, uint32_t address);

PhaseBarrier &phase_barrier(Cta &cta, uint32_t address);
// Fails where the thread that initialised the barrier has not fenced. user: what reaches it other
// than its own CTA.
void check_published(const PhaseBarrier &barrier, const char *user);
void phase_barrier_written(Cta &cta, uint32_t address, uint32_t bytes);
// Checks the barriers of a CTA that has finished.
void check_phase_barriers(const Cta &cta);
void thread_left_barriers(Fiber *fiber);
// Whether the thread's registers are still operands of a product.
bool wgmma_under_way(const Fiber *fiber);

}  // namespace simt

#endif  // SIE_KERNELS_SIMT_MACHINE_H
