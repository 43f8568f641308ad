#include "attention_problem.h"

#include <math.h>

#include <algorithm>

#include "common/tol.h"
#include "cuda/attention_disentangled.h"

namespace attention_test {

using sie_cuda::AttentionItem;
using sie_cuda::AttentionParams;
using sie_cuda::AttentionShape;
using sie_cuda::AttentionWork;
using std::vector;

namespace {

constexpr float kLargest = 2;  // of an operand's elements

// Items behind the end of a work list have rows far away, so a kernel that takes one fails there.
constexpr size_t kBehind = 16 * sizeof(AttentionItem);
constexpr uint8_t kFarRows = 0x11;

// `gap`: another for each operand, so that no two strides are the same.
std::unique_ptr<harness::Rows> make_rows(harness::Random *random, int64_t rows, int64_t columns,
                                         int32_t dtype, int64_t gap) {
  std::unique_ptr<harness::Rows> x(
      new harness::Rows(random, harness::aligned, rows, columns, dtype, {false, -1}, gap));
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < columns; c++) x->set(r, c, random->real() * kLargest);
  }
  return x;
}

// What attention_shape would return for this choice of warps and blocks.
AttentionShape shape_of(const Form &form, int head_dim) {
  AttentionShape shape = {};
  shape.warps = form.warps;
  shape.resident_blocks = form.resident;
  const int64_t queries = int64_t{form.warps} * 16 * head_dim * 2,
                block = int64_t{sie_cuda::attention_block_keys(head_dim)} * head_dim * 4,
                unit = sie_cuda::attention_warp_bytes(head_dim);
  shape.shared_bytes = std::max(queries + form.resident * block, unit);
  shape.warp_units = static_cast<int32_t>(std::min<int64_t>(form.warps, shape.shared_bytes / unit));
  return shape;
}

}  // namespace

Problem::Problem(const Config &config) : c_(config), cu_q_(1, 0), cu_kv_(1, 0) {
  for (const Lengths &l : c_.lengths) {
    cu_q_.push_back(cu_q_.back() + l.queries);
    cu_kv_.push_back(cu_kv_.back() + l.keys - l.prefix);
  }
  seqs_ = static_cast<int32_t>(c_.lengths.size());
  rows_ = cu_q_.back();
  for (int32_t h = 0; h < c_.heads; h++) slopes_.push_back(0.05f * static_cast<float>(h + 1));
  harness::Random random(static_cast<uint32_t>(c_.head_dim));
  // The operands do not depend on the reach, nor a distance's bias.
  const int32_t level = c_.level >= 0 ? c_.level : c_.reach;
  for (int32_t h = 0; h < c_.heads && c_.reach >= 0; h++) {
    harness::Random by_distance(static_cast<uint32_t>(1000 + h));
    vector<float> near(static_cast<size_t>(2 * level + 1));
    for (int32_t i = 0; i <= level; i++) {
      near[static_cast<size_t>(level + i)] = by_distance.real() * kLargest;
      near[static_cast<size_t>(level - i)] = by_distance.real() * kLargest;
    }
    for (int32_t i = -c_.reach; i <= c_.reach; i++)
      bias_.push_back(near[static_cast<size_t>(level + std::clamp(i, -level, level))]);
  }
  const int64_t q_columns = int64_t{c_.heads} * c_.head_dim, kv_columns = int64_t{c_.kv_heads} * c_.head_dim;
  q_ = make_rows(&random, rows_, q_columns, c_.dtype, 24);
  k_ = make_rows(&random, cu_kv_.back(), kv_columns, c_.dtype, 48);
  for (int32_t first : cu_kv_) {
    for (int32_t r = first; r < std::min(first + 64, cu_kv_.back()) && c_.steep != 1; r++) {
      for (int64_t c = 0; c < kv_columns; c++) k_->set(r, c, static_cast<float>(k_->get(r, c)) * c_.steep);
    }
  }
  v_ = make_rows(&random, cu_kv_.back(), kv_columns, c_.dtype, 72);
  int32_t prefix_rows = 0;
  for (const Lengths &l : c_.lengths) {
    prefix_first_.push_back(static_cast<int32_t>(5 * prefix_first_.size() % 7));
    prefix_keys_.push_back(l.prefix);
    if (l.prefix > 0) prefix_rows = std::max(prefix_rows, prefix_first_.back() + l.prefix);
  }
  if (prefix_rows > 0) {
    prefix_k_ = make_rows(&random, prefix_rows, kv_columns, c_.dtype, 96);
    prefix_v_ = make_rows(&random, prefix_rows, kv_columns, c_.dtype, 120);
  }
  for (int32_t i = 0; i < 2 * c_.bucket_reach + 1; i++) buckets_.push_back(i);
  const int64_t table_rows = static_cast<int64_t>(buckets_.size());
  pos_key_ = make_rows(&random, table_rows, q_columns, c_.dtype, 40);
  pos_query_ = make_rows(&random, table_rows, q_columns, c_.dtype, 56);
  y_.reset(new harness::Rows(&random, harness::aligned, rows_, q_columns, c_.dtype));
  expected_.reset(new harness::Rows(rows_, q_columns, SIE_F32));
}

sie_attention_args Problem::args() {
  sie_attention_args a = {};
  a.q_rows = {rows_, &rows_};
  a.seqs = {seqs_, &seqs_};
  a.cu_q = cu_q_.data(), a.cu_kv = cu_kv_.data();
  for (const Lengths &l : c_.lengths) a.max_kv = std::max<int64_t>(a.max_kv, l.keys);
  a.q = q_->tensor(), a.k = k_->tensor(), a.v = v_->tensor(), a.y = y_->tensor();
  a.heads = c_.heads, a.kv_heads = c_.kv_heads, a.head_dim = c_.head_dim;
  a.mask = c_.mask, a.window = c_.window;
  a.scale = 1 / sqrtf(static_cast<float>(c_.head_dim));
  a.alibi_slopes = c_.alibi ? slopes_.data() : nullptr;
  a.queries_first = c_.first ? 1 : 0;
  if (c_.reach >= 0) a.bias = bias_.data(), a.bias_reach = c_.reach;
  if (c_.bucket_reach >= 0) {
    if (c_.by_key) a.pos_key = pos_key_->tensor();
    if (c_.by_query) a.pos_query = pos_query_->tensor();
    a.buckets = buckets_.data(), a.bucket_reach = c_.bucket_reach;
    a.position_rows = static_cast<int32_t>(buckets_.size());
    a.scale = 1 / sqrtf(3.0f * static_cast<float>(c_.head_dim));
  }
  if (prefix_k_ != nullptr) {
    a.prefix_k = prefix_k_->tensor(), a.prefix_v = prefix_v_->tensor();
    a.prefix_first = prefix_first_.data(), a.prefix_keys = prefix_keys_.data();
  }
  return a;
}

Bits Problem::launch(int32_t sm, int32_t multiprocessors,
                     const std::function<sie_status(const sie_stream *)> &start) {
  const sie_stream on = {nullptr, sm, multiprocessors, sm >= 90, 0};
  y_->clear();
  sie_status status = start(&on);
  if (status == SIE_OK) status = harness::memory.finish(&on);
  CHECK(status == SIE_OK, "%s: status %d", text().c_str(), status);
  CHECK(y_->guards_intact(), "%s: wrote between or beside the rows", text().c_str());
  return y_->bytes(0, rows_);
}

Bits Problem::run(int32_t sm, int32_t multiprocessors) {
  sie_attention_args a = args();
  sie_op_bounds bounds = {};
  bounds.rows = std::max(cu_q_.back(), cu_kv_.back());
  bounds.seqs = seqs_;
  list_.assign(static_cast<size_t>(sie_cuda::attention_work_bytes(&bounds)) + kBehind, kFarRows);
  sie_status listed = sie_cuda_ops(sm)->attention_work(&a, list_.data());
  CHECK(listed == SIE_OK, "%s: no work list, status %d", text().c_str(), listed);
  a.work = list_.data();
  return launch(sm, multiprocessors, [&](const sie_stream *on) {
    const sie_share share = {0, 1, nullptr, 0, on};
    return sie_cuda::attention(&a, &share);
  });
}

Bits Problem::run_as(const Form &form) {
  vector<AttentionItem> cta, warp;
  for (size_t b = 0; b < c_.lengths.size(); b++) {
    const Lengths l = c_.lengths[b];
    const bool single = form.warp_form && l.keys <= sie_cuda::kAttentionWarpKeys;
    const int32_t step = single ? 32 : form.rows;
    for (int32_t i = 0; i < l.queries; i += step) {
      const int32_t position = c_.first ? i : l.keys - l.queries + i;
      const AttentionItem item = {
          cu_q_[b] + i, std::min(step, l.queries - i), cu_kv_[b], l.keys, position, 0, prefix_first_[b],
          l.prefix};
      (single ? warp : cta).push_back(item);
    }
  }
  const AttentionWork head = {
      static_cast<int32_t>(cta.size()), static_cast<int32_t>(warp.size()), 0, 0, 0, {}};
  cta.insert(cta.end(), warp.begin(), warp.end());
  list_.assign(sizeof head + cta.size() * sizeof(AttentionItem) + kBehind, kFarRows);
  memcpy(list_.data(), &head, sizeof head);
  if (!cta.empty()) memcpy(list_.data() + sizeof head, cta.data(), cta.size() * sizeof(AttentionItem));

  const AttentionShape shape = shape_of(form, c_.head_dim);
  sie_attention_args a = args();
  a.work = list_.data();
  const AttentionParams params = sie_cuda::attention_params(&a, shape);
  return launch(90, 132, [&](const sie_stream *on) {
    if (a.buckets != nullptr) return sie_cuda::attention_disentangled(&a, params, form.ctas, on);
    return sie_cuda::attention_launch(c_.dtype, c_.head_dim, shape, form.ctas, on, params);
  });
}

Bits Problem::run_wide(int32_t rows, int32_t ctas) {
  vector<AttentionItem> items;
  for (size_t b = 0; b < c_.lengths.size(); b++) {
    const Lengths l = c_.lengths[b];
    for (int32_t i = 0; i < l.queries; i += rows) {
      const int32_t position = c_.first ? i : l.keys - l.queries + i;
      items.push_back({cu_q_[b] + i, std::min(rows, l.queries - i), cu_kv_[b], l.keys, position, 0,
                       prefix_first_[b], l.prefix});
    }
  }
  AttentionWork head = {};
  head.wide_items = static_cast<int32_t>(items.size());
  list_.assign(sizeof head + items.size() * sizeof(AttentionItem) + kBehind, kFarRows);
  memcpy(list_.data(), &head, sizeof head);
  memcpy(list_.data() + sizeof head, items.data(), items.size() * sizeof(AttentionItem));
  sie_attention_args a = args();
  a.work = list_.data();
  const AttentionParams params = sie_cuda::attention_params(&a, {});
  return launch(90, ctas,
                [&](const sie_stream *on) { return sie_cuda::attention_launch_wide(&a, params, on); });
}

Bits Problem::of(const Bits &bits, size_t b) const {
  const auto row = static_cast<ptrdiff_t>(bits.size() / static_cast<size_t>(rows_));
  return Bits(bits.begin() + row * cu_q_[b], bits.begin() + row * cu_q_[b + 1]);
}

void Problem::poison(size_t b) {
  for (int32_t r = cu_kv_[b]; r < cu_kv_[b + 1]; r++) {
    for (int64_t c = 0; c < int64_t{c_.kv_heads} * c_.head_dim; c++) k_->set(r, c, NAN), v_->set(r, c, NAN);
  }
}

void Problem::verify() {
  sie_attention_args a = args();
  a.y = expected_->tensor();
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_ATTENTION;
  bounds.max_len = a.max_kv;
  bounds.head_dim = c_.head_dim;
  vector<uint8_t> scratch(static_cast<size_t>(sie_ref_ops()->scratch_bytes(&bounds)));
  const sie_share share = {0, 1, scratch.data(), static_cast<int64_t>(scratch.size()), nullptr};
  sie_status status = sie_ref_ops()->attention(&a, &share);
  CHECK(status == SIE_OK, "%s: the reference says %d", text().c_str(), status);

  // |q|, |k| and table rows ≤ 2√D a head, so that scores stay within 4√D, with three terms within
  // 4√(3·D); and what the slopes take off.
  double score = kLargest * kLargest * c_.steep * sqrt(c_.head_dim);
  if (c_.alibi) score += static_cast<double>(slopes_.back()) * static_cast<double>(a.max_kv);
  if (c_.reach >= 0) score += kLargest;
  if (c_.bucket_reach >= 0) score *= sqrt(3);
  const double own = sie_tol_attention(c_.dtype, c_.head_dim, score, kLargest);
  for (int64_t r = 0; r < rows_; r++) {
    for (int64_t c = 0; c < y_->columns(); c++) {
      const double got = y_->get(r, c), want = expected_->get(r, c),
                   tolerance = own + sie_tol_store(c_.dtype, want);
      CHECK(fabs(got - want) <= tolerance, "%s: y[%lld, %lld] = %g, not %g ± %.2g", text().c_str(),
            static_cast<long long>(r), static_cast<long long>(c), got, want, tolerance);
    }
  }
}

std::string Problem::text() const {
  static const char *const masks[] = {"full", "causal", "window"};
  char line[120];
  snprintf(line, sizeof line, "%s D=%d H=%d/%d mask=%s %d%s%s%s B=%zu", c_.dtype == SIE_BF16 ? "bf16" : "f16",
           c_.head_dim, c_.heads, c_.kv_heads, masks[c_.mask], c_.window, c_.alibi ? " alibi" : "",
           c_.reach >= 0 ? " bias" : (c_.bucket_reach >= 0 ? " disentangled" : ""),
           prefix_k_ != nullptr ? " prefix" : "", c_.lengths.size());
  return line;
}

}  // namespace attention_test
