// operands.h — a valid call of a row operation, and the result when an argument is spoiled.
#ifndef SIE_KERNELS_TESTS_CUDA_OPERANDS_H
#define SIE_KERNELS_TESTS_CUDA_OPERANDS_H

#include <string.h>

#include <algorithm>

#include "cuda/cuda_ops.h"
#include "tests/harness.h"

namespace calls {

using namespace harness;

// Operands of every operation here: 4 rows of 32 columns in 2 sequences.
constexpr int64_t rows = 4, columns = 32, widest = 1 << 20, too_wide = widest + 1;
struct Operands {
  Array<uint16_t> x = Array<uint16_t>(rows * columns, 0x3f80),
                  out = Array<uint16_t>(rows * columns * 2, 0xffff);
  Array<uint16_t> kept;
  Array<uint8_t> bytes = Array<uint8_t>(rows * columns, 0xff);
  Array<float> vector = Array<float>(columns, 1.0f), scale = Array<float>(rows, 1.0f);
  Array<int32_t> cu = {0, 1, 4}, ids = {0, 1, 2, 3}, counts = {4, 2};
  Array<sie_out_item> items = {{SIE_F32, 0, 0, 0, 0}, {SIE_F32, 0, 0, 0, 128}};

  sie_rows tokens() { return {rows, &counts[0]}; }
  sie_rows seqs() { return {2, &counts[1]}; }
  sie_tensor in() { return {x.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr}; }
  sie_tensor to() { return {out.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr}; }
  sie_tensor f8() { return {bytes.data(), columns, SIE_F8E4M3, -1, scale.data(), nullptr, nullptr}; }
  void clear() {
    std::fill(out.begin(), out.end(), uint16_t{0xffff});
    std::fill(bytes.begin(), bytes.end(), uint8_t{0xff});
  }
  // Restores everything to the state that check_places begins with: x may be an output, and out an
  // operand.
  void restore() {
    clear();
    if (kept.empty()) kept = x;
    x = kept;
    std::copy(x.begin(), x.end(), out.begin());
    std::fill(scale.begin(), scale.end(), 0.0f);
  }
  std::vector<uint8_t> all_bytes() const {
    std::vector<uint8_t> all(bytes.begin(), bytes.end());
    for (const Array<uint16_t> *of : {&x, &out}) {
      for (uint16_t v : *of)
        all.push_back(static_cast<uint8_t>(v)), all.push_back(static_cast<uint8_t>(v >> 8));
    }
    const uint8_t *scales = reinterpret_cast<const uint8_t *>(scale.data());
    all.insert(all.end(), scales, scales + scale.size() * sizeof(float));
    return all;
  }
  bool untouched() const {
    for (uint16_t v : out) {
      if (v != 0xffff) return false;
    }
    for (uint8_t v : bytes) {
      if (v != 0xff) return false;
    }
    return true;
  }
};

// The emulator does not run a grid of that many CTAs and returns this: the launcher has accepted
// the call.
constexpr sie_status too_large_to_emulate = SIE_OUT_OF_MEMORY;
inline bool emulated(const Gpu &gpu) { return gpu.on.stream == nullptr; }

template <class Args>
struct Spoiled {
  const char *what;
  sie_status status;
  void (*spoil)(Args *);
};

// The arguments are valid; spoiled in any of these ways they are refused, or there is nothing to do
// (SIE_OK). taken: changes that leave them valid.
template <class Args>
void check_refusals(const char *name, sie_status (*const sie_ops::*entry)(const Args *, const sie_share *),
                    const Args &right, sie_rows Args::*count, Operands *operands,
                    const std::vector<Spoiled<Args>> &list, const std::vector<Spoiled<Args>> &taken = {},
                    const sie_op_bounds &bounds = {}) {
  for (const Gpu &gpu : gpus()) {
    Scratch memory_of_call(gpu.ops, bounds);
    auto share = [&](int32_t part, int32_t parts, const sie_stream *on) {
      sie_share s = memory_of_call.share(part, parts);
      s.on = on;
      return s;
    };
    auto expect = [&](const char *what, sie_status status, const Args &args, const sie_share &share) {
      const sie_status got = (gpu.ops->*entry)(&args, &share);
      CHECK(got == status, "%s %s: %s: status %d, not %d", gpu.ops->name, name, what, got, status);
      CHECK(operands->untouched(), "%s %s: %s: refused, but wrote", gpu.ops->name, name, what);
    };
    const sie_share whole = share(0, 1, &gpu.on);
    for (const Spoiled<Args> &spoiled : list) {
      Args args = right;
      spoiled.spoil(&args);
      expect(spoiled.what, spoiled.status, args, whole);
    }
    expect("half of it", SIE_INVALID_ARGUMENT, right, share(0, 2, &gpu.on));
    expect("its second part", SIE_INVALID_ARGUMENT, right, share(1, 1, &gpu.on));
    expect("no stream", SIE_INVALID_ARGUMENT, right, share(0, 1, nullptr));
    sie_stream turing = gpu.on;
    turing.sm = 75;
    expect("sm_75", SIE_UNSUPPORTED, right, share(0, 1, &turing));
    Args args = right;
    (args.*count).cap = -1;
    expect("fewer rows than none", SIE_INVALID_ARGUMENT, args, whole);
    (args.*count).cap = int64_t{1} << 31;
    expect("more rows than int32", SIE_UNSUPPORTED, args, whole);
    if (emulated(gpu) && bounds.kind == 0) {
      (args.*count).cap = INT32_MAX;
      expect("as many rows as int32", too_large_to_emulate, args, whole);
    }
    args = right;
    (args.*count).n = nullptr;
    expect("no row count", SIE_INVALID_ARGUMENT, args, whole);
    (args.*count).cap = 0;
    expect("no rows", SIE_OK, args, whole);

    auto run = [&](const char *what, const Args &good) {
      CHECK((gpu.ops->*entry)(&good, &whole) == SIE_OK && memory.finish(&gpu.on) == SIE_OK,
            "%s %s: refuses what is right%s", gpu.ops->name, name, what);
      CHECK(!operands->untouched(), "%s %s: wrote nothing%s", gpu.ops->name, name, what);
      operands->clear();
    };
    run("", right);
    for (const Spoiled<Args> &change : taken) {
      args = right;
      change.spoil(&args);
      run(change.what, args);
    }
  }
}

constexpr sie_status invalid = SIE_INVALID_ARGUMENT, unsupported = SIE_UNSUPPORTED;

}  // namespace calls

#endif  // SIE_KERNELS_TESTS_CUDA_OPERANDS_H
