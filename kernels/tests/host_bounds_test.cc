// host_bounds_test.cc — on every CPU table: what lies behind a row holds a number that a kernel would
// use or change, where a NaN would hide that it was looked at.
#include <math.h>

#include "harness.h"

using namespace harness;

TEST(host_splade_keeps_to_its_columns) {
  constexpr int64_t n = 37, k = 8, ld = n + 3;
  const int32_t two = 2, rows = 3, cu[] = {0, 2, rows};
  for (const sie_ops *ops : backends()) {
    if (stream_of(ops) != nullptr) continue;
    Random random(91);
    Array<float> x(rows * k), y(2 * ld, -1.0f);
    std::vector<float> values(n * k);
    for (float &v : x) v = random.real();
    for (float &v : values) v = random.real();
    Weight weight(SIE_COMPUTE_F32, n, k, values);
    sie_op_bounds bounds = {};
    bounds.kind = SIE_OP_SPLADE;
    bounds.compute = SIE_COMPUTE_F32;
    bounds.rows = bounds.max_len = rows;
    bounds.seqs = 2;
    bounds.n = n, bounds.k = k;
    const int64_t used = ops->scratch_bytes(&bounds);
    Array<float> scratch(static_cast<size_t>(used / 4 + 64), 1.0f);
    sie_splade_args a = {};
    a.tokens = {rows, &rows}, a.seqs = {2, &two};
    a.cu_seqlens = cu;
    a.n = n, a.k = k;
    a.x.p = x.data(), a.x.ld = k, a.x.dtype = SIE_F32;
    a.w = weight.packed(ops);
    a.y.p = y.data(), a.y.ld = ld, a.y.dtype = SIE_F32;
    const sie_share share = {0, 1, scratch.data(), used, nullptr};
    CHECK(ops->splade(&a, &share) == SIE_OK, "%s: splade is refused", ops->name);
    for (int64_t b = 0; b < 2; b++) {
      for (int64_t c = 0; c < ld; c++) {
        const float v = y[static_cast<size_t>(b * ld + c)];
        CHECK((v == -1) == (c >= n), "%s: y[%lld, %lld] = %g", ops->name, static_cast<long long>(b),
              static_cast<long long>(c), static_cast<double>(v));
      }
    }
  }
}

// Every place of the scratch looks like a projection on one of the columns, or behind them.
TEST(host_smve_reads_what_it_has_kept) {
  struct Looks {
    double value;
    int64_t column;
  };
  constexpr int64_t c = 4, width = 3;
  for (const sie_ops *ops : backends()) {
    if (stream_of(ops) != nullptr) continue;
    for (int32_t which = 0; which < 8; which++) {
      const int32_t rows = 1 + which % 2, top = 1 + which / 2 % 2, repetitions = 1 + which / 4;
      const int64_t most = repetitions * width;
      std::vector<uint8_t> first;
      for (int64_t column = -1; column <= most + 1; column++) {
        Random random(92);
        Array<float> x(2 * c), anchors(static_cast<size_t>(most * c));
        for (float &v : x) v = random.real();
        for (float &v : anchors) v = random.real();
        const int32_t one = 1, whole[] = {0, rows};
        sie_op_bounds bounds = {};
        bounds.kind = SIE_OP_SMVE;
        bounds.rows = bounds.max_len = rows;
        bounds.seqs = 1;
        bounds.c = c;
        bounds.repetitions = repetitions, bounds.top = top;
        bounds.n = most;
        const int64_t used = ops->scratch_bytes(&bounds);
        Array<Looks> scratch(static_cast<size_t>(used / 16 + 8), Looks{0.5, column});
        sie_out_item item = {};
        item.dtype = SIE_F32, item.dims = static_cast<int32_t>(most) + 1;
        Array<uint8_t> out(static_cast<size_t>(16 + 8 * (most + 1)), 0x55);
        sie_smve_args a = {};
        a.rows = {rows, &rows}, a.seqs = {1, &one};
        a.cu_seqlens = whole;
        a.c = c;
        a.x.p = x.data(), a.x.ld = c, a.x.dtype = SIE_F32;
        a.repetitions = repetitions, a.width = width, a.top = top;
        a.is_query = 1;
        a.anchors = anchors.data();
        a.items = &item, a.out = out.data();
        const sie_share share = {0, 1, scratch.data(), used, nullptr};
        CHECK(ops->smve(&a, &share) == SIE_OK, "%s: smve is refused", ops->name);
        const std::vector<uint8_t> bytes(out.begin(), out.end());
        if (first.empty()) first = bytes;
        CHECK(bytes == first, "%s: %d rows: other values where the scratch held column %lld", ops->name, rows,
              static_cast<long long>(column));
        for (size_t i = static_cast<size_t>((used + 15) / 16); i < scratch.size(); i++)
          CHECK(scratch[i].column == column, "%s: wrote behind the scratch", ops->name);
      }
    }
  }
}

// Every case runs on the reference with guards behind this scratch: less shows there, more here.
TEST(host_reference_has_the_scratch_it_needs) {
  const sie_ops *ref = sie_ref_ops();
  const struct {
    uint32_t kind;
    int64_t bytes;
  } wanted[] = {{SIE_OP_EMBED_LAYERNORM, 256},
                {SIE_OP_LAYERNORM, 256},
                {SIE_OP_LINEAR, 144},
                {SIE_OP_QUANTISE_ROWS, 128},
                {SIE_OP_ATTENTION, 744},
                {SIE_OP_GATHER_ROWS, 0},
                {SIE_OP_POOL, 40},
                {SIE_OP_OUTPUT_ROWS, 128},
                {SIE_OP_QK_NORM_ROPE, 64},
                {SIE_OP_POOL_OUTPUT, 168},
                {SIE_OP_MUVERA, 740},
                {SIE_OP_KEEP_ROWS, 0},
                {SIE_OP_SPLADE, 208},
                {SIE_OP_OUTPUT_SPARSE, 0},
                {SIE_OP_MAXSIM, 0},
                {SIE_OP_LORA, 24},
                {SIE_OP_SMVE, 960},
                {SIE_OP_MARK_NONFINITE, 0},
                {SIE_OP_JOIN_COLUMNS, 0},
                {SIE_OP_TAKE_ROWS, 0},
                {SIE_OP_PRODUCT, 0},
                {SIE_OP_DOTS, 0},
                {SIE_OP_LSTM, 480},
                {SIE_OP_SPANS, 0},
                {SIE_OP_PAIRS, 248},
                {SIE_OP_SOFTMAX, 0},
                {SIE_OP_LINEAR_NORM, 208}};
  for (const auto &[kind, bytes] : wanted) {
    sie_op_bounds b = {};
    b.kind = kind;
    b.c = 32, b.n = 16, b.k = 10;
    b.max_len = 5;
    b.head_dim = 8;
    b.max_rank = 3;
    b.repetitions = 2, b.top = 3;
    b.simhash_bits = 2, b.projected = 4, b.final_dims = 6;
    const int64_t got = ref->scratch_bytes(&b);
    CHECK(got == bytes, "kind %u: %lld bytes, %lld expected", kind, static_cast<long long>(got),
          static_cast<long long>(bytes));
  }
}

TEST(host_reference_has_every_class) {
  const sie_ops *ref = sie_ref_ops();
  const int64_t bytes[] = {60, 30, 27, 30, 27};
  const uint32_t classes[] = {SIE_COMPUTE_F32, SIE_COMPUTE_BF16, SIE_COMPUTE_INT8, SIE_COMPUTE_F16,
                              SIE_COMPUTE_FP8};
  uint32_t mask = 0;
  for (int i = 0; i < 5; i++) {
    mask |= 1u << classes[i];
    const int64_t got = ref->packed_bytes(classes[i], 3, 5);
    CHECK(got == bytes[i], "class %u: %lld bytes, %lld expected", classes[i], static_cast<long long>(got),
          static_cast<long long>(bytes[i]));
  }
  CHECK(ref->compute_mask == mask, "the classes are %x, %x expected", ref->compute_mask, mask);
}

// Each block of x has a scale of its own, and the last one may be a single column.
TEST(host_reference_takes_blocks_of_one_column) {
  constexpr int64_t k = 129, n = 3;
  const sie_ops *ref = sie_ref_ops();
  Array<uint8_t> x(k, 0x38);  // 1.0
  float scale[] = {1, 4}, y[n] = {};
  Weight weight(SIE_COMPUTE_FP8, n, k, std::vector<float>(n * k, 448.0f));
  const int32_t one = 1;
  sie_linear_args a = {};
  a.rows = {1, &one};
  a.n = n, a.k = k;
  a.x.p = x.data(), a.x.ld = k, a.x.dtype = SIE_F8E4M3, a.x.scale_group = 128, a.x.scale = scale;
  a.w = weight.packed(ref);
  a.y.p = y, a.y.ld = n, a.y.dtype = SIE_F32;
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_LINEAR;
  bounds.n = n, bounds.k = k;
  Scratch scratch(ref, bounds);
  const sie_share share = scratch.share(0, 1);
  CHECK(ref->linear(&a, &share) == SIE_OK, "a linear is refused");
  for (float v : y) CHECK(v == 448.0f * (128 + 4), "y = %g", static_cast<double>(v));
}

// Columns behind those of the weight are not looked at, nothing is written behind the packed bytes,
// and the scale of a row of zeros is 1.
TEST(host_reference_packs_a_weights_own_columns) {
  constexpr int64_t n = 3, k = 5, ld = k + 1;
  const sie_ops *ref = sie_ref_ops();
  std::vector<float> wide(n * ld, 1e6f), narrow(n * k);
  Random random(93);
  for (int64_t i = 0; i < n * k; i++) {
    const float v = i < k ? 0 : random.real();
    narrow[static_cast<size_t>(i)] = wide[static_cast<size_t>(i / k * ld + i % k)] = v;
  }
  for (uint32_t compute :
       {SIE_COMPUTE_F32, SIE_COMPUTE_BF16, SIE_COMPUTE_INT8, SIE_COMPUTE_F16, SIE_COMPUTE_FP8}) {
    const size_t used = static_cast<size_t>(ref->packed_bytes(compute, n, k));
    Array<uint8_t> a(used + 64, 0x55), b(used + 64, 0x55);
    ref->pack(compute, n, k, 0, n, wide.data(), ld, a.data());
    ref->pack(compute, n, k, 0, n, narrow.data(), k, b.data());
    CHECK(memcmp(a.data(), b.data(), used) == 0, "class %u: packs what is behind the columns", compute);
    for (size_t i = used; i < a.size(); i++)
      CHECK(a[i] == 0x55, "class %u: wrote byte %zu of %zu", compute, i, used);
    float scale = 1;
    if (compute == SIE_COMPUTE_INT8 || compute == SIE_COMPUTE_FP8) memcpy(&scale, a.data(), sizeof scale);
    CHECK(scale == 1, "class %u: the scale of zeros is %g", compute, static_cast<double>(scale));
  }
}

// Behind the scratch stand numbers larger than the row's.
TEST(host_quantising_keeps_to_its_row) {
  constexpr int64_t c = 19;
  const int32_t one = 1;
  for (const sie_ops *ops : backends()) {
    if (stream_of(ops) != nullptr) continue;
    for (int32_t kind = 0; kind < 3; kind++) {
      const int32_t dtype = kind < 2 ? SIE_U8 : SIE_F8E4M3;
      std::vector<uint8_t> first;
      for (float behind : {0.0f, 1e6f, -1e6f}) {
        Random random(94);
        Array<float> x(c);
        for (float &v : x) v = random.real();
        sie_op_bounds bounds = {};
        bounds.kind = SIE_OP_QUANTISE_ROWS;
        bounds.rows = 1;
        bounds.c = c;
        const int64_t used = ops->scratch_bytes(&bounds);
        Array<float> scratch(static_cast<size_t>(used / 4 + 64), behind);
        struct Quantised {
          uint8_t q[32];
          float scale;
          int32_t zero;
          sie_outlier outlier;
        } y = {};
        sie_quantise_rows_args a = {};
        a.rows = {1, &one};
        a.c = c;
        a.x.p = x.data(), a.x.ld = c, a.x.dtype = SIE_F32;
        a.y.p = y.q, a.y.ld = 32, a.y.dtype = dtype, a.y.scale_group = -1;
        a.y.scale = &y.scale, a.y.zero = &y.zero, a.y.outlier = kind == 1 ? &y.outlier : nullptr;
        const sie_share share = {0, 1, scratch.data(), used, nullptr};
        CHECK(ops->quantise_rows(&a, &share) == SIE_OK, "%s: a row is refused", ops->name);
        const uint8_t *p = reinterpret_cast<const uint8_t *>(&y);
        const std::vector<uint8_t> bytes(p, p + sizeof y);
        if (first.empty()) first = bytes;
        CHECK(bytes == first, "%s: kind %d: other bytes with %g behind the scratch", ops->name, kind,
              static_cast<double>(behind));
      }
    }
  }
}

// Positions times turns are exact: a quarter and a half of a turn, and an eighth of the low word.
TEST(host_reference_turns_exactly) {
  const struct {
    int32_t high, low;
    double c, s, error;
  } turns[] = {{1, 0, 0, 1, 1e-16}, {2, 0, -1, 0, 2e-16}, {0, INT32_MIN, sqrt(0.5), sqrt(0.5), 1e-7}};
  const sie_ops *ref = sie_ref_ops();
  for (const auto &[high, low, c, s, error] : turns) {
    const int32_t one = 1, cu[] = {0, 1}, words[] = {high, low};
    float q[] = {1, 0};
    sie_qk_norm_rope_args a = {};
    a.tokens = a.seqs = {1, &one};
    a.cu_seqlens = cu;
    a.heads = 1, a.head_dim = a.rot = 2;
    a.position_offset = 1 << 30;
    a.turns = words;
    a.q.p = q, a.q.ld = 2, a.q.dtype = SIE_F32;
    double scratch[2];
    const sie_share share = {0, 1, scratch, sizeof scratch, nullptr};
    CHECK(ref->qk_norm_rope(&a, &share) == SIE_OK, "turns are refused");
    CHECK(fabs(static_cast<double>(q[0]) - c) <= error && fabs(static_cast<double>(q[1]) - s) <= error,
          "cos %g and sin %g, %g and %g expected", static_cast<double>(q[0]), static_cast<double>(q[1]), c,
          s);
  }
}
