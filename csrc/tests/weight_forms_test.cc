// weight_forms_test.cc — what weights may be, how they are read and packed, and the room they take: at every
// bound, on a made-up device that notes what is packed.
#include <float.h>
#include <math.h>
#include <string.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "affinity.h"
#include "common/dtype.h"
#include "device.h"
#include "machine.h"
#include "node_memory.h"
#include "program.h"
#include "says.h"
#include "weight.h"
#include "wrapped.h"

namespace {

struct Packed {
  int64_t first, rows;
};
std::vector<Packed> packs;
int64_t packed_bytes = -1;  // what the table says; −1: as the reference

int64_t bytes_of(uint32_t compute, int64_t n, int64_t k) {
  return packed_bytes >= 0 ? packed_bytes : sie_ref_ops()->packed_bytes(compute, n, k);
}
int64_t no_form(uint32_t, int64_t, int64_t) { return -1; }
void pack(uint32_t compute, int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,
          void *dst) {
  packs.push_back({n0, rows});
  sie_ref_ops()->pack(compute, n, k, n0, rows, src, ld, dst);
}

// A CPU without executors, of all classes.
struct Made {
  sie_ops ops = *sie_ref_ops();
  sie_device device;
  sie_weight_desc d = sized<sie_weight_desc>();
  sie_weight *w = nullptr;
  std::vector<float> values;

  Made() {
    ops.packed_bytes = bytes_of;
    ops.pack = pack;
    device.kind = SIE_DEVICE_CPU;
    device.ops = &ops;
    device.compute_mask = 0x3e;
    d.kind = SIE_WEIGHT_LINEAR;
    d.compute = SIE_COMPUTE_F32;
    d.dtype = SIE_F32;
    of(4, 8);
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;
  ~Made() { sie_weight_free(w); }

  // One part, of small numbers that every type has.
  void of(int64_t n, int64_t k) {
    values.resize(static_cast<size_t>(n * k));
    for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(1 + i % 250);
    d.n = n, d.k = k;
    d.n_parts = 1;
    d.parts[0] = {values.data(), n, 0};
  }
  sie_status create(sie_error *err) {
    sie_weight_free(w);
    w = nullptr;
    return sie_weight_create(&device, &d, &w, err);
  }
};

template <class Change>
void refuses(const std::string &words, Change change, sie_status want = SIE_INVALID_ARGUMENT) {
  const auto m = std::make_unique<Made>();
  change(m.get());
  sie_error err = {};
  const sie_status status = m->create(&err);
  says("a weight", status, err, words.c_str(), want);
  CHECK(m->w == nullptr && m->device.memory_weights == 0, "a refused weight leaves a handle");
}
template <class Change, class Then>
void takes(Change change, Then then) {
  const auto m = std::make_unique<Made>();
  change(m.get());
  sie_error err = {};
  const sie_status status = m->create(&err);
  CHECK(status == SIE_OK, "a weight is refused: %s", err.message);
  if (status == SIE_OK) then(*m);
}
template <class Change>
void takes(Change change) {
  takes(change, [](const Made &) {});
}
// Whether the sizes are possible, though there is no form for them.
template <class Change>
void possible(Change change) {
  refuses(
      "no packed form of class", [change](Made *m) { m->ops.packed_bytes = no_form, change(m); },
      SIE_INTERNAL);
}

constexpr int64_t most_rows = 1 << 24, most_columns = 1 << 20;

}  // namespace

TEST(weight_descriptions_have_bounds) {
  for (uint32_t kind : {0u, 5u, UINT32_MAX})
    refuses("is none of sie_weight_kind", [kind](Made *m) { m->d.kind = kind; });
  for (int32_t parts : {INT32_MIN, -1, 0, 9})
    refuses(std::to_string(parts) + " weight parts", [parts](Made *m) { m->d.n_parts = parts; });
  takes([](Made *m) {
    m->d.n_parts = 8, m->d.n = 8;
    for (auto &part : m->d.parts) part = {m->values.data(), 1, 0};
  });
  for (int64_t n : {int64_t{-1}, int64_t{0}, most_rows + 1, 2 * most_rows})
    refuses("n is " + std::to_string(n) + "; 1 to 16777216",
            [n](Made *m) { m->d.n = m->d.parts[0].rows = n; });
  possible([](Made *m) { m->d.n = m->d.parts[0].rows = most_rows; });
  for (int64_t k : {int64_t{-1}, int64_t{0}, most_columns + 1})
    refuses("k is " + std::to_string(k) + "; 1 to 1048576", [k](Made *m) { m->d.k = k; });
  possible([](Made *m) { m->d.k = most_columns; });
  refuses("k is 2; 1 to 1 is", [](Made *m) { m->d.kind = SIE_WEIGHT_VECTOR, m->d.k = 2; });
  takes([](Made *m) { m->d.kind = SIE_WEIGHT_VECTOR, m->of(4, 1); });
  // Only matrices of class int8 have fewer columns.
  possible([](Made *m) { m->d.compute = SIE_COMPUTE_INT8, m->d.k = 65536; });
  possible([](Made *m) { m->d.k = 65537; });
  refuses(
      "k is 65537; class int8 sums at most 65536",
      [](Made *m) { m->d.compute = SIE_COMPUTE_INT8, m->d.k = 65537; }, SIE_UNSUPPORTED);
  takes([](Made *m) { m->of(1, 65537), m->d.kind = SIE_WEIGHT_TABLE, m->d.compute = SIE_COMPUTE_INT8; });
  refuses("part 0 has no data", [](Made *m) { m->d.parts[0].data = nullptr; });
  for (int64_t rows : {int64_t{-1}, int64_t{0}, most_rows + 1, 2 * most_rows})
    refuses("part 0 has " + std::to_string(rows) + " rows; 1 to 16777216",
            [rows](Made *m) { m->d.parts[0].rows = rows; });
  refuses("the parts have 3 rows; n is 4", [](Made *m) { m->d.parts[0].rows = 3; });
  refuses("the parts have 5 rows; n is 4", [](Made *m) { m->d.parts[0].rows = 5; });
  for (int64_t ld : {int64_t{0}, int64_t{8}}) takes([ld](Made *m) { m->d.parts[0].ld = ld; });
  for (int64_t ld : {int64_t{7}, int64_t{1}, int64_t{-1}, int64_t{-8}}) {
    refuses("part 0 has " + std::to_string(ld) + " elements between rows, fewer than its 8",
            [ld](Made *m) { m->d.parts[0].ld = ld; });
  }
  for (uint32_t placement = 0; placement <= SIE_PLACE_COPIED; placement++)
    takes([placement](Made *m) { m->d.placement = placement; });
  refuses("is none of sie_placement", [](Made *m) { m->d.placement = SIE_PLACE_COPIED + 1; });
  refuses("layout 2 is none", [](Made *m) { m->d.layout = 2; });
  // Gate and up are two parts of equal height.
  const struct {
    int32_t parts;
    int64_t rows[3];
    bool taken;
  } layouts[] = {
      {1, {4}, false}, {2, {2, 2}, true}, {2, {1, 3}, false}, {2, {3, 1}, false}, {3, {1, 1, 2}, false}};
  for (const auto &l : layouts) {
    auto change = [l](Made *m) {
      m->d.layout = SIE_LAYOUT_INTERLEAVE_GATE_UP;
      m->d.n_parts = l.parts;
      for (int i = 0; i < l.parts; i++) m->d.parts[i] = {m->values.data(), l.rows[i], 0};
    };
    if (l.taken) takes(change);
    if (!l.taken) refuses("interleaving needs two parts of equal height", change);
  }
}

// Types and classes: what a device has, of values on a CPU and of weights on a GPU.
TEST(weight_classes_are_the_devices) {
  for (uint32_t dtype : {SIE_F32, SIE_F16, SIE_BF16}) takes([dtype](Made *m) { m->d.dtype = dtype; });
  for (uint32_t dtype : {0u, static_cast<uint32_t>(SIE_I8), static_cast<uint32_t>(SIE_I32), 99u})
    refuses("not from dtype", [dtype](Made *m) { m->d.dtype = dtype; }, SIE_UNSUPPORTED);
  for (uint32_t dtype : {0u, static_cast<uint32_t>(SIE_I8), 99u})
    refuses(
        "not from dtype", [dtype](Made *m) { m->d.kind = SIE_WEIGHT_DATA, m->d.dtype = dtype; },
        SIE_UNSUPPORTED);
  takes([](Made *m) { m->d.kind = SIE_WEIGHT_DATA, m->d.dtype = SIE_I32; });
  for (uint32_t compute : {0u, 6u, UINT32_MAX})
    refuses("is none of sie_compute", [compute](Made *m) { m->d.compute = compute; });
  for (uint32_t kind : {SIE_WEIGHT_VECTOR, SIE_WEIGHT_DATA}) {
    takes([kind](Made *m) {
      m->of(4, 1);
      m->d.kind = kind, m->d.compute = 99;
    });
  }
  for (bool gpu : {false, true}) {
    for (uint32_t compute = SIE_COMPUTE_F32; compute <= SIE_COMPUTE_FP8; compute++) {
      for (uint32_t has = SIE_COMPUTE_F32; has <= SIE_COMPUTE_FP8; has++) {
        auto change = [=](Made *m) {
          m->device.kind = gpu ? SIE_DEVICE_CUDA : SIE_DEVICE_CPU;
          (gpu ? m->ops.compute_mask : m->device.compute_mask) = 1u << has;
          (gpu ? m->device.compute_mask : m->ops.compute_mask) = 0x3eu & ~(1u << has);
          m->d.compute = compute, m->d.kind = SIE_WEIGHT_TABLE;
        };
        if (compute == has) takes(change);
        if (compute != has) refuses("is not available on this device", change, SIE_UNSUPPORTED);
      }
    }
  }
}

// The largest numbers that a kept type holds, by kind and class, and the next ones.
TEST(weight_values_are_finite_as_they_are_kept) {
  const float bf16 = 3.3895314e38f, f16 = 65519.996f;
  const struct {
    uint32_t kind, compute;
    float most;
    const char *words;
  } cases[] = {{SIE_WEIGHT_LINEAR, SIE_COMPUTE_F32, FLT_MAX, "finite"},
               {SIE_WEIGHT_LINEAR, SIE_COMPUTE_BF16, bf16, "finite in bf16"},
               {SIE_WEIGHT_LINEAR, SIE_COMPUTE_INT8, bf16, "finite in bf16"},
               {SIE_WEIGHT_LINEAR, SIE_COMPUTE_F16, f16, "finite in f16"},
               {SIE_WEIGHT_TABLE, SIE_COMPUTE_F32, FLT_MAX, "finite"},
               {SIE_WEIGHT_TABLE, SIE_COMPUTE_BF16, bf16, "finite in bf16"},
               {SIE_WEIGHT_TABLE, SIE_COMPUTE_F16, f16, "finite in f16"},
               {SIE_WEIGHT_VECTOR, SIE_COMPUTE_BF16, FLT_MAX, "finite"},
               {SIE_WEIGHT_VECTOR, SIE_COMPUTE_F16, FLT_MAX, "finite"},
               {SIE_WEIGHT_DATA, SIE_COMPUTE_BF16, FLT_MAX, "finite"},
               {SIE_WEIGHT_DATA, SIE_COMPUTE_F16, FLT_MAX, "finite"}};
  for (const auto &c : cases) {
    for (int sign : {1, -1}) {
      auto with = [c, sign](float value) {
        return [=](Made *m) {
          m->of(5, c.kind == SIE_WEIGHT_VECTOR ? 1 : 8);
          m->d.kind = c.kind, m->d.compute = c.compute;
          m->values[static_cast<size_t>(3 * m->d.k)] = static_cast<float>(sign) * value;
        };
      };
      takes(with(c.most));
      const std::string words = std::string("row 3 holds a value that is not ") + c.words;
      for (float value : {nextafterf(c.most, INFINITY), INFINITY, NAN}) {
        const auto m = std::make_unique<Made>();
        with(value)(m.get());
        sie_error err = {};
        refused("a weight", m->create(&err), err, SIE_CORRUPT);
        CHECK(words == err.message, "\"%s\", \"%s\" expected", err.message, words.c_str());
      }
    }
  }
}

// A denormal becomes zero in the last row as in others, up to the end of a block's memory.
TEST(weight_denormals_are_counted_in_every_row) {
  for (size_t at : {size_t{0}, size_t{15}, size_t{48}, size_t{63}}) {
    takes(
        [at](Made *m) {
          m->of(4, 16);
          m->values[at] = 1e-39f;
        },
        [at](const Made &m) {
          CHECK(sie_weight_denormals(m.w) == 1 && static_cast<const float *>(m.w->packed.data)[at] == 0,
                "%lld denormals", static_cast<long long>(sie_weight_denormals(m.w)));
        });
  }
}

// Matrices are packed panel by panel: of at most 2 MiB of f32, in multiples of 64 rows where 64 fit.
TEST(weight_rows_are_packed_in_chunks) {
  const struct {
    int64_t n, k, rows;
  } cases[] = {{10, 8, 10},     {200, 2048, 200}, {257, 2048, 256},      {512, 2048, 256}, {900, 701, 704},
               {130, 8192, 64}, {128, 8128, 64},  {63, 8193, 63},        {65, 8193, 63},   {64, 8193, 63},
               {5, 1 << 18, 2}, {3, 1 << 19, 1},  {3, (1 << 19) + 1, 1}, {130, 4040, 128}, {140, 4096, 128}};
  for (const auto &c : cases) {
    packs.clear();
    takes([c](Made *m) { m->of(c.n, c.k); },
          [c](const Made &m) {
            CHECK(memcmp(m.w->packed.data, m.values.data(), m.values.size() * sizeof(float)) == 0,
                  "[%lld, %lld]: other values", static_cast<long long>(c.n), static_cast<long long>(c.k));
          });
    const int64_t chunks = (c.n + c.rows - 1) / c.rows;
    CHECK(static_cast<int64_t>(packs.size()) == chunks, "[%lld, %lld]: %zu chunks",
          static_cast<long long>(c.n), static_cast<long long>(c.k), packs.size());
    for (size_t i = 0; i < packs.size(); i++) {
      const int64_t first = static_cast<int64_t>(i) * c.rows, rows = std::min(c.rows, c.n - first);
      CHECK(packs[i].first == first && packs[i].rows == rows, "[%lld, %lld]: rows %lld to %lld",
            static_cast<long long>(c.n), static_cast<long long>(c.k), static_cast<long long>(packs[i].first),
            static_cast<long long>(packs[i].first + packs[i].rows));
    }
  }
  // What is wrong in a later chunk is found, and nothing is read behind it.
  packs.clear();
  refuses(
      "row 70 holds a value", [](Made *m) { m->of(130, 8192), m->values[70 * 8192 + 5] = NAN; }, SIE_CORRUPT);
  CHECK(packs.size() == 1, "%zu chunks", packs.size());
}

// Rows of tables begin on 64 bytes, and what is between them and behind the last is zero.
TEST(weight_tables_have_rows_of_64_bytes) {
  const struct {
    uint32_t kind, compute;
    int32_t dtype;
  } forms[] = {{SIE_WEIGHT_TABLE, SIE_COMPUTE_F32, SIE_F32},   {SIE_WEIGHT_TABLE, SIE_COMPUTE_BF16, SIE_BF16},
               {SIE_WEIGHT_TABLE, SIE_COMPUTE_INT8, SIE_BF16}, {SIE_WEIGHT_TABLE, SIE_COMPUTE_F16, SIE_F16},
               {SIE_WEIGHT_VECTOR, SIE_COMPUTE_BF16, SIE_F32}, {SIE_WEIGHT_VECTOR, SIE_COMPUTE_F16, SIE_F32}};
  for (const auto &f : forms) {
    const bool vector = f.kind == SIE_WEIGHT_VECTOR;
    const int64_t element = f.dtype == SIE_F32 ? 4 : 2, each = 64 / element;
    for (int64_t k : {int64_t{1}, each - 1, each, each + 1, 3 * each, int64_t{8192}}) {
      if (vector && k != 1) continue;
      const int64_t n = k == 8192 ? 130 : 5;  // in several chunks
      takes(
          [=](Made *m) {
            m->of(n, k);
            m->d.kind = f.kind, m->d.compute = f.compute;
          },
          [=](const Made &m) {
            const int64_t ld = vector ? 1 : (k + each - 1) / each * each;
            CHECK(m.w->table.ld == ld && m.w->table.dtype == f.dtype && m.w->table.p == m.w->data.p,
                  "%lld columns are %lld apart, of type %d", static_cast<long long>(k),
                  static_cast<long long>(m.w->table.ld), m.w->table.dtype);
            const int64_t all = static_cast<int64_t>(m.w->data.bytes) / element;
            CHECK(all * element >= n * ld * element + 64, "%lld elements", static_cast<long long>(all));
            for (int64_t i = 0; i < n * ld + each; i++) {
              const int64_t row = i / ld, column = i % ld;
              const float want =
                  row < n && column < k ? m.values[static_cast<size_t>(row * k + column)] : 0.0f;
              const uint16_t half =
                  f.dtype == SIE_F32 ? uint16_t{0} : static_cast<const uint16_t *>(m.w->table.p)[i];
              const float got = f.dtype == SIE_F32    ? static_cast<const float *>(m.w->table.p)[i]
                                : f.dtype == SIE_BF16 ? sie_f32_from_bf16(half)
                                                      : sie_f32_from_f16(half);
              if (got != want) {
                CHECK(false, "[%lld, %lld] of class %u: element %lld is %g", static_cast<long long>(n),
                      static_cast<long long>(k), f.compute, static_cast<long long>(i),
                      static_cast<double>(got));
                break;
              }
            }
          });
    }
  }
}

// The room that is asked for, as a message names it where there is none.
TEST(weight_room_is_what_is_needed) {
  const struct {
    uint32_t kind, compute, dtype;
    int64_t n, k, bytes;
  } cases[] = {{SIE_WEIGHT_LINEAR, SIE_COMPUTE_F32, SIE_F32, 4, 8, 1000},
               {SIE_WEIGHT_TABLE, SIE_COMPUTE_F32, SIE_F32, 5, 17, 5 * 32 * 4 + 64},
               {SIE_WEIGHT_TABLE, SIE_COMPUTE_BF16, SIE_F32, 5, 17, 5 * 32 * 2 + 64},
               {SIE_WEIGHT_TABLE, SIE_COMPUTE_F16, SIE_F32, 5, 33, 5 * 64 * 2 + 64},
               {SIE_WEIGHT_VECTOR, SIE_COMPUTE_BF16, SIE_F32, 7, 1, 7 * 4 + 64},
               {SIE_WEIGHT_DATA, 0, SIE_F32, 5, 7, 5 * 7 * 4 + 64},
               {SIE_WEIGHT_DATA, 0, SIE_BF16, 5, 7, 5 * 7 * 2 + 64},
               {SIE_WEIGHT_DATA, 0, SIE_I32, 5, 7, 5 * 7 * 4 + 64}};
  packed_bytes = 1000;
  for (const auto &c : cases) {
    const auto m = std::make_unique<Made>();
    m->of(c.n, c.k);
    m->d.kind = c.kind, m->d.compute = c.compute, m->d.dtype = c.dtype;
    sie_error err = {};
    wrapped::calls_left.store(1);  // the weight itself
    const sie_status status = m->create(&err);
    wrapped::calls_left.store(-1);
    const std::string words = "no memory for a weight of " + std::to_string(c.bytes) + " bytes";
    says("a weight", status, err, words.c_str(), SIE_OUT_OF_MEMORY);
    if (c.kind == SIE_WEIGHT_LINEAR) continue;
    CHECK(m->create(&err) == SIE_OK, "%s", err.message);
    CHECK(sie_weight_bytes(m->w) == static_cast<int64_t>(m->w->data.bytes) &&
              sie_weight_bytes(m->w) >= c.bytes && m->device.memory_weights == sie_weight_bytes(m->w),
          "%lld bytes", static_cast<long long>(sie_weight_bytes(m->w)));
  }
  packed_bytes = -1;
  sie_weight_desc d = sized<sie_weight_desc>();
  Made m;
  wrapped::calls_left.store(2);  // the weight and its rows
  SAYS("no memory to convert a weight", m.create(&err), SIE_OUT_OF_MEMORY);
  wrapped::calls_left.store(-1);
  sie_weight *w = nullptr;
  SAYS("device is NULL", sie_weight_create(nullptr, &d, &w, &err));
  SAYS("weight is NULL", sie_weight_create(&m.device, &d, nullptr, &err));
}

TEST(weight_indices_have_bounds) {
  const struct {
    std::vector<int32_t> values;
    int64_t least, end, at;
    int32_t from, to;
  } cases[] = {{{0}, 0, 1, 0, 0, 0},
               {{-5}, -5, 5, 0, 0, 0},
               {{INT32_MIN, INT32_MAX}, INT32_MIN, int64_t{1} << 31, 0, 0, 0},
               {{0, 0, 0}, 0, 1, 0, 0, 0},
               {{3, 3, 4}, 3, 5, 0, 0, 0},
               {{3, 2, 1}, 1, 4, 1, 3, 2},
               {{1, 2, 5, 4, 0}, 0, 6, 3, 5, 4},
               {{-1, -2}, -2, 2, 1, -1, -2},
               {{0, -7, 3}, -7, 7, 1, 0, -7},
               {{2, 0}, 0, 3, 1, 2, 0}};
  for (const auto &c : cases) {
    const auto m = std::make_unique<Made>();
    m->d.kind = SIE_WEIGHT_DATA, m->d.dtype = SIE_I32;
    m->d.n = static_cast<int64_t>(c.values.size()), m->d.k = 1;
    m->d.parts[0] = {c.values.data(), m->d.n, 0};
    PASSES(m->create(&err));
    CHECK(m->w->index_least == c.least && m->w->index_end == c.end, "indices from %lld to below %lld",
          static_cast<long long>(m->w->index_least), static_cast<long long>(m->w->index_end));
    CHECK(m->w->index_fall.at == c.at && m->w->index_fall.from == c.from && m->w->index_fall.to == c.to,
          "falls at %lld from %d to %d", static_cast<long long>(m->w->index_fall.at), m->w->index_fall.from,
          m->w->index_fall.to);
  }
}

// On nodes: which blocks are placed, and which matrices are copied.
TEST(weight_blocks_are_placed_by_size) {
  MadeUpMachine machine(2, 4);
  auto &calls = MadeUpMachine::calls();
  const int64_t from = 65536;
  for (int nodes : {0, 1, 2}) {
    for (uint32_t placement : {SIE_PLACE_INTERLEAVED, SIE_PLACE_COPIED}) {
      for (uint32_t kind : {SIE_WEIGHT_LINEAR, SIE_WEIGHT_TABLE}) {
        for (int64_t bytes : {from - 4, from, 2 * from}) {
          if (kind == SIE_WEIGHT_TABLE && bytes != 2 * from) continue;
          for (bool gpu : {false, true}) {
            const auto m = std::make_unique<Made>();
            sie::Seats &seats = m->device.seats;
            seats.nodes = std::max(nodes, 1);
            seats.numbers[0] = nodes == 0 ? -1 : 0, seats.numbers[1] = 1;
            m->device.kind = gpu ? SIE_DEVICE_CUDA : SIE_DEVICE_CPU;
            m->ops.compute_mask = 0x3e;
            m->of(bytes / 64, 16);
            m->d.kind = kind, m->d.placement = placement;
            packed_bytes = bytes;
            calls.clear();
            if (kind == SIE_WEIGHT_LINEAR) m->of(4, 16);
            if (kind == SIE_WEIGHT_TABLE) m->of(bytes / 64, 16);
            PASSES(m->create(&err));
            packed_bytes = -1;
            const bool placed = nodes > 0 && !gpu && bytes >= from;
            const bool copied = placed && placement == SIE_PLACE_COPIED && kind == SIE_WEIGHT_LINEAR;
            const size_t want = !placed ? 0 : copied ? static_cast<size_t>(nodes) : 1;
            CHECK(calls.size() == want, "%zu blocks of %lld bytes are placed on %d nodes, %zu expected",
                  calls.size(), static_cast<long long>(bytes), nodes, want);
            for (size_t i = 0; i < calls.size() && i < want; i++) {
              const std::vector<int32_t> on = copied       ? std::vector<int32_t>{static_cast<int32_t>(i)}
                                              : nodes == 2 ? std::vector<int32_t>{0, 1}
                                                           : std::vector<int32_t>{0};
              CHECK(calls[i].nodes == on, "block %zu is on %zu nodes", i, calls[i].nodes.size());
            }
            const int32_t copies = copied ? nodes - 1 : 0;
            CHECK(m->w->n_copies == copies, "%d copies", m->w->n_copies);
            int64_t all = static_cast<int64_t>(m->w->data.bytes);
            for (int32_t i = 0; i < copies; i++) {
              const sie::WeightCopy &copy = static_cast<const sie::WeightCopy *>(m->w->copies.p)[i];
              all += static_cast<int64_t>(copy.data.bytes);
              CHECK(memcmp(copy.data.p, m->w->data.p, m->w->data.bytes) == 0, "copy %d differs", i);
            }
            CHECK(sie_weight_bytes(m->w) == all, "%lld bytes of %lld",
                  static_cast<long long>(sie_weight_bytes(m->w)), static_cast<long long>(all));
            // On a GPU nothing is where kernels read, until it is placed.
            CHECK((m->w->table.p == nullptr) == gpu && (m->w->packed.data == nullptr) == gpu, "pointers");
            CHECK(sie_weight_staged(m->w) == (gpu ? m->w->data.p : nullptr), "staged elsewhere");
          }
        }
      }
    }
  }
  // A matrix that is refused has no copies; where there is no memory for one, none is left.
  int without_a_copy = 0;
  for (int n = 0; n < 8; n++) {
    const auto m = std::make_unique<Made>();
    m->device.seats.nodes = 2;
    m->device.seats.numbers[0] = 0, m->device.seats.numbers[1] = 1;
    m->of(256, 64);
    m->d.placement = SIE_PLACE_COPIED;
    if (n == 0) m->values[99] = NAN;
    sie_error err = {};
    if (n > 0) wrapped::calls_left.store(n - 1);
    const sie_status status = m->create(&err);
    wrapped::calls_left.store(-1);
    CHECK(n == 0 ? status == SIE_CORRUPT : status == SIE_OUT_OF_MEMORY || (n > 4 && status == SIE_OK),
          "call %d: status %d: %s", n - 1, status, err.message);
    CHECK(m->device.memory_weights == (status == SIE_OK ? m->w->bytes : 0), "bytes are held");
    without_a_copy += strstr(err.message, "no memory for copy 1 of a weight of 65536 bytes") != nullptr;
  }
  CHECK(without_a_copy > 0, "no copy is refused");
}

// A matrix is packed on the first node, and copied on the others.
TEST(weight_copies_are_made_on_their_node) {
  MadeUpMachine machine(2, 4);
  for (uint32_t placement : {SIE_PLACE_INTERLEAVED, SIE_PLACE_COPIED}) {
    const auto m = std::make_unique<Made>();
    sie::Seats &seats = m->device.seats;
    seats.nodes = 2;
    seats.numbers[0] = 0, seats.numbers[1] = 1;
    seats.on.n = 2, seats.on.nodes = 2;
    seats.on.cpus[0] = 3, seats.on.cpus[1] = 5;
    seats.on.places[1] = 1, seats.on.numbers[1] = 1;
    m->of(256, 64);
    m->d.placement = placement;
    affinity::Made made({0, 1, 2, 3, 4, 5});
    // Who enters a node leaves it again: within it, the thread was kept somewhere an odd number of times.
    static affinity::Made *now = nullptr;
    static size_t kept = 0;
    now = &made;
    m->ops.pack = [](uint32_t, int64_t, int64_t, int64_t, int64_t, const float *, int64_t, void *) {
      kept = now->kept().size();
    };
    PASSES(m->create(&err));
    CHECK(kept % 2 == (placement == SIE_PLACE_COPIED ? 1 : 0), "the thread was kept somewhere %zu times",
          kept);
  }
}

// On a GPU small matrices of a group do not share pages, which are freed once the weight is placed.
TEST(weight_memory_of_a_gpu_is_the_callers) {
  sie::WeightPages probe;  // sanitizers share no pages
  const sie::Seats seats = {};
  sie::Block block;
  CHECK(probe.allocate(seats, 7, sie::WeightPages::anywhere, 64, &block), "no memory");
  const int64_t shared = probe.regions();
  probe.release(&block);
  for (bool gpu : {false, true}) {
    const auto m = std::make_unique<Made>();
    m->device.kind = gpu ? SIE_DEVICE_CUDA : SIE_DEVICE_CPU;
    m->ops.compute_mask = 0x3e;
    m->d.group = 7;
    PASSES(m->create(&err));
    CHECK(m->device.weight_pages.regions() == (gpu ? 0 : shared), "%lld regions",
          static_cast<long long>(m->device.weight_pages.regions()));
    alignas(256) char memory[512];
    if (!gpu) {
      SAYS("only weights of a GPU are placed", sie_weight_place(m->w, memory, &err));
      continue;
    }
    SAYS("weight or memory is NULL", sie_weight_place(nullptr, memory, &err));
    SAYS("weight or memory is NULL", sie_weight_place(m->w, nullptr, &err));
    for (int offset : {1, 128, 255, 257})
      SAYS("is not aligned to 256 bytes", sie_weight_place(m->w, memory + offset, &err));
    CHECK(sie_weight_staged(m->w) != nullptr, "a refused place frees the weight");
    PASSES(sie_weight_place(m->w, memory, &err));
    CHECK(m->w->table.p == memory && m->w->packed.data == memory && sie_weight_staged(m->w) == nullptr,
          "placed elsewhere");
    SAYS("is placed already", sie_weight_place(m->w, memory, &err));
  }
  CHECK(sie_weight_staged(nullptr) == nullptr && sie_weight_bytes(nullptr) == 0, "no weight is staged");
}
