// harness.h — guarded rows, operation cases, and the checks that every case passes on every
// backend.
//
// A case is one operation with one shape and one choice of types. It knows how to call a table's
// entry for a range of units (rows or sequences), which outputs it has, and how far they may be
// from the reference. The harness does the rest (harness.cc): the comparison, intact sentinels,
// every split into shares, each unit alone against all units together, and a poisoned unit that
// must not affect its neighbours. The same list is timed with --bench and listed with --support.
//
// A table need not have every form: it then returns SIE_UNSUPPORTED, leaves the outputs alone and
// is skipped, and the support list shows it. Tables of GPUs get a stream and are called for the
// whole at once (part 0 of 1).
#ifndef SIE_KERNELS_TESTS_HARNESS_H
#define SIE_KERNELS_TESTS_HARNESS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <string>
#include <vector>

#include "ops.h"
#include "tests/check.h"
#include "tests/memory.h"
#include "tests/random.h"

namespace harness {

// The layout of rows in memory. Kernels that move 16 bytes at once may refuse odd rows.
enum Layout {
  dense,    // one after another, from a 64-byte boundary on: the bench
  aligned,  // rows start on 16 bytes, with something between them
  odd,      // strides and starts that are no multiples of 16 bytes, one of them at least
  mixed     // the operand x aligned, all else odd
};
inline Layout operand(Layout layout) { return layout == mixed ? aligned : layout; }

// Rows in memory of their own. Every byte outside the elements is 0xff, which is NaN in every float
// type: before the first row, between the rows, and behind the last (without AddressSanitizer,
// which sees such accesses itself). Rows of SIE_U8 have a scale and a zero point each, and
// optionally an outlier; rows of SIE_F8E4M3 have one scale each (group −1) or one for each 128
// columns (group 128). These are guarded in the same way.
class Rows {
 public:
  struct Quantised {
    bool outliers;
    int32_t group;
  };
  Rows(Random *random, Layout layout, int64_t rows, int64_t columns, int32_t dtype,
       Quantised quantised = {false, -1}, int64_t extra_gap = 0);
  // Dense; for the values that a case expects.
  Rows(int64_t rows, int64_t columns, int32_t dtype, Quantised quantised = {false, -1})
      : Rows(nullptr, dense, rows, columns, dtype, quantised) {}
  Rows(const Rows &) = delete;
  Rows &operator=(const Rows &) = delete;
  ~Rows();

  // The tensor from `first` on.
  sie_tensor tensor(int64_t first = 0) const;
  void set(int64_t r, int64_t c, float x);  // float types
  // The value; a quantised one through its scale, zero point and outlier.
  double get(int64_t r, int64_t c) const;
  void *at(int64_t r) const;
  // For element (r, c) of quantised types.
  float scale(int64_t r, int64_t c = 0) const {
    return scale_[static_cast<size_t>((guard_elements + r) * scales_ + c / group_)];
  }
  int32_t zero(int64_t r) const { return zero_[static_cast<size_t>(guard_elements + r)]; }
  // Column of the outlier, or -1.
  int64_t outlier(int64_t r) const {
    return outlier_.empty() ? -1 : outlier_[static_cast<size_t>(guard_elements + r)].column;
  }

  // Sets every byte back to 0xff.
  void clear();
  // All elements NaN or infinite (or the scales, when quantised).
  void poison(int64_t r);
  bool guards_intact() const;
  // The bytes of rows [first, last), with scales and zero points.
  std::vector<uint8_t> bytes(int64_t first, int64_t last) const;
  bool untouched(int64_t first, int64_t last) const;
  // Copies the elements of rows [first, last) of `from`, which has the same type and columns.
  void copy(const Rows &from, int64_t first, int64_t last);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int32_t dtype() const { return dtype_; }

 private:
  static constexpr int64_t guard_elements = 16;

  int64_t rows_, columns_, ld_, element_, front_, size_;
  int64_t group_ = 1, scales_ = 0;  // columns a scale, scales a row
  int32_t dtype_, scale_group_ = 0;
  uint8_t *memory_;
  Array<float> scale_;
  Array<int32_t> zero_;         // empty: none
  Array<sie_outlier> outlier_;  // empty: none
};

// The number of rows of each sequence of a batch.
class Sequences {
 public:
  explicit Sequences(const std::vector<int32_t> &lengths);
  int64_t count() const { return static_cast<int64_t>(cu_.size()) - 1; }
  int64_t tokens() const { return cu_.back(); }
  int64_t longest() const { return longest_; }
  int64_t first(int64_t b) const { return cu_[static_cast<size_t>(b)]; }
  int64_t length(int64_t b) const { return first(b + 1) - first(b); }
  int64_t longest_of(int64_t b, int64_t count) const;
  // cu_seqlens of `count` sequences from b on, from 0. Valid until the next call for others.
  const int32_t *cu(int64_t b, int64_t count);

 private:
  std::vector<int32_t> cu_;
  Array<int32_t> some_;
  int64_t longest_ = 0;
};

// Where the rows of sequences were in the space that they were kept of, which has other rows
// before, between and behind them.
class Kept {
 public:
  Kept(Random *random, const Sequences &sequences);
  const int32_t *index(int64_t row) const { return &index_[static_cast<size_t>(row)]; }
  const int32_t *cu_whole(int64_t b) const { return &cu_whole_[static_cast<size_t>(b)]; }
  int64_t place(int64_t b, int64_t row) const { return *index(row) - *cu_whole(b); }

 private:
  Array<int32_t> index_, cu_whole_;
};

// A weight, packed by each table that asks for it.
class Weight {
 public:
  Weight(uint32_t compute, int64_t n, int64_t k, std::vector<float> values);
  Weight(const Weight &) = delete;
  Weight &operator=(const Weight &) = delete;
  ~Weight();
  const sie_packed *packed(const sie_ops *ops);
  double norm(int64_t n) const { return norms_[static_cast<size_t>(n)]; }  // of row n

 private:
  struct Form {
    const sie_ops *ops;
    void *memory;
    sie_packed packed;
  };
  uint32_t compute_;
  int64_t n_, k_;
  std::vector<float> values_;
  std::vector<double> norms_;
  std::vector<std::unique_ptr<Form>> forms_;
};

// Writes only a value that differs. So the shares of one call may run at once: the first has
// written all that the others are given.
template <typename T>
void write_changed(T *to, const T &value) {
  if (memcmp(to, &value, sizeof value) != 0) *to = value;
}

// While one of these lives, cases are made without their operands, to be asked for form, shape, units,
// bench, layout, flops and bytes alone: most processes run a small part of a list.
inline bool names_only = false;
struct NamesOnly {
  NamesOnly() { names_only = true; }
  NamesOnly(const NamesOnly &) = delete;
  NamesOnly &operator=(const NamesOnly &) = delete;
  ~NamesOnly() { names_only = false; }
};

class Case {
 public:
  virtual ~Case() = default;

  std::string form;   // operation and types: a line of the support table
  std::string shape;  // sizes
  int64_t units = 0;  // rows or sequences that may be computed alone
  bool bench = false;
  Layout layout = dense;

  // Calls the entry for units [first, first + count), writing their outputs in place. Shares may be
  // called at once after the last of them, which writes all that belongs to the case itself.
  virtual sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) = 0;
  virtual sie_op_bounds bounds() const = 0;
  virtual bool present(const sie_ops *ops) const = 0;
  // Output rows that belong to unit u: [first, last).
  virtual void rows_of(int64_t u, int64_t *first, int64_t *last) const {
    *first = u;
    *last = u + 1;
  }
  // Computes what verify compares with; the reference may be called.
  virtual void expect() = 0;
  virtual void verify(const char *backend) = 0;
  // Makes the inputs of unit u NaN. After that the case's values are not used again.
  virtual void poison(int64_t u) = 0;
  virtual double flops() const { return 0; }
  virtual double bytes() const { return 0; }

  std::vector<Rows *> outputs;

 protected:
  // Row counts of a call: cap, and n where kernels read it. Valid until the next call with the same
  // slot and another n.
  sie_rows row_count(int slot, int64_t cap, int64_t n) {
    int32_t *count = &counts_[static_cast<size_t>(slot)];
    write_changed(count, static_cast<int32_t>(n));
    return {cap, count};
  }
  // True in the first call of a run: shares run from the last to the first.
  static bool first_share(const sie_share *share) { return share->part == share->parts - 1; }

 private:
  Array<int32_t> counts_ = Array<int32_t>(2);
};

using CaseList = std::vector<std::unique_ptr<Case>>;

// Adds each config: unchanged if it is for the bench, else once with aligned and once with odd
// rows. Every other config is added a third time with mixed rows, where the operation has an
// operand that may be aligned alone.
template <typename Config>
std::vector<std::pair<Config, Layout>> in_layouts(const std::vector<Config> &configs,
                                                  bool with_mixed = false) {
  std::vector<std::pair<Config, Layout>> all;
  for (const Config &config : configs) {
    if (config.bench) {
      all.emplace_back(config, dense);
      continue;
    }
    all.emplace_back(config, aligned);
    all.emplace_back(config, odd);
    if (with_mixed && (&config - configs.data()) % 2 == 1) all.emplace_back(config, mixed);
  }
  return all;
}
template <typename CaseOf, typename Config>
std::unique_ptr<Case> in_layout(const Config &config, Layout layout, int seed) {
  std::unique_ptr<Case> c(new CaseOf(config, layout, seed));
  c->layout = layout;
  if (layout == odd) c->shape += " odd rows";
  if (layout == mixed) c->shape += " mixed rows";
  return c;
}

// The list, by operation. Each case is built when its turn comes: all at once would not fit in
// memory.
using Make = std::unique_ptr<Case> (*)(int index);
struct Group {
  const char *name;
  Make make;  // null when the index is past the end
};
// Makes the case without its operands.
inline std::unique_ptr<Case> named(Make make, int index) {
  const NamesOnly names;
  return make(index);
}
const std::vector<Group> &groups();

std::unique_ptr<Case> make_embed(int index);
std::unique_ptr<Case> make_layernorm(int index);
std::unique_ptr<Case> make_linear(int index);
std::unique_ptr<Case> make_production_linear(int index);
std::unique_ptr<Case> make_quantise(int index);
std::unique_ptr<Case> make_attention(int index);
std::unique_ptr<Case> make_production_attention(int index);
std::unique_ptr<Case> make_gather(int index);
std::unique_ptr<Case> make_pool(int index);
std::unique_ptr<Case> make_output(int index);
std::unique_ptr<Case> make_rope(int index);
std::unique_ptr<Case> make_pool_output(int index);
std::unique_ptr<Case> make_muvera(int index);
std::unique_ptr<Case> make_keep(int index);
std::unique_ptr<Case> make_sparse(int index);
std::unique_ptr<Case> make_splade(int index);
std::unique_ptr<Case> make_smve(int index);
std::unique_ptr<Case> make_maxsim(int index);
std::unique_ptr<Case> make_lora(int index);
std::unique_ptr<Case> make_mark(int index);
std::unique_ptr<Case> make_join(int index);
std::unique_ptr<Case> make_spans(int index);
std::unique_ptr<Case> make_pairs(int index);
std::unique_ptr<Case> make_take(int index);
std::unique_ptr<Case> make_product(int index);
std::unique_ptr<Case> make_dots(int index);
std::unique_ptr<Case> make_lstm(int index);
std::unique_ptr<Case> make_linear_norm(int index);

// A GPU's table and the stream to call it with. A program adds its GPUs before the first case:
// emulated ones (cuda/emulated.h), or real ones together with a `memory` that they can reach.
struct Gpu {
  const sie_ops *ops;
  sie_stream on;
};
std::vector<Gpu> &gpus();

// Tables of CPUs that are emulated; a program adds them before the first case (emulated_cpu.h).
std::vector<const sie_ops *> &emulated_cpus();

// The tables that the list runs on. machine: ref and every CPU table of this build that the machine
// can run; emulated: emulated_cpus(); host: both of these; gpu: gpus().
enum class Tables { all, host, machine, emulated, gpu };
void select(Tables tables);  // before the first case
const std::vector<const sie_ops *> &backends();

// Whether the generic kernels of the table are its own: the higher tables of a family have those of
// a lower one (kernels/cpu/table.cc, table_arm64.cc).
inline bool has_own_generic(const sie_ops *ops) {
  return ops->isa <= SIE_ISA_AVX512 || ops->isa == SIE_ISA_NEON;
}

// The stream to call a GPU's table with; NULL for other tables.
const sie_stream *stream_of(const sie_ops *ops);

// Scratch of exactly the size that the table states.
class Scratch {
 public:
  Scratch(const sie_ops *ops, const sie_op_bounds &bounds);
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  ~Scratch() { memory.release(memory_); }
  sie_share share(int32_t part, int32_t parts);
  bool intact() const;

 private:
  uint8_t *memory_;
  int64_t bytes_;
  const sie_stream *on_;
};

void run_group(const Group &group);
// Checks shapes of real models on every CPU table: shares and units alone against the whole, bit
// for bit, without the reference.
void run_production(int part, int parts);
void bench_all(const char *filter);

// Runs all of the case. Returns false where the table lacks the form; the support table says
// whether it should have it.
bool run_whole(Case &c, const sie_ops *ops);
// Whether the case is small enough for the table. ref runs at least the first case of each form.
bool affordable(const Case &c, const sie_ops *ops, bool first_of_form);

[[gnu::format(printf, 1, 2)]] std::string text(const char *format, ...);
const char *dtype_text(int32_t dtype);
// The entries of an enumeration in names of forms.
const char *pooling_text(int32_t pooling);

// Half a step of e4m3 relative to |x|, with a little room; half the least step is scale·2⁻¹⁰.
constexpr double e4m3_half_step = 0.0625 * 1.001;

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_HARNESS_H
