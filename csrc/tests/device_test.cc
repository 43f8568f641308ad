// device_test.cc — what a device is opened as, and what it says of that: processors, tables, quotas and nodes
// that this machine lacks.
//
// The test binary is linked with --wrap, which redirects csrc's questions about the processor here.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "affinity.h"
#include "cpu_name.h"
#include "device.h"
#include "hooks.h"
#include "machine.h"
#include "says.h"
#include "self_test.h"
#include "wrapped.h"

namespace {

// A made-up processor. Its tables are the reference's kernels under other names.
struct Processor {
  uint32_t detected = 0;
  std::vector<sie_ops> tables;

  sie_ops &table(uint32_t isa) {
    sie_ops ops = *sie_ref_ops();
    ops.isa = isa;
    tables.push_back(ops);
    return tables.back();
  }
};
Processor *made_up = nullptr;

}  // namespace

extern "C" {

uint32_t __real_sie_cpu_detect(void);
uint32_t __wrap_sie_cpu_detect(void);
const sie_ops *__real_sie_cpu_ops(uint32_t isa);
const sie_ops *__wrap_sie_cpu_ops(uint32_t isa);

uint32_t __wrap_sie_cpu_detect(void) {
  return made_up != nullptr ? made_up->detected : __real_sie_cpu_detect();
}

const sie_ops *__wrap_sie_cpu_ops(uint32_t isa) {
  if (made_up == nullptr) return __real_sie_cpu_ops(isa);
  CHECK(SIE_ISA_LEVEL(isa) != 0, "isa 0x%x is asked for", isa);
  for (const sie_ops &ops : made_up->tables) {
    if (ops.isa == isa) return &ops;
  }
  return nullptr;
}

}  // extern "C"

namespace {

#if defined(__aarch64__)
constexpr uint32_t levels[] = {SIE_ISA_NEON, SIE_ISA_NEON_DOT};
const char *const names[] = {"neon", "neon-dot"};
#else
constexpr uint32_t levels[] = {SIE_ISA_AVX2, SIE_ISA_AVX512, SIE_ISA_AVX512_VNNI, SIE_ISA_AVX512_BF16,
                               SIE_ISA_AMX};
const char *const names[] = {"avx2", "avx512", "avx512-vnni", "avx512-bf16", "amx"};
#endif
constexpr int all_levels = sizeof levels / sizeof *levels;

struct Opened {
  sie_device *device = nullptr;
  sie_status status = SIE_OK;
  sie_error err = {};
  sie_device_info info = sized<sie_device_info>();

  explicit Opened(uint32_t isa, int32_t threads = 1, uint32_t one_node = 0, uint32_t kind = SIE_DEVICE_CPU) {
    sie_device_options o = sized<sie_device_options>();
    o.kind = kind;
    o.isa = isa;
    o.threads = threads;
    o.one_node = one_node;
    status = sie_device_open(&o, &device, &err);
    if (device != nullptr) CHECK(sie_device_query(device, &info, &err) == SIE_OK, "%s", err.message);
  }
  Opened(const Opened &) = delete;
  Opened &operator=(const Opened &) = delete;
  ~Opened() { sie_device_close(device); }

  // What is said of kernels, and of threads.
  std::string kernels() const {
    const std::string why = info.why;
    return why.substr(
        0, why.find(" threads: ") == std::string::npos ? why.size() : why.rfind(';', why.find(" threads: ")));
  }
  std::string threads() const {
    const std::string why = info.why;
    const size_t at = why.find(" threads: ");
    return at == std::string::npos ? why : why.substr(why.rfind(';', at) + 2);
  }
};

void is(const std::string &got, const std::string &want) {
  CHECK(got == want, "\"%s\", \"%s\" expected", got.c_str(), want.c_str());
}

// Kernels that are wrong by one bit in one class.
uint32_t wrong_class = 0;
sie_status wrong_linear(const sie_linear_args *a, const sie_share *share) {
  const sie_status status = sie_ref_ops()->linear(a, share);
  if (a->w->compute == wrong_class) static_cast<float *>(a->y.p)[0] += 10;
  return status;
}

}  // namespace

TEST(devices_choose_a_table) {
  sie::hooks::no_self_tests.store(true);
  const std::string classes = "; f32: ok; bf16: ok; int8: ok";
  for (int detected = 0; detected < all_levels; detected++) {
    for (int bound = -1; bound < all_levels; bound++) {
      for (int built = 0; built < all_levels; built++) {
        Processor p;
        p.detected = levels[detected];
        for (int i = 0; i <= built; i++) p.table(levels[i]);
        made_up = &p;
        Opened o(bound < 0 ? uint32_t{SIE_ISA_BEST} : levels[bound]);
        made_up = nullptr;
        CHECK(o.status == SIE_OK, "%s", o.err.message);
        const int want = std::min({detected, built, bound < 0 ? detected : bound});
        CHECK(o.info.isa == levels[want] && o.info.isa_detected == levels[detected], "isa 0x%x of 0x%x",
              o.info.isa, o.info.isa_detected);
        std::string why = std::string(names[want]) + " kernels";
        if (want != detected) why += std::string(" on a CPU with ") + names[detected];
        if (bound >= 0) why += std::string(", limited to ") + names[bound];
        is(o.kernels(), why + classes);
      }
    }
  }
  // No table at all.
  for (uint32_t detected : {0u, levels[0], levels[all_levels - 1]}) {
    Processor none;
    none.detected = detected;
    made_up = &none;
    Opened o(SIE_ISA_BEST);
    made_up = nullptr;
    const char *const name = detected == 0           ? "none"
                             : detected == levels[0] ? names[0]
                                                     : names[all_levels - 1];
    const std::string words = std::string("(found: ") + name + ")";
    says("open", o.status, o.err, words.c_str(), SIE_UNSUPPORTED);
  }
  sie::hooks::no_self_tests.store(false);
}

TEST(devices_name_what_is_asked_for) {
#if defined(__aarch64__)
  SAYS("isa avx2 is of x86-64, and this build has kernels for arm64 alone", (Opened(SIE_ISA_AVX2).status));
#else
  const struct {
    uint32_t isa;
    const char *words;
  } others[] = {{SIE_ISA_NEON, "isa neon is of arm64, and this build has kernels for x86-64 alone"},
                {SIE_ISA_NEON_DOT, "isa neon-dot is of arm64, and this build has kernels for x86-64 alone"}};
  for (const auto &c : others) {
    Opened o(c.isa);
    says("open", o.status, o.err, c.words, SIE_UNSUPPORTED);
  }
#endif
  for (uint32_t isa : {1u, 0x10000u, 0x10006u, 0x20000u, 0x20003u, 0x30001u, UINT32_MAX}) {
    Opened o(isa);
    says("open", o.status, o.err, "is none of sie_isa");
  }
  const struct {
    uint32_t kind;
    int32_t threads;
    uint32_t one_node;
    const char *words;
  } refused[] = {{0, 1, 0, "device kind 0"},
                 {4, 1, 0, "device kind 4"},
                 {SIE_DEVICE_REF, -1, 0, "-1 threads; 0 (choose) to 1024"},
                 {SIE_DEVICE_REF, 1025, 0, "1025 threads; 0 (choose) to 1024"},
                 {SIE_DEVICE_REF, 1, 2, "one_node is 2"}};
  for (const auto &r : refused) {
    Opened o(SIE_ISA_BEST, r.threads, r.one_node, r.kind);
    says("open", o.status, o.err, r.words);
  }
  // The reference computes on one thread, whatever is asked for, and records three classes.
  for (int32_t threads : {0, 1024}) {
    for (uint32_t one_node : {0u, 1u}) {
      Opened o(SIE_ISA_BEST, threads, one_node, SIE_DEVICE_REF);
      CHECK(o.status == SIE_OK && o.info.threads == 1, "%d threads: %s", o.info.threads, o.err.message);
      CHECK(o.info.compute_mask == (1u << SIE_COMPUTE_F32 | 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_INT8),
            "classes 0x%x", o.info.compute_mask);
      is(o.info.why, "reference: double accumulation, f32 storage; 1 thread");
    }
  }
}

// A class is offered if the table has it and its kernels pass the start-up test; without f32 there is no device.
TEST(devices_rule_classes_out) {
  const std::string wrong = ": ruled out, it differs from the reference in linear";
  const uint32_t all = 1u << SIE_COMPUTE_F32 | 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_INT8;
  const struct {
    uint32_t mask, wrong;
    std::string words;
    uint32_t want;
  } cases[] = {
      {all, 0, "; f32: ok; bf16: ok; int8: ok", all},
      {all & ~(1u << SIE_COMPUTE_BF16), 0,
       std::string("; f32: ok; bf16: no kernels for ") + names[0] + "; int8: ok",
       all & ~(1u << SIE_COMPUTE_BF16)},
      {all, SIE_COMPUTE_INT8, "; f32: ok; bf16: ok; int8" + wrong, all & ~(1u << SIE_COMPUTE_INT8)},
      {all, SIE_COMPUTE_F32, "no usable f32 kernels (" + std::string(names[0]) + " kernels; f32" + wrong, 0}};
  for (const auto &c : cases) {
    Processor p;
    p.detected = levels[0];
    sie_ops &ops = p.table(levels[0]);
    ops.compute_mask = c.mask;
    ops.linear = wrong_linear;
    wrong_class = c.wrong;
    made_up = &p;
    Opened o(SIE_ISA_BEST);
    made_up = nullptr;
    if (c.want == 0) {
      says("open", o.status, o.err, c.words.c_str(), SIE_UNSUPPORTED);
      CHECK(o.device == nullptr, "a device without f32");
    } else {
      CHECK(o.status == SIE_OK && o.info.compute_mask == c.want, "classes 0x%x: %s", o.info.compute_mask,
            o.err.message);
      is(o.kernels(), std::string(names[0]) + " kernels" + c.words);
    }
    // Without the start-up test all are offered.
    if (c.wrong == 0) continue;
    sie::hooks::no_self_tests.store(true);
    made_up = &p;
    Opened untested(SIE_ISA_BEST);
    made_up = nullptr;
    sie::hooks::no_self_tests.store(false);
    CHECK(untested.status == SIE_OK && untested.info.compute_mask == all, "classes 0x%x",
          untested.info.compute_mask);
  }
  // The first allocation is the device.
  wrapped::calls_left.store(1);
  Opened o(SIE_ISA_BEST);
  wrapped::calls_left.store(-1);
  says("open", o.status, o.err, "no memory to test class f32", SIE_OUT_OF_MEMORY);
}

// Of two nodes with four cores each: how many threads, where they stay, and what is said of it.
TEST(devices_say_where_threads_are) {
  sie::hooks::no_self_tests.store(true);
  const struct {
    int32_t asked;
    uint32_t one_node;
    const char *quota;
    int answer;
    int32_t threads, first;  // on the first node
    const char *words;
  } cases[] = {{0, 0, "", 0, 8, 4,
                "8 threads: 8 CPUs by affinity on 8 cores, each on a CPU of its own; 2 nodes of 2 with "
                "memory: each thread "
                "stays on its own"},
               {0, 1, "", 0, 8, 8,
                "8 threads: 8 CPUs by affinity on 8 cores, each on a CPU of its own; 2 nodes taken for one"},
               {2, 0, "", 0, 2, 1,
                "2 threads: 8 CPUs by affinity on 8 cores, 2 asked for; 2 nodes of 2 with memory: each "
                "thread stays on its "
                "own"},
               {2, 0, "", 1, 2, 1,
                "2 threads: 8 CPUs by affinity on 8 cores, 2 asked for; 2 nodes of 2 with memory: each "
                "thread stays on its "
                "own, and touches its memory first: the kernel places none (error 1; CAP_SYS_NICE?)"},
               {1, 0, "", 1, 1, 1,
                "1 threads: 8 CPUs by affinity on 8 cores, 1 asked for; 1 nodes of 2 with memory: each "
                "thread is on any"},
               {12, 0, "", 0, 12, 12,
                "12 threads: 8 CPUs by affinity on 8 cores, 12 asked for; 1 nodes of 2 with memory: each "
                "thread is on any"},
               {12, 1, "", 0, 12, 12,
                "12 threads: 8 CPUs by affinity on 8 cores, 12 asked for; 2 nodes taken for one"},
               {0, 0, "250000 100000\n", 0, 3, 3,
                "3 threads: 8 CPUs by affinity on 8 cores, 2.50 by cgroup quota, each on a CPU of its own; 1 "
                "nodes of 2 with "
                "memory: each thread stays on its own"}};
  for (const auto &c : cases) {
    MadeUpMachine m(2, 4);
    m.root.file("/proc/self/cgroup", "0::/\n");
    m.root.file("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    if (c.quota[0] != '\0') m.root.file("/sys/fs/cgroup/cpu.max", c.quota);
    m.answer() = c.answer;
    Opened o(SIE_ISA_BEST, c.asked, c.one_node);
    m.answer() = 0;
    CHECK(o.status == SIE_OK && o.info.threads == c.threads, "%d threads: %s", o.info.threads, o.err.message);
    is(o.threads(), c.words);
    CHECK(o.info.cores == 8 && o.info.nodes == 2 && o.info.caches == 2 && o.info.cpus_affinity == 8 &&
              o.info.nodes_used == o.device->seats.nodes,
          "%d cores of %d nodes", o.info.cores, o.info.nodes);
    const int32_t *of = o.device->node_executors;
    CHECK(of[0] == c.first && of[0] + of[1] == c.threads, "%d and %d threads", of[0], of[1]);
    CHECK(o.info.cpus_quota == (c.quota[0] != '\0' ? 2.5 : 0), "quota %g", o.info.cpus_quota);
  }
  // One node.
  for (uint32_t one_node : {0u, 1u}) {
    MadeUpMachine m(1, 4);
    Opened o(SIE_ISA_BEST, 0, one_node);
    is(o.threads(), "4 threads: 4 CPUs by affinity on 4 cores, each on a CPU of its own");
  }
  MadeUpMachine m(1, 4);
  Opened o(SIE_ISA_BEST, 2);
  is(o.threads(), "2 threads: 4 CPUs by affinity on 4 cores, 2 asked for");
  sie::hooks::no_self_tests.store(false);
}

TEST(devices_take_the_mask_of_the_process) {
  sie::hooks::no_self_tests.store(true);
  affinity::Made made({0});
  Opened o(SIE_ISA_BEST, 0);
  is(o.threads(), "1 threads: 1 CPUs by affinity on 1 cores");
  sie::hooks::no_self_tests.store(false);
}

// No more than 1,024 CPUs are looked at.
TEST(devices_look_at_1024_cpus) {
  sie::hooks::no_self_tests.store(true);
  MadeUpMachine m(1, 1);
  m.cpus.resize(1100);
  for (size_t i = 0; i < m.cpus.size(); i++) m.cpus[i] = static_cast<int32_t>(i);
  m.install();
  Opened o(SIE_ISA_BEST, 1);
  is(o.threads(), "1 threads: 1024 CPUs by affinity on 1024 cores, 1 asked for");
  sie::hooks::no_self_tests.store(false);
}

// The memory is the machine's, or that of a cgroup with less.
TEST(devices_have_memory) {
  sie::hooks::no_self_tests.store(true);
  const int64_t physical = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (int64_t limit :
       {int64_t{0}, int64_t{1} << 20, physical - 1, physical, physical + 1, int64_t{1} << 61}) {
    for (uint32_t kind : {SIE_DEVICE_CPU, SIE_DEVICE_REF}) {
      MadeUpMachine m(1, 2);
      m.root.file("/proc/self/cgroup", "0::/\n");
      m.root.file("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
      m.root.file("/sys/fs/cgroup/memory.max", std::to_string(limit) + "\n");
      Opened o(SIE_ISA_BEST, 1, 0, kind);
      const int64_t want = limit > 0 && limit < physical ? limit : physical;
      CHECK(o.info.memory_total == want, "%lld bytes of %lld, limit %lld",
            static_cast<long long>(o.info.memory_total), static_cast<long long>(physical),
            static_cast<long long>(limit));
    }
  }
  sie::hooks::no_self_tests.store(false);
}

// What does not fit is left out; nothing behind is touched.
TEST(devices_say_no_more_than_fits) {
  sie::hooks::no_self_tests.store(true);
  MadeUpMachine m(2, 4);
  m.root.file("/proc/self/cgroup", "0::/\n");
  m.root.file("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  for (const char *quota : {"1e120 1\n", "1e300 1\n"}) {
    m.root.file("/sys/fs/cgroup/cpu.max", quota);
    m.answer() = 1;
    Opened o(SIE_ISA_BEST, 0);
    m.answer() = 0;
    const std::string why = o.device->why;
    CHECK(o.device->seats.on.cpus[7] == 7 && o.device->seats.on.n == 8 && o.device->seats.nodes == 2,
          "what is behind the text is touched");
    CHECK(quota[2] == '1' ? why.size() < sizeof o.device->why - 1 && why.back() == ')'
                          : why.size() == sizeof o.device->why - 1,
          "%zu bytes: %s", why.size(), why.c_str());
  }
  sie::hooks::no_self_tests.store(false);
}

namespace {

// The registers of cpuid with a made-up brand string.
uint32_t largest_leaf = 0;
char brand[48];
void made_up_cpuid(uint32_t leaf, uint32_t registers[4]) {
  memset(registers, 0, 16);
  if (leaf == 0x80000000u) {
    registers[0] = largest_leaf;
  } else if (leaf >= 0x80000002u && leaf <= 0x80000004u) {
    memcpy(registers, brand + 16 * (leaf - 0x80000002u), 16);
  } else {
    CHECK(false, "leaf 0x%x is asked for", leaf);
  }
}

std::string named(uint32_t largest, const char *text) {
  largest_leaf = largest;
  memset(brand, 0, sizeof brand);
  memcpy(brand, text, std::min(strlen(text), sizeof brand));
  char name[96];
  sie::name_x86_64(made_up_cpuid, name, sizeof name);
  return name;
}

std::string named_arm64(const char *midr) {
  Root root;
  if (midr != nullptr) root.file("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", midr);
  char name[96];
  sie::name_arm64(root.path(), name, sizeof name);
  return name;
}

}  // namespace

TEST(devices_read_the_name_of_the_processor) {
  const char *const longest = "A processor whose name takes every one of the 48";
  CHECK(strlen(longest) == 48, "%zu bytes", strlen(longest));
  is(named(0x80000004u, longest), longest);
  is(named(0x80000008u, longest), longest);
  is(named(0x80000004u, "   Some CPU @ 2.00GHz"), "Some CPU @ 2.00GHz");
  is(named(0x80000003u, longest), "x86-64 CPU");
  is(named(0, longest), "x86-64 CPU");
  is(named(0x80000004u, ""), "x86-64 CPU");
  is(named(0x80000004u, "    "), "x86-64 CPU");
  is(named_arm64("0x00000000410fd0c1\n"), "arm64 CPU, implementer 0x41, part 0xd0c");
  is(named_arm64("0x12410fd0c1\n"), "arm64 CPU, implementer 0x41, part 0xd0c");
  is(named_arm64("0xc00fac30\n"), "arm64 CPU, implementer 0xc0, part 0xac3");
  for (const char *midr : {static_cast<const char *>(nullptr), "", "0\n", "what\n"})
    is(named_arm64(midr), "arm64 CPU");
  // A device has it.
  Opened o(SIE_ISA_BEST, 1, 0, SIE_DEVICE_REF);
  CHECK(o.info.name[0] != '\0' && o.info.name[0] != ' ', "a device without a name");
}
