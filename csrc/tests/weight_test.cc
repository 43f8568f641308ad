// weight_test.cc — packed weights hold the checkpoint's values: types, parts, strides, layouts, and
// refusals.
#include "weight.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include <vector>

#include "common/dtype.h"
#include "device.h"
#include "model.h"
#include "tests/check.h"

namespace {

class Reference {
 public:
  Reference() {
    sie_device_options options = {};
    options.struct_size = sizeof options;
    options.kind = SIE_DEVICE_REF;
    CHECK(sie_device_open(&options, &device, &err) == SIE_OK, "%s", err.message);
  }
  ~Reference() {
    CHECK(device->memory_weights == 0, "%lld bytes of weights left",
          static_cast<long long>(device->memory_weights));
    sie_device_close(device);
  }
  Reference(const Reference &) = delete;
  Reference &operator=(const Reference &) = delete;
  sie_device *device = nullptr;
  sie_error err = {};
};

sie_weight_desc linear_desc(int64_t n, int64_t k, const void *data, uint32_t dtype) {
  sie_weight_desc d = {};
  d.struct_size = sizeof d;
  d.kind = SIE_WEIGHT_LINEAR;
  d.compute = SIE_COMPUTE_F32;
  d.dtype = dtype;
  d.n_parts = 1;
  d.n = n;
  d.k = k;
  d.parts[0] = {data, n, 0};
  return d;
}

const float *packed(const sie_weight *w) { return static_cast<const float *>(w->packed.data); }

}  // namespace

TEST(weight_sources_of_every_type) {
  Reference ref;
  const int64_t n = 130, k = 9;
  std::vector<float> values(static_cast<size_t>(n * k));
  model::Random random(1);
  for (float &x : values) x = static_cast<float>(random.below(512) - 256) / 64;  // exact in all
  for (uint32_t dtype : {SIE_F32, SIE_F16, SIE_BF16}) {
    size_t element = dtype == SIE_F32 ? 4 : 2;
    std::vector<char> source(values.size() * element + 1);
    for (size_t i = 0; i < values.size(); i++) {
      // One byte off: a checkpoint's tensors may have any alignment.
      uint16_t half = dtype == SIE_F16 ? sie_f16_from_f32(values[i]) : sie_bf16_from_f32(values[i]);
      if (dtype == SIE_F32) memcpy(&source[1 + 4 * i], &values[i], 4);
      if (dtype != SIE_F32) memcpy(&source[1 + 2 * i], &half, 2);
    }
    sie_weight_desc d = linear_desc(n, k, source.data() + 1, dtype);
    sie_weight *w;
    CHECK(sie_weight_create(ref.device, &d, &w, &ref.err) == SIE_OK, "%s", ref.err.message);
    CHECK(memcmp(packed(w), values.data(), values.size() * 4) == 0, "dtype %u: other values", dtype);
    CHECK(sie_weight_bytes(w) >= n * k * 4, "%lld bytes", static_cast<long long>(sie_weight_bytes(w)));
    sie_weight_free(w);
  }
}

TEST(weight_parts_and_layouts) {
  Reference ref;
  const int64_t k = 3;
  std::vector<float> a = {1, 2, 3, -1, 4, 5, 6, -1}, b = {7, 8, 9, 10, 11, 12};  // a: 4 apart
  sie_weight_desc d = linear_desc(4, k, nullptr, SIE_F32);
  d.n_parts = 2;
  d.parts[0] = {a.data(), 2, 4};
  d.parts[1] = {b.data(), 2, 0};
  const float concat[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
              gate_up[] = {1, 2, 3, 7, 8, 9, 4, 5, 6, 10, 11, 12};
  for (uint32_t layout : {SIE_LAYOUT_CONCAT, SIE_LAYOUT_INTERLEAVE_GATE_UP}) {
    d.layout = layout;
    sie_weight *w;
    CHECK(sie_weight_create(ref.device, &d, &w, &ref.err) == SIE_OK, "%s", ref.err.message);
    const float *want = layout == SIE_LAYOUT_CONCAT ? concat : gate_up;
    CHECK(memcmp(packed(w), want, sizeof concat) == 0, "layout %u: other rows", layout);
    sie_weight_free(w);
  }
}

TEST(weight_of_many_chunks) {
  // More than one conversion chunk (2 MiB of f32), and the last one ragged.
  Reference ref;
  const int64_t n = 1500, k = 701;
  std::vector<float> values(static_cast<size_t>(n * k));
  for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i % 10007);
  sie_weight_desc d = linear_desc(n, k, values.data(), SIE_F32);
  sie_weight *w;
  CHECK(sie_weight_create(ref.device, &d, &w, &ref.err) == SIE_OK, "%s", ref.err.message);
  CHECK(memcmp(packed(w), values.data(), values.size() * 4) == 0, "other values");
  sie_weight_free(w);
}

TEST(weight_refuses_what_is_not_finite) {
  Reference ref;
  std::vector<float> values(64, 1.0f);
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    values[37] = bad;
    sie_weight_desc d = linear_desc(8, 8, values.data(), SIE_F32);
    sie_weight *w;
    CHECK(sie_weight_create(ref.device, &d, &w, &ref.err) == SIE_CORRUPT && w == nullptr, "%g passed",
          static_cast<double>(bad));
    CHECK(strstr(ref.err.message, "row 4") != nullptr, "message: %s", ref.err.message);
  }
  values[37] = 3.395e38f;  // rounds to infinity in bf16
  sie_weight_desc d = linear_desc(8, 8, values.data(), SIE_F32);
  sie_weight *w;
  CHECK(sie_weight_create(ref.device, &d, &w, &ref.err) == SIE_OK, "f32 keeps it: %s", ref.err.message);
  sie_weight_free(w);
  d.compute = SIE_COMPUTE_BF16;
  CHECK(sie_weight_create(ref.device, &d, &w, &ref.err) == SIE_CORRUPT, "bf16 cannot hold it");
}

TEST(weight_data_is_kept_as_it_is) {
  Reference ref;
  // Parts with different strides become dense in the weight.
  const uint16_t halves[] = {1, 2, 99, 3, 4, 99};
  const int32_t numbers[] = {5, -8, 7, 0, 2, -3}, rising[] = {1, 2};
  struct {
    uint32_t dtype;
    sie_weight_part parts[2];
    int64_t n, k;
    std::vector<uint8_t> expected;
    int64_t least, end, fall;
  } cases[] = {
      {SIE_BF16, {{halves, 2, 3}, {}}, 2, 2, {1, 0, 2, 0, 3, 0, 4, 0}, 0, 0, 0},
      {SIE_I32,
       {{numbers, 1, 2}, {numbers + 4, 1, 2}},
       2,
       2,
       {5, 0, 0, 0, 0xf8, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0xfd, 0xff, 0xff, 0xff},
       -8,
       8,
       1},
      {SIE_I32, {{numbers + 2, 2, 1}, {}}, 2, 1, {7, 0, 0, 0, 0, 0, 0, 0}, 0, 8, 1},
      {SIE_I32, {{rising, 2, 1}, {}}, 2, 1, {1, 0, 0, 0, 2, 0, 0, 0}, 1, 3, 0},
  };
  for (const auto &c : cases) {
    sie_weight_desc d = linear_desc(c.n, c.k, nullptr, c.dtype);
    d.kind = SIE_WEIGHT_DATA;
    d.compute = 77;  // ignored
    d.n_parts = c.parts[1].data != nullptr ? 2 : 1;
    d.parts[0] = c.parts[0];
    d.parts[1] = c.parts[1];
    sie_weight *w = nullptr;
    CHECK(sie_weight_create(ref.device, &d, &w, &ref.err) == SIE_OK, "%s", ref.err.message);
    if (w == nullptr) continue;
    CHECK(memcmp(w->table.p, c.expected.data(), c.expected.size()) == 0 && w->table.ld == c.k, "other bytes");
    CHECK(
        w->table.dtype == static_cast<int32_t>(c.dtype) && w->index_least == c.least && w->index_end == c.end,
        "indices from %lld to below %lld", static_cast<long long>(w->index_least),
        static_cast<long long>(w->index_end));
    const int32_t *values = static_cast<const int32_t *>(w->table.p);
    CHECK(w->index_fall.at == c.fall && (c.fall == 0 || (w->index_fall.from == values[c.fall - 1] &&
                                                         w->index_fall.to == values[c.fall])),
          "falls at %lld", static_cast<long long>(w->index_fall.at));
    sie_weight_free(w);
  }
}

TEST(weight_int8_columns_are_bounded) {
  sie_device_options options = {};
  options.struct_size = sizeof options;
  options.kind = SIE_DEVICE_CPU;
  options.threads = 1;
  sie_device *device;
  sie_error err = {};
  CHECK(sie_device_open(&options, &device, &err) == SIE_OK, "%s", err.message);
  const int64_t most = 65536;
  std::vector<float> ones(static_cast<size_t>(most + 1), 1.0f);
  sie_weight_desc d = linear_desc(1, most + 1, ones.data(), SIE_F32);
  sie_weight *w;
  CHECK(sie_weight_create(device, &d, &w, &err) == SIE_OK, "f32 has no such bound: %s", err.message);
  sie_weight_free(w);
  d.compute = SIE_COMPUTE_INT8;
  CHECK(sie_weight_create(device, &d, &w, &err) == SIE_UNSUPPORTED, "status of one column too many");
  CHECK(strstr(err.message, "65537") != nullptr && strstr(err.message, "65536") != nullptr, "%s",
        err.message);
  d.k = most;
  CHECK(sie_weight_create(device, &d, &w, &err) == SIE_OK, "%s", err.message);
  if (w != nullptr) {
    // The largest possible sum: 65,536 products of 255 and 127.
    std::vector<uint8_t> x(static_cast<size_t>(most), 255);
    float scale = 1.0f / 255, y = 0;
    int32_t zero = 0, rows = 1;
    sie_linear_args a = {};
    a.rows = {1, &rows};
    a.n = 1;
    a.k = most;
    a.x = {x.data(), most, SIE_U8, -1, &scale, &zero, nullptr};
    a.w = &w->packed;
    a.y = {&y, 1, SIE_F32, 0, nullptr, nullptr, nullptr};
    std::vector<char> scratch(1 << 20);
    sie_share share = {0, 1, scratch.data(), static_cast<int64_t>(scratch.size()), nullptr};
    CHECK(device->ops->linear(&a, &share) == SIE_OK, "the product is refused");
    CHECK(fabsf(y - 65536.0f) < 1.0f, "%g instead of 65536", static_cast<double>(y));
  }
  sie_weight_free(w);
  sie_device_close(device);
}

TEST(weight_denormals_become_zero) {
  Reference ref;
  const float least = FLT_MIN, tiny = 1e-39f;
  std::vector<float> values = {least, tiny, -tiny, 0.0f, -0.0f, 1.0f, nextafterf(least, 0.0f), -least};
  const std::vector<float> expected = {least, 0.0f, -0.0f, 0.0f, -0.0f, 1.0f, 0.0f, -least};
  for (uint32_t kind : {SIE_WEIGHT_LINEAR, SIE_WEIGHT_TABLE, SIE_WEIGHT_DATA}) {
    sie_weight_desc d = linear_desc(1, 8, values.data(), SIE_F32);
    d.kind = kind;
    sie_weight *w;
    CHECK(sie_weight_create(ref.device, &d, &w, &ref.err) == SIE_OK, "%s", ref.err.message);
    bool kept = kind == SIE_WEIGHT_DATA;
    const std::vector<float> &want = kept ? values : expected;
    CHECK(memcmp(w->data.p, want.data(), want.size() * sizeof(float)) == 0, "kind %u holds other values",
          kind);
    CHECK(sie_weight_denormals(w) == (kept ? 0 : 3), "kind %u: %lld denormals", kind,
          static_cast<long long>(sie_weight_denormals(w)));
    sie_weight_free(w);
  }
  CHECK(sie_weight_denormals(nullptr) == 0, "no weight has none");
}
