// self_test.cc — the start-up test of a compute class, which decides whether the device offers the
// class.
#include "self_test.h"

#include <math.h>
#include <string.h>

#include <initializer_list>

#include "common/dtype.h"
#include "float_state.h"
#include "memory.h"

namespace sie {

namespace {

// Ragged on purpose: not multiples of a vector, a tile or a row block.
constexpr int64_t rows_max = 69, n = 83, k = 135;
constexpr int32_t heads = 2, head_dim = 32;
constexpr int64_t width = heads * head_dim;
constexpr int32_t cu[] = {0, 1, 18, 18, 51, 69};
constexpr int32_t n_seqs = 5;
static_assert(cu[n_seqs] == rows_max, "the sequences fill the rows");

// Deterministic values in about −1 … 1; every 61st is an outlier.
class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed) {}
  float next() {
    state_ = state_ * 1664525u + 1013904223u;
    float x = static_cast<float>(state_ >> 8) * (2.0f / 16777216.0f) - 1.0f;
    return ++count_ % 61 == 0 ? x * 8 : x;
  }

 private:
  uint32_t state_, count_ = 0;
};

class Test {
 public:
  Test(const sie_ops *ops, uint32_t compute) : ops_(ops), ref_(sie_ref_ops()), compute_(compute) {
    activation_ = compute == SIE_COMPUTE_BF16 ? SIE_BF16
                                              : (compute == SIE_COMPUTE_INT8 ? ops->act_dtype_int8 : SIE_F32);
  }
  ~Test() {
    for (Block &block : blocks_) release(&block);
  }

  // Returns what is wrong, or null.
  const char *run() {
    if (const char *why = test_linear()) return why;
    if (const char *why = test_layernorm()) return why;
    return test_attention();
  }

  // Makes inputs, weights and outputs; false if there is no memory.
  bool prepare() {
    x_ = random_rows(k, compute_ == SIE_COMPUTE_BF16 ? SIE_BF16 : SIE_F32, 1);
    q_ = random_rows(width, activation_, 2);
    k_ = random_rows(width, activation_, 3);
    v_ = random_rows(width, activation_, 4);
    norm_x_ = random_rows(k, activation_, 5);
    residual_ = random_rows(n, SIE_F32, 6);
    xq_ = rows_of(k, SIE_U8);
    y_ = rows_of(k > n ? k : n, SIE_F32);
    y_ref_ = rows_of(k > n ? k : n, SIE_F32);
    y_alone_ = rows_of(k > n ? k : n, SIE_F32);
    vector_ = array_of<float>(next_block(), k > n ? k : n);
    weight_ = array_of<float>(next_block(), n * k);
    packed_ = packed(ops_);
    packed_ref_ = packed(ref_);
    sie_op_bounds bounds = {};
    bounds.compute = compute_;
    bounds.rows = rows_max;
    bounds.n = n;
    bounds.k = k;
    bounds.c = k;
    bounds.max_len = rows_max;
    bounds.head_dim = head_dim;
    bounds.heads = heads;
    int64_t bytes = 0;
    for (const sie_ops *table : {ops_, ref_}) {
      for (uint32_t kind : {SIE_OP_LAYERNORM, SIE_OP_LINEAR, SIE_OP_QUANTISE_ROWS, SIE_OP_ATTENTION}) {
        bounds.kind = kind;
        int64_t need = table->scratch_bytes(&bounds);
        bytes = need > bytes ? need : bytes;
      }
    }
    share_ = {0, 1, array_of<char>(next_block(), bytes + 64), bytes + 64, nullptr};
    if (failed_ || vector_ == nullptr || weight_ == nullptr || packed_.data == nullptr ||
        packed_ref_.data == nullptr || share_.scratch == nullptr) {
      return false;
    }
    Numbers numbers(7);
    for (int64_t i = 0; i < (k > n ? k : n); i++) vector_[i] = numbers.next();
    for (int64_t i = 0; i < n * k; i++) weight_[i] = numbers.next();
    ops_->pack(compute_, n, k, 0, n, weight_, k, const_cast<void *>(packed_.data));
    ref_->pack(compute_, n, k, 0, n, weight_, k, const_cast<void *>(packed_ref_.data));
    return true;
  }

 private:
  // Rows of up to `columns` values with one line of slack.
  sie_tensor rows_of(int64_t columns, int32_t dtype) {
    sie_tensor t = {};
    t.dtype = dtype;
    t.ld = columns + 5;
    t.p = array_of<float>(next_block(), rows_max * t.ld + 16);
    if (dtype == SIE_U8) {
      t.scale_group = -1;
      t.scale = array_of<float>(next_block(), rows_max);
      t.zero = array_of<int32_t>(next_block(), rows_max);
      t.outlier = array_of<sie_outlier>(next_block(), rows_max);
      failed_ = failed_ || t.scale == nullptr || t.zero == nullptr || t.outlier == nullptr;
    }
    failed_ = failed_ || t.p == nullptr;
    return t;
  }

  sie_tensor random_rows(int64_t columns, int32_t dtype, uint32_t seed) {
    sie_tensor t = rows_of(columns, dtype);
    Numbers numbers(seed);
    for (int64_t r = 0; r < rows_max && t.p != nullptr; r++) {
      for (int64_t c = 0; c < columns; c++) {
        float x = numbers.next();
        if (dtype == SIE_BF16) {
          static_cast<uint16_t *>(t.p)[r * t.ld + c] = sie_bf16_from_f32(x);
        } else {
          static_cast<float *>(t.p)[r * t.ld + c] = x;
        }
      }
    }
    return t;
  }

  sie_packed packed(const sie_ops *table) {
    return {compute_, 0, n, k, array_of<char>(next_block(), table->packed_bytes(compute_, n, k))};
  }

  // Rows [first, first + count) of a tensor.
  static sie_tensor from(sie_tensor t, int64_t first) {
    int64_t element = t.dtype == SIE_F32 ? 4 : (t.dtype == SIE_BF16 ? 2 : 1);
    t.p = static_cast<char *>(t.p) + first * t.ld * element;
    if (t.scale != nullptr) t.scale += first;
    if (t.zero != nullptr) t.zero += first;
    if (t.outlier != nullptr) t.outlier += first;
    return t;
  }

  // Computes `count` rows of y from `first` on, with the given table.
  bool linear(const sie_ops *table, const sie_packed &w, int64_t first, int32_t count, const sie_tensor &y) {
    sie_linear_args a = {};
    a.rows = {rows_max, &count};
    a.n = n;
    a.k = k;
    a.x = from(compute_ == SIE_COMPUTE_INT8 ? xq_ : x_, first);
    a.w = &w;
    a.bias = vector_;
    a.act = SIE_ACT_GELU_ERF;
    a.residual = from(residual_, first);
    a.y = y;
    return table->linear(&a, &share_) == SIE_OK;
  }

  const char *test_linear() {
    int32_t all = rows_max;
    if (compute_ == SIE_COMPUTE_INT8) {
      sie_quantise_rows_args a = {};
      a.rows = {rows_max, &all};
      a.c = k;
      a.x = x_;
      a.y = xq_;
      if (ops_->quantise_rows(&a, &share_) != SIE_OK) return "cannot quantise rows";
    }
    if (!linear(ops_, packed_, 0, all, y_) || !linear(ref_, packed_ref_, 0, all, y_ref_))
      return "has no linear";
    // INT8: a weight at a tie may round either way: half a step of 8/127 at an outlier.
    if (!close(n, compute_ == SIE_COMPUTE_INT8 ? 1e-2 : 2e-5)) return "differs from the reference in linear";
    for (int32_t count : {1, 7, 31, 64, 65}) {
      int64_t first = rows_max - count;
      if (!linear(ops_, packed_, first, count, y_alone_)) return "has no linear";
      if (!same(n, first, count)) return "depends on the batch in linear";
    }
    return nullptr;
  }

  bool layernorm(const sie_ops *table, int64_t first, int32_t count, const sie_tensor &y) {
    sie_layernorm_args a = {};
    a.rows = {rows_max, &count};
    a.c = k;
    a.x = from(norm_x_, first);
    a.gamma = vector_;
    a.beta = vector_;
    a.eps = 1e-12f;
    a.y = y;
    return table->layernorm(&a, &share_) == SIE_OK;
  }

  const char *test_layernorm() {
    if (!layernorm(ops_, 0, rows_max, y_) || !layernorm(ref_, 0, rows_max, y_ref_)) return "has no layernorm";
    if (!close(k, 2e-5)) return "differs from the reference in layernorm";
    if (!layernorm(ops_, 40, 3, y_alone_)) return "has no layernorm";
    return same(k, 40, 3) ? nullptr : "depends on the batch in layernorm";
  }

  bool attention(const sie_ops *table, int32_t first_seq, int32_t count, const sie_tensor &y) {
    int32_t offsets[n_seqs + 1];
    for (int32_t b = 0; b <= count; b++) offsets[b] = cu[first_seq + b] - cu[first_seq];
    int32_t query_rows = offsets[count];
    sie_attention_args a = {};
    a.q_rows = {rows_max, &query_rows};
    a.seqs = {n_seqs, &count};
    a.cu_q = a.cu_kv = offsets;
    a.max_kv = rows_max;
    a.q = from(q_, cu[first_seq]);
    a.k = from(k_, cu[first_seq]);
    a.v = from(v_, cu[first_seq]);
    a.heads = a.kv_heads = heads;
    a.head_dim = head_dim;
    a.scale = 0.17677669f;
    a.y = y;
    a.y.dtype = activation_;
    return table->attention(&a, &share_) == SIE_OK;
  }

  // Attention writes the activation type; this widens it, so that results compare as f32.
  void widen(const sie_tensor &y, int64_t count) const {
    if (activation_ != SIE_BF16) return;
    for (int64_t r = count - 1; r >= 0; r--) {
      uint16_t narrow[width];
      memcpy(narrow, static_cast<uint16_t *>(y.p) + r * y.ld, sizeof narrow);
      for (int64_t c = 0; c < width; c++)
        static_cast<float *>(y.p)[r * y.ld + c] = sie_f32_from_bf16(narrow[c]);
    }
  }

  const char *test_attention() {
    if (!attention(ops_, 0, n_seqs, y_) || !attention(ref_, 0, n_seqs, y_ref_)) return "has no attention";
    widen(y_, rows_max);
    widen(y_ref_, rows_max);
    // bf16: probabilities and results are rounded to 8 bits.
    if (!close(width, activation_ == SIE_BF16 ? 2e-2 : 2e-5))
      return "differs from the reference in attention";
    if (!attention(ops_, 3, 1, y_alone_)) return "has no attention";
    widen(y_alone_, cu[4] - cu[3]);
    return same(width, cu[3], cu[4] - cu[3]) ? nullptr : "depends on the batch in attention";
  }

  // Compares with the reference, relative to the largest result.
  bool close(int64_t columns, double tolerance) const {
    double largest = 0, worst = 0;
    for (int64_t r = 0; r < rows_max; r++) {
      for (int64_t c = 0; c < columns; c++) {
        double y = static_cast<double>(static_cast<float *>(y_.p)[r * y_.ld + c]);
        double expected = static_cast<double>(static_cast<float *>(y_ref_.p)[r * y_ref_.ld + c]);
        if (!isfinite(y)) return false;
        largest = fmax(largest, fabs(expected));
        worst = fmax(worst, fabs(y - expected));
      }
    }
    return worst <= tolerance * largest;
  }

  bool same(int64_t columns, int64_t first, int64_t count) const {
    for (int64_t r = 0; r < count; r++) {
      const float *together = static_cast<float *>(y_.p) + (first + r) * y_.ld;
      const float *alone = static_cast<float *>(y_alone_.p) + r * y_alone_.ld;
      if (memcmp(together, alone, static_cast<size_t>(columns) * sizeof(float)) != 0) return false;
    }
    return true;
  }

  Block *next_block() { return &blocks_[used_++]; }

  const sie_ops *ops_, *ref_;
  uint32_t compute_;
  int32_t activation_;
  Block blocks_[20] = {};
  int used_ = 0;
  bool failed_ = false;
  sie_tensor x_ = {}, xq_ = {}, q_ = {}, k_ = {}, v_ = {}, norm_x_ = {}, residual_ = {};
  sie_tensor y_ = {}, y_ref_ = {}, y_alone_ = {};
  sie_packed packed_ = {}, packed_ref_ = {};
  float *vector_ = nullptr, *weight_ = nullptr;
  sie_share share_ = {};
};

}  // namespace

sie_status self_test(const sie_ops *ops, uint32_t compute, const char **problem) {
  FloatState plain;
  *problem = nullptr;
  bool complete = ops->linear != nullptr && ops->layernorm != nullptr && ops->attention != nullptr &&
                  (compute != SIE_COMPUTE_INT8 || ops->quantise_rows != nullptr);
  if (complete) {
    Test test(ops, compute);
    if (!test.prepare()) return SIE_OUT_OF_MEMORY;
    *problem = test.run();
  } else {
    *problem = "is incomplete";
  }
  return *problem == nullptr ? SIE_OK : SIE_UNSUPPORTED;
}

}  // namespace sie
