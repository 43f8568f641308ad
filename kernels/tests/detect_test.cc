// detect_test.cc — which table is chosen on machines other than this one: of x86-64 in a build for
// it, of arm64 in every build.
#include "cpu/detect.h"
#include "ops.h"
#include "tests/check.h"
#include "tests/made_up_tables.h"

// HWCAP_ASIMD and HWCAP_ASIMDDP of Linux, and bits beside them: floating point, half floats, BF16.
TEST(detect_names_arm64) {
  constexpr uint64_t fp = 1, asimd = 1u << 1, halves = 1u << 10, dot = 1u << 20, sve = 1u << 22;
  const auto is = [](uint64_t capabilities, uint32_t isa) {
    const uint32_t found = sie_cpu::detect_arm64(capabilities);
    CHECK(found == isa, "capabilities %llx: table %x", static_cast<unsigned long long>(capabilities), found);
  };
  is(fp | asimd, SIE_ISA_NEON);                           // Cortex-A53, Cortex-A72
  is(fp | asimd | halves | dot, SIE_ISA_NEON_DOT);        // Neoverse N1
  is(fp | asimd | halves | dot | sve, SIE_ISA_NEON_DOT);  // Neoverse V1
  is(fp | asimd | halves | sve, SIE_ISA_NEON);
  is(~uint64_t{0}, SIE_ISA_NEON_DOT);
  is(~uint64_t{0} & ~dot, SIE_ISA_NEON);
  is(~uint64_t{0} & ~asimd, SIE_ISA_BEST);
  is(fp | dot, SIE_ISA_BEST);
  is(0, SIE_ISA_BEST);
}

#if defined(__x86_64__)
namespace {

using sie_cpu::CpuidLeaf;

constexpr uint32_t bit(int n) { return 1u << n; }

// Feature bits as the processor manuals number them: leaf 1 ecx; leaf 7 ebx, ecx, edx; leaf 7.1
// eax; XCR0.
struct Description {
  uint32_t basic_ecx, ebx, ecx, edx, more_eax, states;
  bool grants;  // the kernel, tiles
};

constexpr uint32_t fma = bit(12), osxsave = bit(27), avx = bit(28), f16c = bit(29), avx2 = bit(5);
constexpr uint32_t f = bit(16), dq = bit(17), bw = bit(30), vl = bit(31), vnni = bit(11), bf16 = bit(5);
constexpr uint32_t amx_bf16 = bit(22), amx_tile = bit(24), amx_int8 = bit(25);
constexpr uint32_t sse_ymm = bit(1) | bit(2), zmm = bit(5) | bit(6) | bit(7), tiles = bit(17) | bit(18);

constexpr Description sapphire_rapids = {fma | osxsave | avx | f16c,
                                         avx2 | f | dq | bw | vl,
                                         vnni,
                                         amx_bf16 | amx_tile | amx_int8,
                                         bf16,
                                         bit(0) | sse_ymm | zmm | tiles,
                                         true};

Description now;
int times_states, times_tiles;
long asked_code, asked_value;

uint32_t detect(const Description &description) {
  now = description;
  times_states = times_tiles = 0;
  return sie_cpu::detect({[](uint32_t leaf, uint32_t subleaf) -> CpuidLeaf {
                            if (leaf == 1) return {0, 0, now.basic_ecx, 0};
                            if (leaf == 7 && subleaf == 0) return {1, now.ebx, now.ecx, now.edx};
                            if (leaf == 7 && subleaf == 1) return {now.more_eax, 0, 0, 0};
                            return {0, 0, 0, 0};
                          },
                          [] {
                            times_states++;
                            return now.states;
                          },
                          [](long code, long value) {
                            times_tiles++;
                            asked_code = code;
                            asked_value = value;
                            return now.grants ? 0L : -1L;
                          }});
}

// The name of the table that this machine works with.
const char *table_of(const Description &description) {
  const sie_ops *ops = table_on(detect(description), SIE_ISA_BEST);
  return ops != nullptr ? ops->name : "none";
}

struct Without {
  const char *name;
  uint32_t Description::*word;
  uint32_t bits;
  uint32_t isa;
};

}  // namespace

TEST(detect_names_machines) {
  Description zen4 = sapphire_rapids;  // AVX512_BF16, no tiles
  zen4.edx = 0;
  zen4.states &= ~tiles;
  Description cascade_lake = zen4;
  cascade_lake.more_eax = 0;
  Description skylake = cascade_lake;
  skylake.ecx = 0;
  Description haswell = {sapphire_rapids.basic_ecx, avx2, 0, 0, 0, bit(0) | sse_ymm, true};
  Description no_bf16 = sapphire_rapids;
  no_bf16.more_eax = 0;
  Description refused = sapphire_rapids;
  refused.grants = false;
  CHECK(detect(sapphire_rapids) == SIE_ISA_AMX, "Sapphire Rapids: %u", detect(sapphire_rapids));
  CHECK(times_tiles == 1, "tiles were asked for %d times", times_tiles);
  CHECK(asked_code == 0x1023 && asked_value == 18, "arch_prctl(0x%lx, %ld) asks for no tiles", asked_code,
        asked_value);
  CHECK(detect(zen4) == SIE_ISA_AVX512_BF16, "Zen 4: %u", detect(zen4));
  CHECK(times_tiles == 0, "tiles were asked for on a machine without");
  CHECK(detect(cascade_lake) == SIE_ISA_AVX512_VNNI, "Cascade Lake: %u", detect(cascade_lake));
  CHECK(detect(skylake) == SIE_ISA_AVX512, "Skylake: %u", detect(skylake));
  CHECK(detect(haswell) == SIE_ISA_AVX2, "Haswell: %u", detect(haswell));
  CHECK(detect(no_bf16) == SIE_ISA_AVX512_VNNI, "AMX without AVX512_BF16: %u", detect(no_bf16));
  CHECK(detect(refused) == SIE_ISA_AVX512_BF16 && times_tiles == 1, "a kernel that refuses tiles: %u",
        detect(refused));
  Description sandy_bridge = haswell;  // AVX alone
  sandy_bridge.ebx = 0;
  const struct {
    const char *name;
    const Description *machine;
    const char *table;
  } machines[] = {
      {"Sapphire Rapids", &sapphire_rapids, "amx"},
      {"a kernel that refuses tiles", &refused, "avx512-bf16"},
      {"Zen 4", &zen4, "avx512-bf16"},
      {"AMX without AVX512_BF16", &no_bf16, "avx512-vnni"},
      {"Cascade Lake", &cascade_lake, "avx512-vnni"},
      {"Skylake", &skylake, "avx512"},
      {"Haswell", &haswell, "avx2"},
      {"Sandy Bridge", &sandy_bridge, "none"},
  };
  for (const auto &m : machines) {
    const char *table = table_of(*m.machine);
    CHECK(strcmp(table, m.table) == 0, "%s works with the table %s", m.name, table);
  }
}

// Each bit of the best machine alone: without it the best table that does not need it is chosen.
TEST(detect_needs_every_bit) {
  const Without list[] = {
      {"FMA", &Description::basic_ecx, fma, SIE_ISA_BEST},
      {"OSXSAVE", &Description::basic_ecx, osxsave, SIE_ISA_BEST},
      {"AVX", &Description::basic_ecx, avx, SIE_ISA_BEST},
      {"F16C", &Description::basic_ecx, f16c, SIE_ISA_BEST},
      {"AVX2", &Description::ebx, avx2, SIE_ISA_BEST},
      {"saved SSE", &Description::states, bit(1), SIE_ISA_BEST},
      {"saved YMM", &Description::states, bit(2), SIE_ISA_BEST},
      {"AVX512F", &Description::ebx, f, SIE_ISA_AVX2},
      {"AVX512DQ", &Description::ebx, dq, SIE_ISA_AVX2},
      {"AVX512BW", &Description::ebx, bw, SIE_ISA_AVX2},
      {"AVX512VL", &Description::ebx, vl, SIE_ISA_AVX2},
      {"saved masks", &Description::states, bit(5), SIE_ISA_AVX2},
      {"saved ZMM, upper halves", &Description::states, bit(6), SIE_ISA_AVX2},
      {"saved ZMM 16 to 31", &Description::states, bit(7), SIE_ISA_AVX2},
      {"AVX512_VNNI", &Description::ecx, vnni, SIE_ISA_AVX512},
      {"AMX-BF16", &Description::edx, amx_bf16, SIE_ISA_AVX512_BF16},
      {"AMX-TILE", &Description::edx, amx_tile, SIE_ISA_AVX512_BF16},
      {"AMX-INT8", &Description::edx, amx_int8, SIE_ISA_AVX512_BF16},
      {"AVX512_BF16", &Description::more_eax, bf16, SIE_ISA_AVX512_VNNI},
      {"saved tile configuration", &Description::states, bit(17), SIE_ISA_AVX512_BF16},
      {"saved tiles", &Description::states, bit(18), SIE_ISA_AVX512_BF16},
  };
  for (const Without &w : list) {
    Description machine = sapphire_rapids;
    machine.*w.word &= ~w.bits;
    const uint32_t isa = detect(machine);
    CHECK(isa == w.isa, "without %s: table %u, not %u", w.name, isa, w.isa);
    CHECK(times_tiles == 0, "without %s: asked for tiles", w.name);
    if (w.word == &Description::basic_ecx)
      CHECK(times_states == 0, "without %s: read XCR0, which faults without OSXSAVE", w.name);
  }
}
#endif
