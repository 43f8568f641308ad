// places_test.cc — operands may lie anywhere: moving each tensor and vector in turn gives the same
// bits.
#include "tests/cuda/operands.h"

using namespace calls;

namespace {

// Copies of operands at chosen places. What was moved can be brought back.
class Shelf {
 public:
  enum Place {
    even,  // a multiple of 16 bytes, and of 9 and 17
    off    // a multiple of 4, 9 and 17, and of 8 not: what a wrong divisor takes for aligned
  };

  float *vector(const float *from, int64_t count, Place place) {
    uint8_t *to = take(count * 4, place);
    memcpy(to, from, static_cast<size_t>(count) * 4);
    return reinterpret_cast<float *>(to);
  }
  // The rows of t, columns wide, with another stride.
  void move(sie_tensor *t, int64_t row_count, int64_t width, int64_t ld, Place place) {
    const int64_t element = t->dtype == SIE_F32 ? 4 : (t->dtype == SIE_F8E4M3 ? 1 : 2);
    Moved m = {static_cast<uint8_t *>(t->p),
               t->ld * element,
               take(row_count * ld * element, place),
               ld * element,
               row_count,
               width * element};
    for (int64_t r = 0; r < m.rows; r++)
      memcpy(m.to + r * m.to_line, m.from + r * m.from_line, size(m.width));
    t->p = m.to;
    t->ld = ld;
    moved_.push_back(m);
  }
  void bring_back() {
    for (const Moved &m : moved_) {
      for (int64_t r = 0; r < m.rows; r++)
        memcpy(m.from + r * m.from_line, m.to + r * m.to_line, size(m.width));
    }
  }

 private:
  struct Moved {
    uint8_t *from;
    int64_t from_line;
    uint8_t *to;
    int64_t to_line, rows, width;  // bytes
  };
  static size_t size(int64_t n) { return static_cast<size_t>(n); }

  uint8_t *take(int64_t bytes, Place place) {
    const uintptr_t step = 16 * 9 * 17, at = reinterpret_cast<uintptr_t>(memory_.data()) + used_;
    const uintptr_t place_at = (at + step - 1) / step * step + (place == off ? step / 4 : 0);
    used_ += place_at - at + size(bytes);
    if (used_ > memory_.size()) abort();
    return memory_.data() + used_ - bytes;
  }

  Array<uint8_t> memory_ = Array<uint8_t>(1 << 16);
  size_t used_ = 0;
  std::vector<Moved> moved_;
};

// Numbers whose sums are exact in any order.
void fill_small(Array<uint16_t> *bits) {
  static const uint16_t integers[] = {0xc040, 0xc000, 0xbf80, 0, 0x3f80, 0x4000, 0x4040};  // −3 … 3
  for (size_t i = 0; i < bits->size(); i++) (*bits)[i] = integers[(i * i + i / 5) % 7];
}

// A stride that keeps the rows of t at even places, also for code that takes 9 or 17 bytes for 8 or
// 16.
int64_t even_stride(const sie_tensor &t) {
  return t.dtype == SIE_F8E4M3 ? 8 * 9 : 16 * 17 / (t.dtype == SIE_F32 ? 4 : 2);
}

// The same call gives the same bits with each tensor and each vector moved, one at a time and then
// all vectors. All others lie at even places: another odd one would hide the effect of the moved
// one.
template <class Args>
void check_places(const char *name, sie_status (*const sie_ops::*entry)(const Args *, const sie_share *),
                  const Args &right, Operands *operands, const std::vector<sie_tensor Args::*> &tensors,
                  const std::vector<const float *Args::*> &vectors) {
  for (const Gpu &gpu : gpus()) {
    const sie_share whole = {0, 1, nullptr, 0, &gpu.on};
    auto run = [&](const Args &args, Shelf *shelf, const char *what, size_t which) {
      operands->restore();
      CHECK((gpu.ops->*entry)(&args, &whole) == SIE_OK && memory.finish(&gpu.on) == SIE_OK,
            "%s %s: %s %zu: refused", gpu.ops->name, name, what, which);
      shelf->bring_back();
      return operands->all_bytes();
    };
    Shelf none;
    const std::vector<uint8_t> want = run(right, &none, "in place", 0);
    // Tensor `moved` with this stride at this place.
    auto with_tensor = [&](size_t moved, int64_t ld, Shelf::Place place) {
      Shelf shelf;
      Args args = right;
      operands->restore();
      for (size_t i = 0; i < tensors.size(); i++) {
        sie_tensor *t = &(args.*tensors[i]);
        shelf.move(t, rows, columns, i == moved ? ld : even_stride(*t), i == moved ? place : Shelf::even);
      }
      for (const float *Args::*v : vectors) args.*v = shelf.vector(right.*v, columns, Shelf::even);
      CHECK(run(args, &shelf, "tensor", moved) == want, "%s %s: other bits with tensor %zu elsewhere",
            gpu.ops->name, name, moved);
    };
    for (size_t i = 0; i < tensors.size(); i++) {
      with_tensor(i, even_stride(right.*tensors[i]), Shelf::even);
      // Strides of 16 bytes and others, that a wrong divisor takes for such.
      for (int64_t ld : {int64_t{48}, int64_t{34}, int64_t{36}, int64_t{153}}) {
        for (Shelf::Place place : {Shelf::even, Shelf::off}) with_tensor(i, ld, place);
      }
    }
    for (size_t moved = 0; moved <= vectors.size() && !vectors.empty(); moved++) {
      Shelf shelf;
      Args args = right;
      for (size_t i = 0; i < vectors.size(); i++) {
        args.*vectors[i] = shelf.vector(right.*vectors[i], columns,
                                        i == moved || moved == vectors.size() ? Shelf::off : Shelf::even);
      }
      CHECK(run(args, &shelf, "vector", moved) == want,
            "%s %s: other bits with vector %zu (%zu: all) elsewhere", gpu.ops->name, name, moved,
            vectors.size());
    }
  }
  operands->clear();
}

}  // namespace

TEST(layernorm_operands_lie_anywhere) {
  Operands o;
  fill_small(&o.x);
  Array<float> beta(columns, 0.5f), bias(columns, 2.0f);
  Array<uint16_t> residual(rows * columns, 0x4000), sum(rows * columns);
  sie_layernorm_args a = {};
  a.rows = o.tokens();
  a.c = columns;
  a.x = o.in();
  a.gamma = o.vector.data();
  a.beta = beta.data();
  a.bias = bias.data();
  a.y = o.to();
  a.yq = o.f8();
  a.residual = {residual.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr};
  a.sum = {sum.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr};
  using Args = sie_layernorm_args;
  check_places<Args>("layernorm", &sie_ops::layernorm, a, &o,
                     {&Args::x, &Args::y, &Args::yq, &Args::residual, &Args::sum},
                     {&Args::gamma, &Args::beta, &Args::bias});
}

TEST(embed_layernorm_operands_lie_anywhere) {
  Operands o;
  fill_small(&o.x);
  Array<float> beta(columns, 0.5f);
  Array<int32_t> types = {1, 0, 1, 2};
  Array<uint16_t> position(rows * columns), type(rows * columns);
  fill_small(&position);
  std::fill(type.begin(), type.end(), uint16_t{0x4000});
  sie_embed_layernorm_args a = {};
  a.tokens = o.tokens();
  a.seqs = o.seqs();
  a.ids = o.ids.data();
  a.type_ids = types.data();
  a.cu_seqlens = o.cu.data();
  a.word = o.in();
  a.position = {position.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr};
  a.type = {type.data(), columns, SIE_BF16, 0, nullptr, nullptr, nullptr};
  a.gamma = o.vector.data();
  a.beta = beta.data();
  a.c = columns;
  a.y = o.to();
  a.yq = o.f8();
  using Args = sie_embed_layernorm_args;
  check_places<Args>("embed_layernorm", &sie_ops::embed_layernorm, a, &o,
                     {&Args::word, &Args::position, &Args::type, &Args::y, &Args::yq},
                     {&Args::gamma, &Args::beta});
}

TEST(quantise_rows_operands_lie_anywhere) {
  Operands o;
  fill_small(&o.x);
  sie_quantise_rows_args a = {};
  a.rows = o.tokens();
  a.c = columns;
  a.x = o.in();
  a.y = o.f8();
  using Args = sie_quantise_rows_args;
  for (int32_t group : {-1, 128}) {
    a.y.scale_group = group;
    check_places<Args>("quantise_rows", &sie_ops::quantise_rows, a, &o, {&Args::x, &Args::y}, {});
  }
}

TEST(qk_norm_rope_operands_lie_anywhere) {
  Operands o;
  fill_small(&o.x);
  Array<float> cosines(3 * columns / 2), sines(3 * columns / 2), gamma(columns, 2.0f);
  for (size_t i = 0; i < cosines.size(); i++) {
    cosines[i] = static_cast<float>(i % 5) * 0.25f;
    sines[i] = static_cast<float>(i % 3) * 0.5f;
  }
  sie_qk_norm_rope_args a = {};
  a.tokens = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.heads = a.kv_heads = 1;
  a.head_dim = a.rot = columns;
  a.q_gamma = o.vector.data();
  a.k_gamma = gamma.data();
  a.cos = cosines.data();
  a.sin = sines.data();
  a.positions = 3;
  a.q = o.in();
  a.k = o.to();
  using Args = sie_qk_norm_rope_args;
  check_places<Args>("qk_norm_rope", &sie_ops::qk_norm_rope, a, &o, {&Args::q, &Args::k},
                     {&Args::q_gamma, &Args::k_gamma});
  // A vector of check_places has as many elements as a row; cos and sin have more.
  for (const Gpu &gpu : gpus()) {
    const sie_share whole = {0, 1, nullptr, 0, &gpu.on};
    std::vector<uint8_t> want;
    for (int which = 0; which < 3; which++) {
      Shelf shelf;
      sie_qk_norm_rope_args b = a;
      if (which == 1) b.cos = shelf.vector(a.cos, 3 * columns / 2, Shelf::off);
      if (which == 2) b.sin = shelf.vector(a.sin, 3 * columns / 2, Shelf::off);
      o.restore();
      CHECK(gpu.ops->qk_norm_rope(&b, &whole) == SIE_OK && memory.finish(&gpu.on) == SIE_OK, "%s: refused",
            gpu.ops->name);
      if (which == 0) want = o.all_bytes();
      CHECK(o.all_bytes() == want, "%s: other bits with table %d elsewhere", gpu.ops->name, which);
    }
  }
}
