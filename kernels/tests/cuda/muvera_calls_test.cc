// muvera_calls_test.cc — MUVERA on the GPU tables: refusals, the size of scratch, and its slots.
#include <math.h>

#include "common/muvera.h"
#include "tests/cuda/operands.h"

using namespace calls;

namespace {

// The tables of one repetition, for encodings with everything.
struct Encoding {
  Encoding(int64_t c, int32_t bits, int32_t projected, int32_t final_dims)
      : simhash(c * std::max(bits, 1), 1.0f), ams(c) {
    const int64_t block = (projected != 0 ? projected : c) << bits;
    std::vector<int32_t> sketch;
    for (int64_t i = 0; i < block; i++)
      sketch.push_back(static_cast<int32_t>(i % 3 == 0 ? ~(i % final_dims) : i % final_dims));
    for (size_t i = 0; i < simhash.size(); i += 2) simhash[i] = -0.5f;
    for (size_t i = 0; i < ams.size() && projected != 0; i++) ams[i] = static_cast<int32_t>(i) % projected;
    output.resize(sketch.size());
    source.resize(sketch.size());
    std::vector<int32_t> room(static_cast<size_t>(final_dims + 2 * block));
    sie_order_sketch(sketch.data(), 1, block, final_dims, room.data(), output.data(), source.data());
    args.c = c;
    args.repetitions = 1;
    args.simhash_bits = bits;
    args.projected = projected;
    args.final_dims = final_dims;
    args.simhash = simhash.data();
    args.ams = ams.data();
    args.sketch_output = output.data();
    args.sketch_source = source.data();
  }

  Array<float> simhash;
  Array<int32_t> ams, output, source;
  sie_muvera_args args = {};
};

sie_op_bounds muvera_bounds(int64_t tokens, int64_t seqs, int64_t c, int32_t repetitions, int32_t bits,
                            int32_t projected, int64_t final_dims) {
  sie_op_bounds b = {};
  b.kind = SIE_OP_MUVERA;
  b.rows = tokens;
  b.seqs = seqs;
  b.c = c;
  b.repetitions = repetitions;
  b.simhash_bits = bits;
  b.projected = projected;
  b.final_dims = final_dims;
  return b;
}

}  // namespace

TEST(muvera_refuses) {
  Operands o;
  Encoding e(columns, 1, 8, 16);
  sie_muvera_args a = e.args;
  a.tokens = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.x = o.in();
  a.items = o.items.data();
  a.out = o.out.data();
  using Args = sie_muvera_args;
  static constexpr int64_t most_tokens = int64_t{1} << 26;
  check_refusals<Args>(
      "muvera", &sie_ops::muvera, a, &Args::seqs, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"no repetitions", invalid, [](Args *b) { b->repetitions = 0; }},
          {"fewer bits than none", invalid, [](Args *b) { b->seqs.cap = 0, b->simhash_bits = -1; }},
          {"eleven bits", invalid, [](Args *b) { b->seqs.cap = 0, b->simhash_bits = 11; }},
          {"fewer projected columns than none", invalid, [](Args *b) { b->projected = -1; }},
          {"fewer columns than none", invalid, [](Args *b) { b->final_dims = -1; }},
          {"fewer tokens than none", invalid, [](Args *b) { b->tokens.cap = -1; }},
          {"no token count", invalid, [](Args *b) { b->tokens.n = nullptr; }},
          {"no sequences", invalid, [](Args *b) { b->cu_seqlens = nullptr; }},
          {"no items", invalid, [](Args *b) { b->items = nullptr; }},
          {"nowhere to write", invalid, [](Args *b) { b->out = nullptr; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"no planes", invalid, [](Args *b) { b->simhash = nullptr; }},
          {"no projection", invalid, [](Args *b) { b->ams = nullptr; }},
          {"no sketch", invalid, [](Args *b) { b->sketch_output = nullptr; }},
          {"no source of the sketch", invalid, [](Args *b) { b->sketch_source = nullptr; }},
          {"x of bytes", unsupported, [](Args *b) { b->x.dtype = SIE_U8; }},
          {"more tokens than 26 bits", unsupported, [](Args *b) { b->tokens.cap = most_tokens + 1; }},
          {"as many tokens as 26 bits, in too little scratch", invalid,
           [](Args *b) { b->tokens.cap = most_tokens; }},
          {"a sequence more than there is scratch for", invalid, [](Args *b) { b->seqs.cap = 1000; }},
          {"wide tokens to centre", unsupported,
           [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = 8193, b->center_tokens = 1; }},
          {"no wide tokens to centre", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = 8192, b->center_tokens = 1; }},
          {"no wide tokens", SIE_OK, [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = 8193; }},
          {"no sequences of the widest tokens", SIE_OK,
           [](Args *b) {
             b->seqs.cap = 0, b->c = b->x.ld = widest, b->simhash_bits = 10, b->repetitions = 2;
           }},
          {"too many columns", unsupported, [](Args *b) { b->seqs.cap = 0, b->c = b->x.ld = too_wide; }},
          {"no sequences in the most repetitions", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->repetitions = widest, b->projected = 1023; }},
          {"too many repetitions", unsupported,
           [](Args *b) { b->seqs.cap = 0, b->repetitions = too_wide, b->projected = 1; }},
          {"no sequences in the widest projection", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->projected = 4096, b->simhash_bits = 10, b->repetitions = 511; }},
          {"too wide a projection", unsupported, [](Args *b) { b->seqs.cap = 0, b->projected = 4097; }},
          {"more places than int32", unsupported,
           [](Args *b) { b->seqs.cap = 0, b->projected = 4096, b->simhash_bits = 10, b->repetitions = 512; }},
          {"no sequences of nearly as many places as int32", SIE_OK,
           [](Args *b) {
             b->seqs.cap = 0, b->projected = 2047, b->simhash_bits = 0, b->repetitions = widest;
           }},
          {"no sequences of the widest results", SIE_OK,
           [](Args *b) { b->seqs.cap = 0, b->final_dims = widest; }},
          {"too wide a result", unsupported, [](Args *b) { b->seqs.cap = 0, b->final_dims = too_wide; }},
          {"no sequences of the widest results without a sketch", SIE_OK,
           [](Args *b) {
             b->seqs.cap = 0;
             b->final_dims = 0;
             b->projected = 1024;
             b->simhash_bits = 10;
           }},
          {"too wide a result without a sketch", unsupported,
           [](Args *b) {
             b->seqs.cap = 0;
             b->final_dims = 0;
             b->projected = 1025;
             b->simhash_bits = 10;
           }},
          {"no sequences and no memory", SIE_OK,
           [](Args *b) {
             b->seqs = {0, nullptr};
             b->tokens.n = b->cu_seqlens = b->ams = b->sketch_output = b->sketch_source = nullptr;
             b->simhash = nullptr;
             b->items = nullptr;
             b->x.p = b->out = nullptr;
           }},
      },
      {}, muvera_bounds(rows, 2, columns, 1, 1, 8, 16));

  for (const Gpu &gpu : gpus()) {
    Scratch scratch(gpu.ops, muvera_bounds(rows, 2, columns, 1, 1, 8, 16));
    sie_share share = scratch.share(0, 1);
    share.scratch_bytes--;
    CHECK(gpu.ops->muvera(&a, &share) == invalid, "%s: a byte of scratch less", gpu.ops->name);
    share = scratch.share(0, 1);
    share.scratch = nullptr;
    CHECK(gpu.ops->muvera(&a, &share) == invalid, "%s: no scratch", gpu.ops->name);
    CHECK(o.untouched(), "%s: refused, but wrote", gpu.ops->name);
    // Sequences without tokens: nothing that a token needs has to be there.
    sie_muvera_args none = a;
    Array<int32_t> cu = {0, 0, 0}, n = {0};
    none.tokens = {0, n.data()};
    none.cu_seqlens = cu.data();
    none.simhash = nullptr;
    none.ams = none.sketch_output = none.sketch_source = nullptr;
    none.x.p = nullptr;
    for (int32_t normalize : {0, 1}) {
      none.normalize = normalize;
      share = scratch.share(0, 1);
      CHECK(gpu.ops->muvera(&none, &share) == SIE_OK && memory.finish(&gpu.on) == SIE_OK, "%s: no tokens",
            gpu.ops->name);
      for (size_t i = 0; i < 2 * 2 * 16; i++)
        CHECK(o.out[i / 32 * 64 + i % 32] == 0, "%s: [%zu]", gpu.ops->name, i);
      o.clear();
    }
  }
}

// Partitions [R, T], means [B, C], norms [T], what pool needs, and for at most 128 sequences at a time what
// 96 KiB do not hold: muvera.h.
TEST(muvera_scratch_is_no_larger_than_said) {
  struct Shape {
    sie_op_bounds bounds;
    int64_t slot;  // floats
  };
  // P·2⁴ and F on both sides of what fits beside the tables of a projection.
  const Shape shapes[] = {
      {muvera_bounds(130, 3, 100, 3, 2, 8, 50), 0},
      {muvera_bounds(0, 1, 1, 1, 0, 1, 1), 0},
      {muvera_bounds(8, 3, 4, 1, 4, 1222, 16), 0},
      {muvera_bounds(9, 3, 4, 1, 4, 1222, 17), 24},
      {muvera_bounds(8, 3, 4, 1, 4, 1219, 96), 0},
      {muvera_bounds(9, 3, 4, 1, 4, 1223, 16), 16},
      {muvera_bounds(9, 3, 4, 1, 4, 1224, 16), 19584},
      {muvera_bounds(9, 128, 4, 1, 4, 1224, 16), 19584},
      {muvera_bounds(9, 200, 4, 1, 4, 1224, 16), 19584},
      {muvera_bounds(70, 3, 4, 2, 4, 1224, 19568), 19584},
      {muvera_bounds(70, 3, 4, 2, 4, 1224, 19569), 19584 + 19576},
      {muvera_bounds(9, 3, 1224, 1, 4, 1224, 16), 19584},
      {muvera_bounds(9, 3, 4096, 1, 2, 4096, 16), 16384},
      {muvera_bounds(70, 3, 5000, 2, 3, 8, 24), 0},
      {muvera_bounds(70, 3, 5000, 2, 2, 5000, 24), 0},
      {muvera_bounds(70, 3, 5000, 2, 3, 5000, 24), 40000},
      {muvera_bounds(70, 3, 5000, 2, 3, 5000, 80000), 120000},
  };
  auto up = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  for (const Gpu &gpu : gpus()) {
    for (const Shape &s : shapes) {
      const sie_op_bounds &b = s.bounds;
      const int64_t partitions = up(b.repetitions * up(b.rows, 8) * 2, 64), means = b.seqs * b.c * 4,
                    pooling = b.c <= 8192 ? up((b.rows / 128 + b.seqs) * (up(b.c, 8) * 4 + 8), 64) : 0,
                    want = up(up(partitions + means, 64) + b.rows * 4, 64) + pooling +
                           std::min<int64_t>(b.seqs, 128) * s.slot * 4,
                    got = gpu.ops->scratch_bytes(&b);
      CHECK(got == want, "%s: %lld bytes for C=%lld P=%d F=%lld, not %lld", gpu.ops->name,
            static_cast<long long>(got), static_cast<long long>(b.c), b.projected,
            static_cast<long long>(b.final_dims), static_cast<long long>(want));
    }
    for (const sie_op_bounds &b :
         {muvera_bounds(9, 3, 0, 1, 4, 8, 16), muvera_bounds(9, 3, 4, 1, 11, 8, 16),
          muvera_bounds(9, 3, 4, 1, -1, 8, 16), muvera_bounds(9, 3, 4, 512, 10, 4096, 16)}) {
      CHECK(gpu.ops->scratch_bytes(&b) == 0, "%s: scratch for what is refused", gpu.ops->name);
    }
  }
}

// Sequences with a block of c·2¹⁰ floats each, sketched to f columns; `slots`: no device holds two of them in shared
// memory, so that each CTA has a slot of scratch, however many there are, and together they take all sequences.
void check_large_blocks(int32_t c, int32_t f, bool slots) {
  constexpr int32_t sequences = 130;
  Encoding e(c, 10, 0, f);
  const std::vector<int32_t> with_tokens = {0, 1, 2, 127, 128, 129};
  std::vector<int32_t> lengths(sequences, 0);
  for (int32_t b : with_tokens) lengths[static_cast<size_t>(b)] = 1;
  Sequences own(lengths);
  Array<int32_t> n = {static_cast<int32_t>(own.tokens()), sequences};
  Array<float> x(own.tokens() * c);
  for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(i * i % 23) - 11.0f;
  Array<sie_out_item> items(sequences);
  for (int32_t b = 0; b < sequences; b++) items[static_cast<size_t>(b)] = {SIE_F32, 0, 0, 0, b * f * 4};
  sie_muvera_args a = e.args;
  a.tokens = {own.tokens(), &n[0]};
  a.seqs = {sequences, &n[1]};
  a.cu_seqlens = own.cu(0, sequences);
  a.x = {x.data(), c, SIE_F32, 0, nullptr, nullptr, nullptr};
  a.items = items.data();
  std::vector<float> expected;
  for (const Gpu &gpu : gpus()) {
    std::vector<std::pair<int32_t, int32_t>> devices;  // sm, multiprocessors
    for (int32_t multiprocessors : {1, 0, 70}) devices.push_back({gpu.on.sm, multiprocessors});
    // Others of the same table: they have less shared memory, or more.
    if (emulated(gpu) && gpu.on.sm == 80) devices.insert(devices.end(), {{86, 70}, {100, 70}});
    if (emulated(gpu) && gpu.on.sm == 89) devices.push_back({120, 70});
    for (const auto &[sm, multiprocessors] : devices) {
      Scratch scratch(gpu.ops, muvera_bounds(own.tokens(), sequences, c, 1, 10, c, f));
      sie_stream on = gpu.on;
      on.sm = sm;
      on.multiprocessors = multiprocessors;
      sie_share share = scratch.share(0, 1);
      share.on = &on;
      Array<float> out(sequences * f, -1.0f);
      a.out = out.data();
      CHECK(gpu.ops->muvera(&a, &share) == SIE_OK && memory.finish(&on) == SIE_OK,
            "%s, sm_%d with %d: refused", gpu.ops->name, sm, multiprocessors);
      CHECK(scratch.intact(), "%s, sm_%d with %d: wrote behind its scratch", gpu.ops->name, sm,
            multiprocessors);
      // As many CTAs as slots, and a block fills one: each has written its own, so the last ends
      // where scratch does.
      uint32_t last;
      memcpy(&last, static_cast<char *>(share.scratch) + share.scratch_bytes - sizeof last, sizeof last);
      CHECK(!slots || multiprocessors != 70 || last != 0xffffffffu, "%s: nobody used the last slot",
            gpu.ops->name);
      const std::vector<float> got(out.begin(), out.end());
      if (expected.empty()) expected = got;
      CHECK(got == expected, "%s, sm_%d with %d: other bits", gpu.ops->name, sm, multiprocessors);
    }
  }
  if (gpus().empty()) return;
  for (int32_t b : with_tokens) {
    float most = 0;
    for (int32_t i = 0; i < f; i++) most = std::max(most, std::abs(expected[static_cast<size_t>(b * f + i)]));
    CHECK(most > 0, "sequence %d has no sum", b);
  }
}

TEST(muvera_slots) { check_large_blocks(32, 1000, true); }

// Two blocks fit in the shared memory of sm_90 and sm_100 alone, or of sm_80 too: the same bits as of one, which has
// a slot or its block in shared memory.
TEST(muvera_two_sequences_have_the_bits_of_one) {
  check_large_blocks(24, 1000, false);
  check_large_blocks(16, 1000, false);
  check_large_blocks(8, 17504, false);  // a row that one has in its slot, beside its block in shared memory
}

// Every addition of a sketch once, in rounds of different outputs, places of an output ascending; and spread over
// the banks of shared memory as the cost model has it (kMuveraBanks in cost.cc).
TEST(muvera_sketch_in_rounds) {
  struct Shape {
    int64_t repetitions, block, dims;
  };
  Random random(1);
  for (const Shape &s :
       {Shape{3, 8192, 10240}, Shape{2, 1000, 7}, Shape{2, 1, 5}, Shape{1, 3000, 1}, Shape{1, 9000, 20000}}) {
    const size_t all = static_cast<size_t>(s.repetitions * s.block);
    std::vector<int32_t> sketch(all), output(all), source(all),
        room(static_cast<size_t>(s.dims + 2 * s.block));
    for (int32_t &to : sketch) {
      const int32_t j = random.below(static_cast<int32_t>(s.dims));
      to = random.below(2) == 0 ? j : ~j;
    }
    sie_order_sketch(sketch.data(), s.repetitions, s.block, s.dims, room.data(), output.data(),
                     source.data());
    int64_t passes = 0;
    for (int64_t r = 0; r < s.repetitions; r++) {
      const size_t of = static_cast<size_t>(r * s.block);
      std::vector<int32_t> last(static_cast<size_t>(s.dims), -1), place_of(last),
          seen(static_cast<size_t>(s.block));
      int32_t round = 0;
      for (size_t e = 0; e < static_cast<size_t>(s.block); e++) {
        const int32_t from = source[of + e], place = from < 0 ? ~from : from, to = output[of + e] / 1024;
        const size_t j = static_cast<size_t>(to);
        if (output[of + e] % 1024 != round % 1024) round++;
        CHECK(output[of + e] % 1024 == round % 1024, "addition %zu is not in round %d", e, round);
        CHECK(seen[static_cast<size_t>(place)]++ == 0, "place %d is added twice", place);
        CHECK(sketch[of + static_cast<size_t>(place)] == (from < 0 ? ~to : to), "place %d goes to %d", place,
              to);
        CHECK(last[j] == round - 1 && place_of[j] < place, "place %d of output %d in round %d", place, to,
              round);
        last[j] = round;
        place_of[j] = place;
      }
      for (size_t begin = 0; begin < static_cast<size_t>(s.block); begin += 32) {
        int places[32] = {}, outputs[32] = {}, most = 0;
        for (size_t e = of + begin; e < of + std::min(begin + 32, static_cast<size_t>(s.block)); e++) {
          const int32_t from = source[e];
          most = std::max({most, ++places[(from < 0 ? ~from : from) % 32], ++outputs[output[e] / 1024 % 32]});
        }
        passes += most;
      }
    }
    const double each = static_cast<double>(passes) / static_cast<double>(s.repetitions * (s.block / 32 + 1));
    CHECK(s.dims < 10240 || each < 1.65, "%.2f passes for 32 additions of %lld", each,
          static_cast<long long>(s.block));
  }
}

// Whoever shares a CTA with a document, and whether anybody does: its bits are those that it has alone, and nothing
// is written behind its output. Documents of several lengths, two of them empty, in each order of a circle.
TEST(muvera_bits_do_not_depend_on_the_neighbour) {
  constexpr int32_t c = 20;
  const std::vector<int32_t> lengths = {33, 0, 1, 290, 0, 7};
  const int32_t documents = static_cast<int32_t>(lengths.size());
  struct Form {
    int32_t projected, fill, centre, query, dtype, bits, f;
  };
  for (
      const Form &form :
      {Form{0, 0, 0, 0, SIE_F32, 3, 37}, Form{5, 1, 0, 0, SIE_F32, 3, 37}, Form{0, 0, 1, 1, SIE_F32, 3, 37},
       Form{5, 0, 1, 0, SIE_F32, 3, 37}, Form{0, 1, 0, 0, SIE_BF16, 3, 37}, Form{5, 0, 0, 1, SIE_BF16, 3, 37},
       /* Twice all additions that a CTA asks for at a time, and some, in several rounds. The last of the second
           time goes to an output as large as rounds have passed. */
       Form{0, 1, 0, 0, SIE_F32, 8, 58}}) {
    const int32_t f = form.f, room = (f + 7) / 4 * 4;  // floats from an output to the next
    Encoding e(c, form.bits, form.projected, f);
    for (const Gpu &gpu : gpus()) {
      // `count` documents from `from` on, in a batch that has room for two more.
      auto encode = [&](int32_t from, int32_t count) {
        std::vector<int32_t> own;
        std::vector<float> values;
        for (int32_t i = 0; i < count; i++) {
          const int32_t d = (from + i) % documents;
          own.push_back(lengths[static_cast<size_t>(d)]);
          for (int32_t at = 0; at < own.back() * c; at++)
            values.push_back((static_cast<float>((d + 3) * at * at % 29) - 14.0f) / 7);
        }
        Sequences sequences(own);
        values.push_back(0);  // x has a place where no document has tokens
        Array<float> x(values.begin(), values.end()), out(static_cast<size_t>((count + 2) * room), -1.0f);
        Array<uint16_t> narrow;  // the same values, cut
        for (float v : values) {
          uint32_t bits;
          memcpy(&bits, &v, sizeof bits);
          narrow.push_back(static_cast<uint16_t>(bits >> 16));
        }
        Array<int32_t> n = {static_cast<int32_t>(sequences.tokens()), count};
        // Behind the last sequence's end is nothing that a kernel may read: here as if all had no tokens.
        const int32_t *const ends = sequences.cu(0, count);
        Array<int32_t> cu(ends, ends + count + 1);
        cu.insert(cu.end(), 2, 0);
        Array<sie_out_item> items(static_cast<size_t>(count + 2));
        for (int32_t i = 0; i < count + 2; i++)
          items[static_cast<size_t>(i)] = {SIE_F32, 0, 0, 0, int64_t{4} * i * room};
        sie_muvera_args a = e.args;
        a.tokens = {sequences.tokens(), &n[0]};
        a.seqs = {count + 2, &n[1]};
        a.cu_seqlens = cu.data();
        a.x = {x.data(), c, form.dtype, 0, nullptr, nullptr, nullptr};
        if (form.dtype == SIE_BF16) a.x.p = narrow.data();
        a.fill_empty = form.fill;
        a.center_tokens = form.centre;
        a.is_query = form.query;
        a.items = items.data();
        a.out = out.data();
        Scratch scratch(gpu.ops, muvera_bounds(sequences.tokens(), count + 2, c, 1, form.bits,
                                               form.projected != 0 ? form.projected : c, f));
        const sie_share share = scratch.share(0, 1);
        CHECK(gpu.ops->muvera(&a, &share) == SIE_OK && memory.finish(&gpu.on) == SIE_OK, "%s: refused",
              gpu.ops->name);
        CHECK(scratch.intact(), "%s: wrote behind its scratch", gpu.ops->name);
        for (int32_t i = 0; i < (count + 2) * room; i++) {
          CHECK((i / room < count && i % room < f) || out[static_cast<size_t>(i)] == -1.0f,
                "%s: wrote at %d of %d documents", gpu.ops->name, i, count);
        }
        return std::vector<float>(out.begin(), out.end());
      };
      encode(0, 0);  // writes nothing
      std::vector<std::vector<float>> alone;
      for (int32_t d = 0; d < documents; d++) {
        alone.push_back(encode(d, 1));
        const bool zeros = std::all_of(alone.back().begin(), alone.back().begin() + f,
                                       [](float v) { return v == 0 && !std::signbit(v); });
        // One token less its own mean is zero, too.
        CHECK(zeros == (lengths[static_cast<size_t>(d)] <= form.centre), "%s: document %d alone",
              gpu.ops->name, d);
      }
      for (int32_t from = 0; from < documents; from++) {
        for (int32_t count = 2; count <= documents; count++) {
          const std::vector<float> got = encode(from, count);
          for (int32_t i = 0; i < count; i++) {
            const int32_t d = (from + i) % documents;
            CHECK(memcmp(&got[static_cast<size_t>(i * room)], alone[static_cast<size_t>(d)].data(),
                         static_cast<size_t>(f) * 4) == 0,
                  "%s: document %d at %d of %d has other bits", gpu.ops->name, d, i, count);
          }
        }
      }
    }
  }
}

// A sketch has the sums of the encoding without one, places ascending, bit for bit. Rounds of 1,900 outputs end anywhere
// among the 2,048 additions that a CTA asks for at a time: in the last quarter of them, too, of outputs that have sums.
TEST(muvera_sketch_adds_places_in_order) {
  constexpr int32_t c = 20, bits = 9, block = c << bits, f = 1900, count = 3;
  Encoding e(c, bits, 0, f);
  Sequences sequences({9, 0, 5});
  Array<int32_t> n = {static_cast<int32_t>(sequences.tokens()), count};
  Array<float> x;
  for (int32_t i = 0; i < sequences.tokens() * c; i++)
    x.push_back((static_cast<float>(i * i % 29) - 14.0f) / 7);
  for (const Gpu &gpu : gpus()) {
    auto encode = [&](int32_t final_dims, int32_t columns) {
      Array<float> out(static_cast<size_t>(count * columns), -1.0f);
      Array<sie_out_item> items;
      for (int32_t i = 0; i < count; i++) items.push_back({SIE_F32, 0, 0, 0, int64_t{4} * i * columns});
      sie_muvera_args a = e.args;
      a.tokens = {sequences.tokens(), &n[0]};
      a.seqs = {count, &n[1]};
      a.cu_seqlens = sequences.cu(0, count);
      a.x = {x.data(), c, SIE_F32, 0, nullptr, nullptr, nullptr};
      a.fill_empty = 1;
      a.final_dims = final_dims;
      a.items = items.data();
      a.out = out.data();
      Scratch scratch(gpu.ops, muvera_bounds(sequences.tokens(), count, c, 1, bits, c, final_dims));
      const sie_share share = scratch.share(0, 1);
      CHECK(gpu.ops->muvera(&a, &share) == SIE_OK && memory.finish(&gpu.on) == SIE_OK, "%s: refused",
            gpu.ops->name);
      return std::vector<float>(out.begin(), out.end());
    };
    const std::vector<float> whole = encode(0, block), got = encode(f, f);
    for (int32_t d = 0; d < count; d++) {
      std::vector<float> sum(f, 0.0f);
      for (int32_t i = 0; i < block; i++) {
        float &to = sum[static_cast<size_t>(i % f)];
        const float v = whole[static_cast<size_t>(d * block + i)];
        to = i % 3 == 0 ? to - v : to + v;
      }
      CHECK(d == 1 || std::any_of(sum.begin(), sum.end(), [](float v) { return v != 0; }),
            "document %d has no sum", d);
      for (int32_t j = 0; j < f; j++) {
        const float is = got[static_cast<size_t>(d * f + j)], want = sum[static_cast<size_t>(j)];
        CHECK(is == want, "%s: column %d of document %d is %g, not %g", gpu.ops->name, j, d,
              static_cast<double>(is), static_cast<double>(want));
      }
    }
  }
}

// bf16 rows anywhere, at any stride: whether a lane takes four columns by one load changes no bit.
TEST(muvera_operands_lie_anywhere) {
  const std::vector<int32_t> lengths = {2, 0, 5};
  Sequences sequences(lengths);
  for (const int32_t c : {20, 10}) {
    constexpr int32_t f = 40;  // each addition has an output of its own: all are of one round
    Encoding e(c, 1, 0, f);
    Array<int32_t> n = {static_cast<int32_t>(sequences.tokens()), 3};
    Array<sie_out_item> items;
    for (int32_t i = 0; i < 3; i++) items.push_back({SIE_F32, 0, 0, 0, int64_t{4} * i * f});
    for (const Gpu &gpu : gpus()) {
      std::vector<float> expected;
      auto check = [&](int32_t ld, int32_t begin) {
        Array<uint16_t> x(static_cast<size_t>(begin + sequences.tokens() * ld), 0x7fc0);
        for (int64_t t = 0; t < sequences.tokens(); t++) {
          for (int32_t i = 0; i < c; i++) {
            const float v = static_cast<float>((3 * t + i * i) % 29) - 14.0f;
            uint32_t bits;
            memcpy(&bits, &v, sizeof bits);
            x[static_cast<size_t>(begin + t * ld + i)] = static_cast<uint16_t>(bits >> 16);
          }
        }
        Array<float> out(3 * f, -1.0f);
        sie_muvera_args a = e.args;
        a.tokens = {sequences.tokens(), &n[0]};
        a.seqs = {3, &n[1]};
        a.cu_seqlens = sequences.cu(0, 3);
        a.x = {x.data() + begin, ld, SIE_BF16, 0, nullptr, nullptr, nullptr};
        a.items = items.data();
        a.out = out.data();
        Scratch scratch(gpu.ops, muvera_bounds(sequences.tokens(), 3, c, 1, 1, c, f));
        const sie_share share = scratch.share(0, 1);
        CHECK(gpu.ops->muvera(&a, &share) == SIE_OK && memory.finish(&gpu.on) == SIE_OK, "%s: refused",
              gpu.ops->name);
        const std::vector<float> got(out.begin(), out.end());
        if (expected.empty()) expected = got;
        CHECK(got == expected, "%s: %d columns of %d, from %d on: other bits", gpu.ops->name, c, ld, begin);
        for (int32_t b : {0, 2}) {
          CHECK(std::any_of(&got[static_cast<size_t>(b * f)], &got[static_cast<size_t>(b * f)] + f,
                            [](float v) { return v != 0; }),
                "%s: sequence %d is all zeros", gpu.ops->name, b);
        }
      };
      for (int32_t begin = 0; begin < 36; begin++) check(c, begin);
      for (int32_t more = 1; more <= 5; more++) check(c + more, 0);
    }
  }
}
