// host_rows_test.cc — row kernels of every CPU table: types that they lack are refused and nothing
// is written; optional operands of a layernorm one at a time, and in place.
#include <math.h>
#include <string.h>

#include "common/dtype.h"
#include "harness.h"

using namespace harness;

namespace {

constexpr int64_t rows = 3, columns = 33;
const int32_t row_count = rows;

// Elements of any type, with a scale and a zero point for each row.
struct Operand {
  Array<uint8_t> bytes = Array<uint8_t>(rows * columns * 4, 0xff);
  Array<float> scale = Array<float>(rows, 1.0f);
  Array<int32_t> zero = Array<int32_t>(rows, 0);
  int32_t dtype;

  explicit Operand(int32_t type) : dtype(type) {}
  sie_tensor tensor(int32_t group = -1) {
    sie_tensor t = {};
    t.p = bytes.data();
    t.ld = columns;
    t.dtype = dtype;
    t.scale = scale.data();
    t.zero = zero.data();
    t.scale_group = group;
    return t;
  }
  void fill(uint32_t seed) {
    Random random(seed);
    for (int64_t i = 0; i < rows * columns; i++) set(i, random.real());
  }
  void set(int64_t i, float x) {
    const uint16_t half = sie_bf16_from_f32(x);
    if (dtype == SIE_F32) memcpy(bytes.data() + 4 * i, &x, 4);
    if (dtype == SIE_BF16) memcpy(bytes.data() + 2 * i, &half, 2);
  }
  float f32(int64_t i) const {
    float x;
    memcpy(&x, bytes.data() + 4 * i, 4);
    return x;
  }
  bool untouched() const {
    for (uint8_t byte : bytes) {
      if (byte != 0xff) return false;
    }
    return true;
  }
};

sie_op_bounds bounds_of(int32_t kind) {
  sie_op_bounds b = {};
  b.kind = kind;
  b.rows = b.seqs = rows;
  b.c = columns;
  b.max_len = 1;
  return b;
}

std::vector<const sie_ops *> host_tables() {
  std::vector<const sie_ops *> tables;
  for (const sie_ops *ops : backends()) {
    if (stream_of(ops) == nullptr) tables.push_back(ops);
  }
  return tables;
}

template <class Args>
void refuses(const sie_ops *ops, sie_status (*entry)(const Args *, const sie_share *), int32_t kind,
             const Args &args, const Operand &output, const char *what) {
  Scratch scratch(ops, bounds_of(kind));
  const sie_share share = scratch.share(0, 1);
  const sie_status status = entry(&args, &share);
  CHECK(status == SIE_UNSUPPORTED && output.untouched(), "%s: %s: status %d", ops->name, what, status);
}

// A plain layernorm of f32, for others to change.
struct LayerNorm {
  Operand x{SIE_F32}, y{SIE_F32}, other{SIE_F32};
  Array<float> gamma = Array<float>(columns, 1.5f), bias = Array<float>(columns, 0.0f);
  sie_layernorm_args args = {};

  LayerNorm() {
    x.fill(1);
    other.fill(2);
    Random random(3);
    for (int64_t i = 0; i < columns; i++) bias[static_cast<size_t>(i)] = random.real();
    args.rows = {rows, &row_count};
    args.c = columns;
    args.x = x.tensor();
    args.y = y.tensor();
    args.gamma = gamma.data();
    args.eps = 1e-5f;
    args.norm = SIE_NORM_LAYER;
  }
  std::vector<uint8_t> run(const sie_ops *ops) {
    Scratch scratch(ops, bounds_of(SIE_OP_LAYERNORM));
    const sie_share share = scratch.share(0, 1);
    const sie_status status = ops->layernorm(&args, &share);
    CHECK(status == SIE_OK && scratch.intact(), "%s: status %d", ops->name, status);
    return std::vector<uint8_t>(y.bytes.begin(), y.bytes.end());
  }
};

}  // namespace

TEST(host_rows_copy_one_type_only) {
  const int32_t cu[rows + 1] = {0, 1, 2, 3}, index[rows] = {0, 1, 2};
  for (const sie_ops *ops : host_tables()) {
    for (const auto &[x_type, y_type] :
         {std::pair<int32_t, int32_t>{SIE_F32, SIE_BF16}, {SIE_BF16, SIE_F32}, {SIE_U8, SIE_U8}}) {
      Operand x(x_type), y(y_type);
      x.fill(1);
      sie_gather_rows_args gather = {};
      gather.seqs = {rows, &row_count};
      gather.cu_seqlens = cu;
      gather.which = SIE_POOL_CLS;
      gather.c = columns;
      gather.x = x.tensor(), gather.y = y.tensor();
      refuses(ops, ops->gather_rows, SIE_OP_GATHER_ROWS, gather, y, "gather_rows of other types");
      sie_keep_rows_args keep = {};
      keep.kept = {rows, &row_count};
      keep.index = index;
      keep.c = columns;
      keep.x = x.tensor(), keep.y = y.tensor();
      refuses(ops, ops->keep_rows, SIE_OP_KEEP_ROWS, keep, y, "keep_rows of other types");
    }
  }
}

TEST(host_rows_are_joined_of_floats_only) {
  for (const sie_ops *ops : host_tables()) {
    Operand x(SIE_F32), bytes(SIE_U8), y(SIE_F32), byte_y(SIE_U8);
    x.fill(1), bytes.fill(1);
    sie_join_columns_args a = {};
    a.rows = {rows, &row_count};
    auto refuse = [&](std::initializer_list<sie_tensor> from, Operand *to) {
      int i = 0;
      for (const sie_tensor &t : from) a.x[i] = t, a.c[i++] = 1;
      a.y = to->tensor();
      refuses(ops, ops->join_columns, SIE_OP_JOIN_COLUMNS, a, *to, "join_columns of bytes");
    };
    refuse({bytes.tensor(), x.tensor(), x.tensor()}, &y);
    refuse({x.tensor(), bytes.tensor(), x.tensor()}, &y);
    refuse({x.tensor(), x.tensor(), bytes.tensor()}, &y);
    refuse({x.tensor(), x.tensor(), x.tensor()}, &byte_y);
  }
}

TEST(host_rows_are_quantised_to_known_types) {
  for (const sie_ops *ops : host_tables()) {
    auto refuse = [ops](int32_t x_type, int32_t y_type, int32_t group) {
      Operand x(x_type), y(y_type);
      x.fill(1);
      sie_quantise_rows_args a = {};
      a.rows = {rows, &row_count};
      a.c = columns;
      a.x = x.tensor(), a.y = y.tensor(group);
      refuses(ops, ops->quantise_rows, SIE_OP_QUANTISE_ROWS, a, y, "quantise_rows of other types");
    };
    refuse(SIE_U8, SIE_U8, -1);
    refuse(SIE_F32, SIE_F32, -1);
    refuse(SIE_F32, SIE_F8E4M3, 64);
  }
}

TEST(host_layernorm_has_known_types) {
  for (const sie_ops *ops : host_tables()) {
    Operand bytes(SIE_U8), output(SIE_U8);
    auto refuse = [&](sie_tensor sie_layernorm_args::*which, const sie_tensor &t, const char *what) {
      LayerNorm n;
      n.args.*which = t;
      refuses(ops, ops->layernorm, SIE_OP_LAYERNORM, n.args, n.y, what);
      CHECK(output.untouched(), "%s: %s: wrote", ops->name, what);
    };
    refuse(&sie_layernorm_args::x, bytes.tensor(), "x of bytes");
    refuse(&sie_layernorm_args::y, output.tensor(), "y of bytes");
    refuse(&sie_layernorm_args::residual, bytes.tensor(), "residual of bytes");
    refuse(&sie_layernorm_args::sum, output.tensor(), "sum of bytes");
    Operand twin(SIE_F32), blocks(SIE_F8E4M3);
    refuse(&sie_layernorm_args::yq, twin.tensor(), "a twin of f32");
    refuse(&sie_layernorm_args::yq, blocks.tensor(128), "a twin in blocks");
    CHECK(twin.untouched() && blocks.untouched(), "%s: wrote a twin", ops->name);
  }
}

// Each optional operand alone gives what the sum made beforehand gives, to the bit.
TEST(host_layernorm_takes_each_operand_alone) {
  for (const sie_ops *ops : host_tables()) {
    LayerNorm plain, with_bias, with_residual, with_sum;
    const std::vector<uint8_t> want = plain.run(ops);
    with_sum.args.sum = with_sum.other.tensor();
    CHECK(with_sum.run(ops) == want, "%s: a sum to store changes y", ops->name);
    CHECK(memcmp(with_sum.other.bytes.data(), with_sum.x.bytes.data(), rows * columns * 4) == 0,
          "%s: the sum of x alone is not x", ops->name);
    LayerNorm biased, residual;
    for (int64_t i = 0; i < rows * columns; i++) {
      biased.x.set(i, biased.x.f32(i) + biased.bias[static_cast<size_t>(i % columns)]);
      residual.x.set(i, residual.x.f32(i) + residual.other.f32(i));
    }
    with_bias.args.bias = with_bias.bias.data();
    CHECK(with_bias.run(ops) == biased.run(ops), "%s: a bias alone", ops->name);
    with_residual.args.residual = with_residual.other.tensor();
    CHECK(with_residual.run(ops) == residual.run(ops), "%s: a residual alone", ops->name);
  }
}

TEST(host_layernorm_in_place_in_bf16) {
  for (const sie_ops *ops : host_tables()) {
    LayerNorm apart, in_place;
    for (LayerNorm *n : {&apart, &in_place}) {
      n->x.dtype = n->y.dtype = SIE_BF16;
      n->x.fill(4);
      n->args.x = n->x.tensor();
      n->args.y = n->y.tensor();
    }
    in_place.y.fill(4);
    in_place.args.x = in_place.args.y;
    const std::vector<uint8_t> a = apart.run(ops), b = in_place.run(ops);
    CHECK(memcmp(a.data(), b.data(), rows * columns * 2) == 0, "%s: other bits in place", ops->name);
  }
}

TEST(host_rows_are_taken_of_one_float_type) {
  const int32_t cu[] = {0, rows}, places[rows] = {};
  for (const sie_ops *ops : host_tables()) {
    Operand x(SIE_F32), bytes(SIE_U8), half(SIE_BF16), y(SIE_F32), byte_y(SIE_U8);
    x.fill(1), bytes.fill(1), half.fill(1);
    const int32_t one = 1;
    sie_take_rows_args a = {};
    a.rows = {rows, &row_count};
    a.seqs = {1, &one};
    a.cu_seqlens = a.cu_x = cu;
    a.first = a.last = places;
    a.c = columns;
    auto refuse = [&](const sie_tensor &from, Operand *to, int32_t which) {
      a.x = from, a.y = to->tensor(), a.which = which;
      refuses(ops, ops->take_rows, SIE_OP_TAKE_ROWS, a, *to, "take_rows of other types");
    };
    refuse(bytes.tensor(), &byte_y, SIE_POOL_CLS);
    refuse(half.tensor(), &y, SIE_POOL_LAST);
    refuse(x.tensor(), &y, SIE_POOL_MAX);
    refuse(x.tensor(), &y, 0);
  }
}

TEST(host_products_are_of_floats) {
  for (const sie_ops *ops : host_tables()) {
    Operand x(SIE_F32), bytes(SIE_U8), y(SIE_F32), byte_y(SIE_U8), half_y(SIE_BF16);
    x.fill(1), bytes.fill(1);
    auto refuse = [&](const sie_tensor &left, const sie_tensor &right, Operand *to, bool both) {
      const sie_product_args product = {{rows, &row_count}, columns, left, right, to->tensor()};
      const sie_dots_args dots = {{rows, &row_count}, columns, left, right, to->tensor()};
      if (both) refuses(ops, ops->product, SIE_OP_PRODUCT, product, *to, "product of bytes");
      refuses(ops, ops->dots, SIE_OP_DOTS, dots, *to, "dots of bytes");
    };
    refuse(bytes.tensor(), x.tensor(), &y, true);
    refuse(x.tensor(), bytes.tensor(), &y, true);
    refuse(x.tensor(), x.tensor(), &byte_y, true);
    refuse(x.tensor(), x.tensor(), &half_y, false);
  }
}

// The columns behind a row's own hold numbers in what is read, and marks in what is written.
TEST(host_products_and_means_keep_to_their_columns) {
  const int32_t cu[] = {0, rows}, first[rows] = {0, 0, 1}, last[rows] = {1, 2, 2}, one = 1;
  const int64_t own = columns - 1;
  for (const sie_ops *ops : host_tables()) {
    for (int32_t dtype : {SIE_F32, SIE_BF16}) {
      Operand a(dtype), b(dtype), y(dtype), means(dtype);
      a.fill(1), b.fill(2);
      const sie_product_args product = {{rows, &row_count}, own, a.tensor(), b.tensor(), y.tensor()};
      const sie_take_rows_args take = {
          {rows, &row_count}, {1, &one},     cu, cu, SIE_POOL_MEAN, 0, first, last, own,
          a.tensor(),         means.tensor()};
      const sie_share share = {0, 1, nullptr, 0, nullptr};
      CHECK(ops->product(&product, &share) == SIE_OK, "%s: a product is refused", ops->name);
      CHECK(ops->take_rows(&take, &share) == SIE_OK, "%s: means are refused", ops->name);
      for (const Operand *written : {&y, &means}) {
        for (int64_t r = 0; r < rows; r++) {
          const uint8_t *behind = written->bytes.data() + (r * columns + own) * (dtype == SIE_F32 ? 4 : 2);
          CHECK(behind[0] == 0xff && behind[1] == 0xff, "%s: wrote behind row %lld", ops->name,
                static_cast<long long>(r));
        }
      }
    }
  }
}

// Without a norm the sum of the three tables is what comes out, to the bit.
TEST(host_embeds_three_tables_without_a_norm) {
  const int32_t ids[rows] = {2, 0, 1}, types[rows] = {1, 0, 1}, cu[] = {0, 1, rows}, two = 2;
  for (const sie_ops *ops : host_tables()) {
    Operand word(SIE_F32), position(SIE_F32), type(SIE_F32), y(SIE_F32);
    word.fill(1), position.fill(2), type.fill(3);
    sie_embed_layernorm_args a = {};
    a.tokens = {rows, &row_count}, a.seqs = {2, &two};
    a.ids = ids, a.type_ids = types, a.cu_seqlens = cu;
    a.word = word.tensor(), a.position = position.tensor(), a.type = type.tensor(), a.y = y.tensor();
    a.position_offset = 1;
    a.norm = SIE_NORM_NONE;
    a.c = columns;
    Scratch scratch(ops, bounds_of(SIE_OP_EMBED_LAYERNORM));
    const sie_share share = scratch.share(0, 1);
    CHECK(ops->embed_layernorm(&a, &share) == SIE_OK, "%s: an embedding is refused", ops->name);
    for (int64_t i = 0; i < rows * columns; i++) {
      const int64_t r = i / columns, c = i % columns, place = r < 1 ? 1 : r;
      const float want = (word.f32(ids[r] * columns + c) + position.f32(place * columns + c)) +
                         type.f32(types[r] * columns + c);
      CHECK(y.f32(i) == want, "%s: y[%lld, %lld] = %g, %g expected", ops->name, static_cast<long long>(r),
            static_cast<long long>(c), static_cast<double>(y.f32(i)), static_cast<double>(want));
    }
  }
}

// Columns of one sign make a set bit each, also the first of a byte, and nothing is written behind the last byte.
TEST(host_bits_fill_their_bytes) {
  const int32_t one = 1;
  for (const sie_ops *ops : host_tables()) {
    for (int32_t dims = 1; dims <= columns; dims++) {
      Operand x(SIE_F32);
      for (int64_t i = 0; i < columns; i++) x.set(i, 1.0f);
      const sie_out_item item = {SIE_BINARY, dims, 0, 0, 0};
      Scratch scratch(ops, bounds_of(SIE_OP_OUTPUT_ROWS));
      Array<uint8_t> out(columns, 0x55);
      sie_output_rows_args a = {{1, &one}, columns, x.tensor(), &item, out.data()};
      const sie_share share = scratch.share(0, 1);
      CHECK(ops->output_rows(&a, &share) == SIE_OK, "%s: an output is refused", ops->name);
      for (int32_t i = 0; i < columns; i++) {
        const int32_t bits = dims - 8 * i,
                      want = bits >= 8 ? 0xff : (bits > 0 ? 0xff00 >> bits & 0xff : 0x55);
        CHECK(out[static_cast<size_t>(i)] == want, "%s: %d columns: byte %d is %d, %d expected", ops->name,
              dims, i, out[static_cast<size_t>(i)], want);
      }
    }
  }
}

// The largest and smallest columns of the item are kept; what lies behind them, and behind the
// scratch, is not touched.
TEST(host_outputs_keep_to_their_columns) {
  for (const sie_ops *ops : host_tables()) {
    for (uint32_t dims : {uint32_t{columns - 1}, uint32_t{columns - 2}}) {
      for (uint32_t dtype : {SIE_F32, SIE_F16, SIE_I8, SIE_U8}) {
        Operand x(SIE_F32);
        x.fill(1);
        const sie_out_item item = {static_cast<int32_t>(dtype), static_cast<int32_t>(dims), 1, 0, 0};
        const int32_t one = 1;
        sie_op_bounds bounds = bounds_of(SIE_OP_OUTPUT_ROWS);
        bounds.c = columns - 1;
        const int64_t used = ops->scratch_bytes(&bounds);
        Array<float> scratch(static_cast<size_t>(used / 4 + 64), 1.0f);
        Array<uint8_t> out(columns * 8, 0x55);
        sie_output_rows_args a = {{1, &one}, columns - 1, x.tensor(), &item, out.data()};
        const sie_share share = {0, 1, scratch.data(), used, nullptr};
        CHECK(ops->output_rows(&a, &share) == SIE_OK, "%s: an output is refused", ops->name);
        const size_t width = dtype == SIE_F32 ? 4 : (dtype == SIE_F16 ? 2 : 1);
        for (size_t i = dims * width; i < out.size(); i++)
          CHECK(out[i] == 0x55, "%s: type %u: wrote byte %zu behind the item", ops->name, dtype, i);
        for (size_t i = static_cast<size_t>(used / 4); i < scratch.size(); i++)
          CHECK(scratch[i] == 1.0f, "%s: type %u: wrote behind the scratch", ops->name, dtype);
      }
    }
  }
}

// The weights of a sequence's rows are its own.
TEST(host_pooling_keeps_to_its_scratch) {
  const int32_t cu[] = {0, rows}, one = 1;
  for (const sie_ops *ops : host_tables()) {
    Operand x(SIE_F32), y(SIE_F32);
    x.fill(1);
    sie_op_bounds bounds = bounds_of(SIE_OP_POOL);
    bounds.max_len = rows;
    const int64_t used = ops->scratch_bytes(&bounds);
    Array<double> scratch(static_cast<size_t>(used / 8 + 64), 1.0);
    sie_pool_args a = {};
    a.seqs = {1, &one};
    a.cu_seqlens = cu;
    a.mode = SIE_POOL_MEAN;
    a.c = columns;
    a.x = x.tensor(), a.y = y.tensor();
    const sie_share share = {0, 1, scratch.data(), used, nullptr};
    CHECK(ops->pool(&a, &share) == SIE_OK, "%s: a mean is refused", ops->name);
    for (size_t i = static_cast<size_t>((used + 7) / 8); i < scratch.size(); i++)
      CHECK(scratch[i] == 1.0, "%s: wrote behind the scratch", ops->name);
  }
}

// A sequence without a query scores 0, whatever lies before the queries.
TEST(host_maxsim_without_a_query) {
  const int32_t one = 1, cu[] = {0, rows}, cu_queries[] = {-1, 0, 1}, partner = -1;
  for (const sie_ops *ops : host_tables()) {
    Operand x(SIE_F32);
    x.fill(1);
    Array<float> queries(2 * columns, 1.0f);
    float y = 7;
    sie_maxsim_args a = {};
    a.rows = {rows, &row_count}, a.seqs = {1, &one};
    a.cu_seqlens = cu, a.cu_queries = cu_queries + 1, a.partner = &partner;
    a.c = columns;
    a.x = x.tensor();
    a.queries = queries.data() + columns;
    a.y.p = &y, a.y.ld = 1, a.y.dtype = SIE_F32;
    sie_op_bounds bounds = bounds_of(SIE_OP_MAXSIM);
    bounds.query_rows = 1;
    Scratch scratch(ops, bounds);
    const sie_share share = scratch.share(0, 1);
    CHECK(ops->maxsim(&a, &share) == SIE_OK && y == 0, "%s: y = %g, 0 expected", ops->name,
          static_cast<double>(y));
  }
}

// One block of the last row has a scale that is not finite.
TEST(host_marks_each_block) {
  const int32_t two = 2, cu[] = {0, 2, rows};
  constexpr int64_t wide = 257, blocks = 3;
  Array<uint8_t> x(rows * wide, 0);
  for (const sie_ops *ops : host_tables()) {
    for (int64_t bad = 0; bad < rows * blocks; bad++) {
      Array<float> scale(rows * blocks, 1.0f);
      scale[static_cast<size_t>(bad)] = INFINITY;
      int32_t flags[2] = {};
      sie_mark_nonfinite_args a = {};
      a.rows = {rows, &row_count}, a.seqs = {2, &two};
      a.cu_seqlens = cu;
      a.c = wide;
      a.x.p = x.data(), a.x.ld = wide, a.x.dtype = SIE_F8E4M3, a.x.scale_group = 128,
      a.x.scale = scale.data();
      a.flags = flags;
      const sie_share share = {0, 1, nullptr, 0, nullptr};
      CHECK(ops->mark_nonfinite(&a, &share) == SIE_OK, "%s: blocks are refused", ops->name);
      CHECK(flags[0] == (bad < 2 * blocks) && flags[1] == (bad >= 2 * blocks), "%s: scale %lld: flags %d %d",
            ops->name, static_cast<long long>(bad), flags[0], flags[1]);
    }
  }
}
