// device.cc — opens a CPU: chooses instruction set, compute classes and number of executors, and
// says why.
#include "device.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "cpu_limits.h"
#include "cpu_name.h"
#include "gpu.h"
#include "grow.h"
#include "hooks.h"
#include "node_memory.h"
#include "program.h"
#include "self_test.h"
#include "status.h"
#include "topology.h"

using namespace sie;

namespace {

#if defined(__aarch64__)
constexpr uint32_t own_family = SIE_FAMILY_ARM64;
constexpr const char *least_isa = "Advanced SIMD";
#else
constexpr uint32_t own_family = SIE_FAMILY_X86_64;
constexpr const char *least_isa = "AVX2 with FMA and F16C";
#endif

const char *family_name(uint32_t family) { return family == SIE_FAMILY_ARM64 ? "arm64" : "x86-64"; }

// NULL where isa is none of sie_isa.
const char *name_of(uint32_t isa) {
  static const char *const x86[] = {"avx2", "avx512", "avx512-vnni", "avx512-bf16", "amx"};
  static const char *const arm[] = {"neon", "neon-dot"};
  if (isa >= SIE_ISA_AVX2 && isa <= SIE_ISA_AMX) return x86[isa - SIE_ISA_AVX2];
  if (isa >= SIE_ISA_NEON && isa <= SIE_ISA_NEON_DOT) return arm[isa - SIE_ISA_NEON];
  return nullptr;
}

const char *isa_name(uint32_t isa) {
  const char *name = name_of(isa);
  return name != nullptr ? name : "none";
}

[[gnu::format(printf, 2, 3)]] void add_why(sie_device *device, const char *format, ...) {
  size_t length = strlen(device->why);
  va_list args;
  va_start(args, format);
  vsnprintf(device->why + length, sizeof device->why - length, format, args);
  va_end(args);
}

void read_name(char *name, size_t cap) {
#if defined(__x86_64__)
  name_x86_64([](uint32_t leaf, uint32_t *r) { __cpuid(leaf, r[0], r[1], r[2], r[3]); }, name, cap);
#elif defined(__aarch64__)
  name_arm64("", name, cap);
#else
  snprintf(name, cap, "CPU");
#endif
}

// The best table that this build has of the family of `isa`, at or below its level.
const sie_ops *best_table(uint32_t isa) {
  for (; SIE_ISA_LEVEL(isa) > 0; isa--) {
    if (const sie_ops *ops = sie_cpu_ops(isa)) return ops;
  }
  return nullptr;
}

sie_status choose_cpu_table(sie_device *device, uint32_t bound, sie_error *err) {
  device->isa_detected = sie_cpu_detect();
  uint32_t isa = device->isa_detected;
  if (bound != SIE_ISA_BEST && bound < isa) isa = bound;
  device->ops = best_table(isa);
  SIE_FAIL_IF(device->ops == nullptr, SIE_UNSUPPORTED, err, "this CPU has no %s (found: %s)", least_isa,
              isa_name(device->isa_detected));
  device->isa = device->ops->isa;
  add_why(device, "%s kernels", isa_name(device->isa));
  if (device->isa != device->isa_detected) {
    add_why(device, " on a CPU with %s", isa_name(device->isa_detected));
  }
  if (bound != SIE_ISA_BEST) add_why(device, ", limited to %s", isa_name(bound));
  for (uint32_t compute : {SIE_COMPUTE_F32, SIE_COMPUTE_BF16, SIE_COMPUTE_INT8}) {
    if ((device->ops->compute_mask >> compute & 1) == 0) {
      add_why(device, "; %s: no kernels for %s", compute_name(compute), isa_name(device->isa));
      continue;
    }
    const char *problem = nullptr;
    sie_status status = hooks::skips_self_tests() ? SIE_OK : self_test(device->ops, compute, &problem);
    SIE_FAIL_IF(status == SIE_OUT_OF_MEMORY, status, err, "no memory to test class %s",
                compute_name(compute));
    if (problem == nullptr) device->compute_mask |= 1u << compute;
    add_why(device, problem == nullptr ? "; %s: ok" : "; %s: ruled out, it %s", compute_name(compute),
            problem);
  }
  SIE_FAIL_IF((device->compute_mask >> SIE_COMPUTE_F32 & 1) == 0, SIE_UNSUPPORTED, err,
              "no usable f32 kernels (%.180s)", device->why);
  return SIE_OK;
}

// A number that differs between the processes of a machine, also between containers.
uint64_t spread_of_process() {
  uint64_t mixed = static_cast<uint64_t>(monotonic_ns()) ^ static_cast<uint64_t>(getpid()) << 32;
  return (mixed * 0x9e3779b97f4a7c15u) >> 33;
}

// Sets the number of executors, and seats them.
void choose_threads(sie_device *device, const sie_device_options *options) {
  const hooks::Machine *made_up = hooks::machine();
  const char *root = made_up != nullptr ? made_up->root : "";
  CpuLimits limits = read_cpu_limits(root);
  int32_t asked = options->threads, cpus[max_executors], n;
  if (made_up != nullptr) {
    n = limits.cpus_affinity = std::min(made_up->n, max_executors);
    std::copy(made_up->cpus, made_up->cpus + n, cpus);
  } else {
    n = std::min(affinity_cpus(cpus, max_executors), max_executors);
  }
  device->cpus_affinity = limits.cpus_affinity;
  device->cpus_quota = limits.cpus_quota;
  int64_t physical = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  bool limited = limits.memory_limit > 0 && limits.memory_limit < physical;
  device->memory_total = limited ? limits.memory_limit : physical;
  if (device->kind == SIE_DEVICE_REF) {
    device->threads = 1;
    device->node_executors[0] = 1;
    add_why(device, "; 1 thread");
    return;
  }
  Topology topology;
  read_topology(root, cpus, n, &topology);
  device->cores = topology.cores;
  device->caches = topology.caches;
  device->nodes = topology.nodes;
  if (options->one_node != 0) topology.nodes = 1;
  device->threads = std::min(asked > 0 ? asked : usable_cpus(limits, topology.cores), max_executors);
  add_why(device, "; %d threads: %d CPUs by affinity on %d cores", device->threads, limits.cpus_affinity,
          topology.cores);
  if (limits.cpus_quota > 0) add_why(device, ", %.2f by cgroup quota", limits.cpus_quota);
  if (asked > 0) add_why(device, ", %d asked for", asked);
  Seats &seats = device->seats;
  seat_executors(topology, device->threads, asked > 0, spread_of_process(), &seats);
  if (seats.pinned) add_why(device, ", each on a CPU of its own");
  for (int32_t i = 0; i < device->threads; i++) device->node_executors[seats.places[i]]++;
  if (options->one_node != 0 && device->nodes > 1) add_why(device, "; %d nodes taken for one", device->nodes);
  if (topology.nodes > 1) {
    add_why(device, "; %d nodes of %d with memory: each thread %s", seats.nodes, topology.nodes,
            seats.pinned || seats.by_node ? "stays on its own" : "is on any");
    int problem = has_nodes(seats) ? try_placing(seats.numbers, seats.nodes) : 0;
    if (problem != 0) {
      add_why(device, ", and touches its memory first: the kernel places none (error %d; CAP_SYS_NICE?)",
              problem);
    }
  }
}

sie_status check_isa(uint32_t isa, sie_error *err) {
  if (isa == SIE_ISA_BEST) return SIE_OK;
  SIE_FAIL_IF(name_of(isa) == nullptr, SIE_INVALID_ARGUMENT, err, "isa 0x%x is none of sie_isa", isa);
  uint32_t family = SIE_ISA_FAMILY(isa);
  SIE_FAIL_IF(family != own_family, SIE_UNSUPPORTED, err,
              "isa %s is of %s, and this build has kernels for %s alone; leave isa out to take the best",
              name_of(isa), family_name(family), family_name(own_family));
  return SIE_OK;
}

sie_status check_options(const sie_device_options *o, sie_error *err) {
  SIE_FAIL_IF(o->kind < SIE_DEVICE_CPU || o->kind > SIE_DEVICE_REF, SIE_INVALID_ARGUMENT, err,
              "device kind %u is none of sie_device_kind", o->kind);
  SIE_FAIL_IF(o->threads < 0 || o->threads > max_executors, SIE_INVALID_ARGUMENT, err,
              "%d threads; 0 (choose) to %d are possible", o->threads, max_executors);
  SIE_FAIL_IF(o->one_node > 1, SIE_INVALID_ARGUMENT, err, "one_node is %u; 0 and 1 are possible",
              o->one_node);
  return check_isa(o->isa, err);
}

sie_status open_device(sie_device *device, const sie_device_options *options, sie_error *err) {
  device->kind = options->kind;
  if (device->is_gpu()) return gpu_open(device, options->gpu, err);
  read_name(device->name, sizeof device->name);
  if (options->kind == SIE_DEVICE_REF) {
    device->ops = sie_ref_ops();
    // Programs can use only these classes here, though the reference kernels compute linears of all
    // classes.
    constexpr uint32_t recorded = 1u << SIE_COMPUTE_F32 | 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_INT8;
    device->compute_mask = device->ops->compute_mask & recorded;
    add_why(device, "reference: double accumulation, f32 storage");
  } else {
    // Asks for AMX permission, which Linux gives the whole process.
    SIE_TRY(choose_cpu_table(device, options->isa, err));
  }
  choose_threads(device, options);
  return device->executors.start(device->threads, &device->seats, err);
}

}  // namespace

sie_status sie_device_open(const sie_device_options *options, sie_device **device, sie_error *err) {
  SIE_FAIL_IF(device == nullptr, SIE_INVALID_ARGUMENT, err, "device is NULL");
  *device = nullptr;
  sie_device_options known;
  SIE_TRY(take(options, &known, "sie_device_options", err));
  SIE_TRY(check_options(&known, err));
  sie_device *d = new_object<sie_device>();
  SIE_FAIL_IF(d == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for a device");
  sie_status status = open_device(d, &known, err);
  if (status != SIE_OK) {
    destroy_object(d);
    return status;
  }
  *device = d;
  return SIE_OK;
}

void sie_device_close(sie_device *device) {
  if (device == nullptr) return;
  device->executors.stop();
  destroy_object(device);
}

sie_status sie_device_query(const sie_device *device, sie_device_info *info, sie_error *err) {
  SIE_FAIL_IF(device == nullptr, SIE_INVALID_ARGUMENT, err, "device is NULL");
  sie_device_info known = {};
  known.kind = device->kind;
  known.threads = device->threads;
  known.cpus_affinity = device->cpus_affinity;
  known.cpus_quota = device->cpus_quota;
  known.isa = device->isa;
  known.isa_detected = device->isa_detected;
  known.compute_mask = device->compute_mask;
  known.cores = device->cores;
  known.caches = device->caches;
  known.nodes = device->nodes;
  known.nodes_used = device->seats.nodes;
  known.memory_total = device->memory_total;
  known.memory_weights = device->memory_weights;
  known.graphs_refused = device->graphs_refused.load(std::memory_order_relaxed);
  memcpy(known.name, device->name, sizeof known.name);
  memcpy(known.why, device->why, sizeof known.why);
  return give(known, info, "sie_device_info", err);
}
