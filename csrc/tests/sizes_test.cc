// sizes_test.cc — the sizes that follow from a plan, what program.h says of operations, and the bounds
// of programs as numbers.
#include <vector>

#include "node_memory.h"
#include "program.h"
#include "tests/check.h"
#include "weight.h"

namespace {

using ll = long long;

void same(const char *what, int64_t got, int64_t want) {
  CHECK(got == want, "%s: %lld, %lld expected", what, static_cast<ll>(got), static_cast<ll>(want));
}

// A program with long slabs on a device of so many threads.
struct Long {
  sie_device device;
  sie_program p;
  Long(int32_t threads, int64_t region_tokens, int64_t min_len) {
    device.threads = threads;
    p.device = &device;
    p.region_tokens = region_tokens;
    p.caps.min_len = min_len;
    p.caps.max_len = region_tokens;
    p.long_row_bytes = 1000;
    p.long_stage_bytes = 70;
    p.long_fixed_bytes = 3;
  }
};

}  // namespace

// Another number here is a program that is refused, or memory that is asked for, where it was not.
TEST(sizes_of_programs_are_bounded) {
  same("tokens", sie::max_batch_tokens, 16777216);
  same("sequences", sie::max_batch_seqs, 4194304);
  same("columns", sie::max_columns, 1048576);
  same("late bytes", sie::max_late_bytes, 524288);
  same("bytes of memory that is placed", static_cast<int64_t>(sie::placed_from), 65536);
}

TEST(sizes_of_a_buffers_parts) {
  struct {
    int32_t dtype;
    int64_t columns, ld;
    int32_t scale_group;
    bool outliers;
    int64_t cap;
    int64_t scale, zero, outlier, end;
  } cases[] = {{SIE_F32, 5, 16, 0, false, 3, 192, 192, 192, 192},
               {SIE_F32, 5, 16, 0, false, 4, 256, 256, 256, 256},
               {SIE_BF16, 5, 16, 0, false, 2, 64, 64, 64, 64},
               {SIE_U8, 64, 64, -1, false, 16, 1024, 1024 + 64, 1024 + 128, 1024 + 128},
               {SIE_U8, 64, 64, -1, false, 17, 1088, 1088 + 128, 1088 + 256, 1088 + 256},
               {SIE_U8, 64, 64, -1, true, 8, 512, 512 + 64, 512 + 128, 512 + 192},
               {SIE_U8, 64, 64, -1, true, 64, 4096, 4096 + 256, 4096 + 512, 4096 + 1024},
               {SIE_F8E4M3, 127, 128, 128, false, 16, 2048, 2048 + 64, 2048 + 64, 2048 + 64},
               {SIE_F8E4M3, 128, 128, 128, false, 16, 2048, 2048 + 64, 2048 + 64, 2048 + 64},
               {SIE_F8E4M3, 129, 192, 128, false, 16, 3072, 3072 + 128, 3072 + 128, 3072 + 128},
               {SIE_F8E4M3, 300, 320, -1, false, 16, 5120, 5120 + 64, 5120 + 64, 5120 + 64},
               {SIE_F8E4M3, 129 * 64, 129 * 64, 129, false, 1, 129 * 64, 129 * 64 + 256, 129 * 64 + 256,
                129 * 64 + 256}};
  static_assert(sizeof(sie_outlier) == 8, "the cases above count with it");
  for (const auto &c : cases) {
    sie::Buffer b = {};
    b.dtype = c.dtype, b.columns = c.columns, b.ld = c.ld, b.scale_group = c.scale_group;
    b.outliers = c.outliers;
    const sie::BufferParts parts = sie::parts_of(b, c.cap);
    same("scales", parts.scale, c.scale);
    same("zero points", parts.zero, c.zero);
    same("outliers", parts.outlier, c.outlier);
    same("the end", parts.end, c.end);
  }
}

TEST(sizes_of_lanes) {
  Long m(1, 0, 0);
  m.p.scratch_bytes = 1000, m.p.values_bytes = 200, m.p.late_bytes = 30;
  same("a lane", sie::lane_bytes(&m.p), 1230);
  m.p.long_scratch_bytes = 1230;
  same("a lane", sie::lane_bytes(&m.p), 1230);
  m.p.long_scratch_bytes = 5000;
  same("a lane for long slabs' scratch", sie::lane_bytes(&m.p), 5000);
  m.p.region_tokens = 16384, m.p.caps.min_len = 513;
  m.p.long_scratch_bytes = 90;
  same("a lane of long slabs alone", sie::lane_bytes(&m.p), 90);
  m.p.long_scratch_bytes = 9;
  same("a lane of long slabs alone", sie::lane_bytes(&m.p), 64);
  m.p.caps.min_len = 512;
  same("a lane where a slab may be short", sie::lane_bytes(&m.p), 1230);
  m.p.region_tokens = 0, m.p.caps.min_len = 513;
  same("a lane without a region", sie::lane_bytes(&m.p), 1230);
}

TEST(sizes_of_regions) {
  // Tokens, stages and slabs: 28 of 576 tokens fit into 16,384; as many stages as slabs can be at work.
  struct {
    int32_t threads;
    int64_t tokens, min_len, stages, slabs;
  } cases[] = {{1, 16384, 0, 2, 28},     {2, 16384, 0, 2, 28},     {3, 16384, 0, 3, 28},
               {27, 16384, 0, 27, 28},   {64, 16384, 0, 28, 28},   {64, 16384, 512, 28, 28},
               {64, 16384, 513, 28, 28}, {64, 16384, 577, 25, 25}, {64, 16384, 8192, 2, 2},
               {64, 16384, 8193, 1, 1},  {1, 16384, 16384, 1, 1},  {1, 256, 0, 0, 1}};
  for (const auto &c : cases) {
    const Long m(c.threads, c.tokens, c.min_len);
    const int64_t stage_rows = c.stages == 0 ? 256 : 288 * c.stages;
    same("a region", sie::region_bytes(&m.p), c.tokens * 1000 + stage_rows * 70 + c.slabs * 3);
  }
  const Long none(8, 0, 0);
  same("no region", sie::region_bytes(&none.p), 0);
  // No stage has more rows than there are.
  Long m(64, 16384, 0);
  m.p.stage_rows = 1600;
  same("a region with large stages", sie::region_bytes(&m.p), 16384 * 1070 + 28 * 3);
  // Of one slab.
  const Long one(1, 16384, 0);
  struct {
    int64_t tokens, cap, stage;
  } slabs[] = {{513, 576, 288}, {576, 576, 288}, {577, 640, 288}, {200, 256, 256}, {288, 320, 288}};
  for (const auto &s : slabs) {
    same("tokens of a slab", sie::long_cap(s.tokens), s.cap);
    same("rows of a stage", sie::stage_cap(&one.p, s.tokens), s.stage);
    same("a slab", sie::long_bytes(&one.p, s.tokens), s.cap * 1000 + s.stage * 70 + 3);
  }
}

TEST(sizes_of_keys_and_positions) {
  Long m(1, 0, 0);
  m.p.caps.max_len = 100;
  m.p.state.max_rows = 60;
  same("keys without a state", sie::longest_keys(&m.p, 30), 30);
  m.p.state.rows = 4;
  same("keys behind a state", sie::longest_keys(&m.p, 30), 90);
  same("keys behind a state", sie::longest_keys(&m.p, 40), 100);
  same("keys behind a state", sie::longest_keys(&m.p, 41), 100);
  sie::Space space = {};
  sie::bound_positions(&space, 70);
  same("the first table", space.positions, 70);
  sie::bound_positions(&space, 71);
  same("a longer table", space.positions, 70);
  sie::bound_positions(&space, 69);
  same("a shorter table", space.positions, 69);
}

TEST(sizes_of_attention_with_positions) {
  sie_weight key, query, buckets;
  key.n = 11, query.n = 12;
  sie_attention_params a = {};
  a.head_dim = 10;
  a.pos_key = &key;
  same("rows without buckets", sie::position_rows(a), 0);
  a.buckets = &buckets;
  same("rows of the keys' table", sie::position_rows(a), 11);
  a.pos_query = &query;
  same("rows of both tables", sie::position_rows(a), 11);
  same("operations of a pair, two tables", static_cast<int64_t>(sie::pair_flops(a)), 80);
  a.pos_key = nullptr;
  same("rows of the queries' table", sie::position_rows(a), 12);
  same("operations of a pair, one table", static_cast<int64_t>(sie::pair_flops(a)), 60);
  a.pos_query = nullptr;
  same("operations of a pair", static_cast<int64_t>(sie::pair_flops(a)), 40);
}

TEST(sizes_tell_operations_apart) {
  sie::StateUse use = {};
  CHECK(!use.writes() && !use.reads(), "a state that is not declared");
  use.declared = true;
  CHECK(use.writes() && !use.reads(), "a state without inputs is written");
  use.rows = 3;
  CHECK(!use.writes() && use.reads(), "a state with inputs is read");
  for (uint32_t kind = 0; kind <= SIE_OP_LINEAR_NORM; kind++) {
    CHECK(sie::finds(kind) == (kind == SIE_OP_SPANS || kind == SIE_OP_PAIRS), "finds %u", kind);
    const bool matrix = kind == SIE_OP_LINEAR || kind == SIE_OP_SPLADE || kind == SIE_OP_LINEAR_NORM;
    CHECK(sie::has_matrix(kind) == matrix, "a matrix of %u", kind);
    sie::Op op = {};
    op.kind = kind;
    CHECK(!sie::has_prefix(op), "%u has a prefix without a segment", kind);
    op.attention.segment = 1;
    CHECK(sie::has_prefix(op) == (kind == SIE_OP_ATTENTION), "the prefix of %u", kind);
  }
  for (uint32_t compute = 0; compute <= SIE_COMPUTE_FP8; compute++) {
    CHECK(sie::is_quantised(compute) == (compute == SIE_COMPUTE_INT8 || compute == SIE_COMPUTE_FP8),
          "class %u", compute);
    sie_device device;
    for (uint32_t kind : {SIE_DEVICE_CPU, SIE_DEVICE_CUDA, SIE_DEVICE_REF}) {
      device.kind = kind;
      const uint32_t want = kind == SIE_DEVICE_REF ? static_cast<uint32_t>(SIE_COMPUTE_F32) : compute;
      CHECK(sie::storage_class(&device, compute) == want, "class %u of device %u", compute, kind);
      CHECK(device.is_gpu() == (kind == SIE_DEVICE_CUDA), "device %u", kind);
    }
  }
  sie_attention_params a = {};
  CHECK(!sie::stands_first(a), "all queries");
  a.which = SIE_POOL_LAST;
  CHECK(!sie::stands_first(a), "the last query");
  a.which = SIE_POOL_CLS;
  CHECK(sie::stands_first(a), "the first query");
  a.which = 0;
  a.first_keys = 1;
  CHECK(sie::stands_first(a), "the first keys");
}

TEST(sizes_of_spaces) {
  sie_program p;
  p.seqs = 2;
  p.spaces[1].kind = SIE_SPACE_ROWS, p.spaces[1].max_rows = 100, p.spaces[1].max_each = 10;
  p.spaces[2].kind = SIE_SPACE_SEQS, p.spaces[2].max_rows = 7;
  p.spaces[3].kind = SIE_SPACE_SUBSET, p.spaces[3].marks = 1;
  p.spaces[4].kind = SIE_SPACE_SHARED, p.spaces[4].max_rows = 50, p.spaces[4].max_each = 9;
  p.spaces[5].kind = SIE_SPACE_SUBSET, p.spaces[5].marks = 2;
  p.inputs[1].space = 1;
  p.inputs[2].space = 4;
  const sie_space whole[] = {0, 1, 2, 1, 4, 4};
  const int64_t rows[] = {0, 100, 7, 100, 50, 50}, labels[] = {0, 10, 0, 10, 50, 50};
  for (sie_space s = 1; s <= 5; s++) {
    CHECK(sie::whole_of(&p, s) == whole[s], "space %d is of %d", s, sie::whole_of(&p, s));
    same("rows", sie::rows_cap(&p, s), rows[s]);
    if (s != 2) same("labels", sie::most_labels(&p, s), labels[s]);
    sie::Value v = {};
    v.space = s;
    CHECK(p.values.push(v), "no memory");
    CHECK(sie::of_seqs(&p, static_cast<sie_value>(p.values.size() - 1)) == (s == 2), "space %d", s);
  }
}

// Node 0 of the seats reads the matrix itself, the others their copy where there is one.
TEST(sizes_of_copied_weights) {
  sie_weight w;
  std::vector<sie::WeightCopy> copies(2);
  for (int32_t node : {0, 1, 2}) CHECK(w.packed_on(node) == &w.packed, "node %d has no copy", node);
  w.copies.p = copies.data();
  w.n_copies = 2;
  CHECK(w.packed_on(0) == &w.packed && w.packed_on(1) == &copies[0].packed &&
            w.packed_on(2) == &copies[1].packed,
        "another copy");
  sie::Seats seats;
  CHECK(!sie::has_nodes(seats), "nodes without a number");
  seats.numbers[0] = 0;
  CHECK(sie::has_nodes(seats), "node 0 is one");
}
