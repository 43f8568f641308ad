// weight.cc — reads a checkpoint's rows in bounded chunks, widens them to f32, checks and packs
// them.
#include "weight.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include <optional>

#include "common/dtype.h"
#include "device.h"
#include "float_state.h"
#include "grow.h"
#include "node_memory.h"
#include "program.h"
#include "status.h"

namespace sie {

namespace {

constexpr int64_t max_rows = int64_t{1} << 24;
constexpr int64_t chunk_bytes = int64_t{2} << 20;  // of f32 rows converted at a time
// Columns of an int8 matrix: 65,536 products of a u8 and an s8 are below 2³¹ in any order.
constexpr int64_t max_int8_columns = 65536;
static_assert(max_int8_columns * 255 * 127 <= INT32_MAX, "a row's s32 sum cannot overflow");

sie_status check_desc(const sie_device *device, const sie_weight_desc *d, sie_error *err) {
  SIE_FAIL_IF(d->kind < SIE_WEIGHT_LINEAR || d->kind > SIE_WEIGHT_DATA, SIE_INVALID_ARGUMENT, err,
              "weight kind %u is none of sie_weight_kind", d->kind);
  bool integers = d->kind == SIE_WEIGHT_DATA && d->dtype == SIE_I32;
  SIE_FAIL_IF(d->dtype != SIE_F32 && d->dtype != SIE_F16 && d->dtype != SIE_BF16 && !integers,
              SIE_UNSUPPORTED, err,
              "weights are read from f32, f16 or bf16, data from i32 too, not from dtype %u", d->dtype);
  SIE_FAIL_IF(d->n_parts < 1 || d->n_parts > 8, SIE_INVALID_ARGUMENT, err,
              "%d weight parts; 1 to 8 are possible", d->n_parts);
  SIE_FAIL_IF(d->n < 1 || d->n > max_rows, SIE_INVALID_ARGUMENT, err, "n is %lld; 1 to %lld is possible",
              static_cast<long long>(d->n), static_cast<long long>(max_rows));
  int64_t k_max = d->kind == SIE_WEIGHT_VECTOR ? 1 : max_columns;
  SIE_FAIL_IF(d->k < 1 || d->k > k_max, SIE_INVALID_ARGUMENT, err, "k is %lld; 1 to %lld is possible",
              static_cast<long long>(d->k), static_cast<long long>(k_max));
  bool bytes = d->kind == SIE_WEIGHT_LINEAR && d->compute == SIE_COMPUTE_INT8;
  SIE_FAIL_IF(bytes && d->k > max_int8_columns, SIE_UNSUPPORTED, err,
              "k is %lld; class int8 sums at most %lld products in 32 bits: use another precision",
              static_cast<long long>(d->k), static_cast<long long>(max_int8_columns));
  int64_t rows = 0;
  for (int32_t i = 0; i < d->n_parts; i++) {
    const sie_weight_part &part = d->parts[i];
    SIE_FAIL_IF(part.data == nullptr, SIE_INVALID_ARGUMENT, err, "part %d has no data", i);
    SIE_FAIL_IF(part.rows < 1 || part.rows > max_rows, SIE_INVALID_ARGUMENT, err,
                "part %d has %lld rows; 1 to %lld are possible", i, static_cast<long long>(part.rows),
                static_cast<long long>(max_rows));
    SIE_FAIL_IF(part.ld != 0 && part.ld < d->k, SIE_INVALID_ARGUMENT, err,
                "part %d has %lld elements between rows, fewer than its %lld columns", i,
                static_cast<long long>(part.ld), static_cast<long long>(d->k));
    rows += part.rows;
  }
  SIE_FAIL_IF(rows != d->n, SIE_INVALID_ARGUMENT, err, "the parts have %lld rows; n is %lld",
              static_cast<long long>(rows), static_cast<long long>(d->n));
  SIE_FAIL_IF(d->placement > SIE_PLACE_COPIED, SIE_INVALID_ARGUMENT, err,
              "placement %u is none of sie_placement", d->placement);
  bool gate_up = d->layout == SIE_LAYOUT_INTERLEAVE_GATE_UP;
  SIE_FAIL_IF(d->layout != SIE_LAYOUT_CONCAT && !gate_up, SIE_INVALID_ARGUMENT, err,
              "layout %u is none of sie_weight_layout", d->layout);
  SIE_FAIL_IF(gate_up && (d->n_parts != 2 || d->parts[0].rows != d->parts[1].rows), SIE_INVALID_ARGUMENT, err,
              "interleaving needs two parts of equal height: gate and up");
  if (d->kind == SIE_WEIGHT_VECTOR || d->kind == SIE_WEIGHT_DATA) return SIE_OK;
  SIE_FAIL_IF(d->compute < SIE_COMPUTE_F32 || d->compute > SIE_COMPUTE_FP8, SIE_INVALID_ARGUMENT, err,
              "compute class %u is none of sie_compute", d->compute);
  // On a GPU, weights may be of the class F32, though values may not (gpu.cc).
  uint32_t classes = device->is_gpu() ? device->ops->compute_mask : device->compute_mask;
  SIE_FAIL_IF((classes >> d->compute & 1) == 0, SIE_UNSUPPORTED, err,
              "compute class %s is not available on this device (%s)", compute_name(d->compute), device->why);
  return SIE_OK;
}

void widen(const void *source, uint32_t dtype, int64_t count, float *out) {
  // Copied by bytes: a checkpoint's tensors may have any alignment.
  if (dtype == SIE_F32) {
    memcpy(out, source, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const char *bytes = static_cast<const char *>(source);
  for (int64_t i = 0; i < count; i++) {
    uint16_t half;
    memcpy(&half, bytes + 2 * i, sizeof half);
    out[i] = dtype == SIE_BF16 ? sie_f32_from_bf16(half) : sie_f32_from_f16(half);
  }
}

// The address in the source of row `row` of the packed order.
const void *source_row(const sie_weight_desc *d, int64_t row) {
  int64_t element = dtype_bytes(static_cast<int32_t>(d->dtype));
  int32_t part = 0;
  if (d->layout == SIE_LAYOUT_INTERLEAVE_GATE_UP) {
    part = static_cast<int32_t>(row % 2);
    row /= 2;
  } else {
    while (row >= d->parts[part].rows) row -= d->parts[part++].rows;
  }
  int64_t ld = d->parts[part].ld != 0 ? d->parts[part].ld : d->k;
  return static_cast<const char *>(d->parts[part].data) + row * ld * element;
}

constexpr uint32_t f32_magnitude = 0x7fffffffu, f32_fraction = 0x007fffffu;

// Replaces every denormal of row[count] by a zero of its sign.
void flush_denormals(float *row, int64_t count) {
  for (int64_t j = 0; j < count; j++) {
    if ((sie_f32_bits(row[j]) & f32_magnitude) <= f32_fraction) row[j] = copysignf(0.0f, row[j]);
  }
}

// Widens rows [first, first + count) into chunk, flushes their denormals and adds how many there
// were to *denormals. Refuses values that are not finite in the class in which they are kept.
sie_status read_rows(const sie_weight_desc *d, int64_t first, int64_t count, float *chunk, int64_t *denormals,
                     sie_error *err) {
  bool narrow =
      (d->kind == SIE_WEIGHT_LINEAR || d->kind == SIE_WEIGHT_TABLE) && d->compute != SIE_COMPUTE_F32;
  bool half = narrow && d->compute == SIE_COMPUTE_F16;
  // A value above these would round to infinity in f16 or bf16.
  uint32_t limit = sie_f32_bits(half ? 65519.996f : (narrow ? 3.3895314e38f : FLT_MAX));
  for (int64_t i = 0; i < count; i++) {
    float *row = chunk + i * d->k;
    widen(source_row(d, first + i), d->dtype, d->k, row);
    uint32_t largest = 0, tiny = 0;
    for (int64_t j = 0; j < d->k; j++) {
      uint32_t magnitude = sie_f32_bits(row[j]) & f32_magnitude;
      largest = magnitude > largest ? magnitude : largest;
      tiny += magnitude - 1 < f32_fraction ? 1 : 0;  // 0 is not a denormal: 0 - 1 wraps
    }
    if (tiny > 0) flush_denormals(row, d->k);
    *denormals += tiny;
    SIE_FAIL_IF(largest > limit, SIE_CORRUPT, err, "row %lld holds a value that is not finite%s",
                static_cast<long long>(first + i), half ? " in f16" : (narrow ? " in bf16" : ""));
  }
  return SIE_OK;
}

void pack_rows(sie_weight *w, const sie_ops *ops, int64_t first, int64_t count, const float *chunk) {
  if (w->kind == SIE_WEIGHT_LINEAR) {
    ops->pack(w->packed.compute, w->n, w->k, first, count, chunk, w->k, w->data.p);
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    const float *row = chunk + i * w->k;
    int64_t at = (first + i) * w->table.ld;
    uint16_t *halves = static_cast<uint16_t *>(w->data.p) + at;
    if (w->table.dtype == SIE_F32) {
      memcpy(static_cast<float *>(w->data.p) + at, row, static_cast<size_t>(w->k) * sizeof(float));
    } else if (w->table.dtype == SIE_F16) {
      for (int64_t j = 0; j < w->k; j++) halves[j] = sie_f16_from_f32(row[j]);
    } else {
      for (int64_t j = 0; j < w->k; j++) halves[j] = sie_bf16_from_f32(row[j]);
    }
  }
}

// Copies rows of DATA unchanged.
void copy_data(sie_weight *w, const sie_weight_desc *d, int64_t first, int64_t count) {
  int64_t bytes = d->k * dtype_bytes(w->table.dtype);
  for (int64_t i = first; i < first + count; i++) {
    memcpy(w->data.at(i * bytes), source_row(d, i), static_cast<size_t>(bytes));
  }
}

// Notes the bounds of a table of indices, and where it falls. On a GPU the host keeps nothing else.
void note_indices(sie_weight *w) {
  const int32_t *values = static_cast<const int32_t *>(w->data.p);
  for (int64_t i = 0; i < w->n * w->k; i++) {
    int64_t v = values[i], index = v < 0 ? -1 - v : v;
    w->index_least = i == 0 || v < w->index_least ? v : w->index_least;
    w->index_end = index >= w->index_end ? index + 1 : w->index_end;
    if (i > 0 && v < values[i - 1] && w->index_fall.at == 0) w->index_fall = {i, values[i - 1], values[i]};
  }
}

// Sets the weight's form and returns the bytes that it takes. A row of zeros behind tables and
// vectors lets kernels read whole vectors at the end.
int64_t choose_form(sie_weight *w, const sie_device *device, uint32_t dtype) {
  uint32_t compute = storage_class(device, w->compute);
  if (w->kind == SIE_WEIGHT_LINEAR) {
    w->packed.compute = compute;
    w->packed.n = w->n;
    w->packed.k = w->k;
    return device->ops->packed_bytes(compute, w->n, w->k);
  }
  if (w->kind == SIE_WEIGHT_DATA) {
    w->table.dtype = static_cast<int32_t>(dtype);
    w->table.ld = w->k;
    return w->n * w->k * dtype_bytes(w->table.dtype) + 64;
  }
  bool wide = w->kind == SIE_WEIGHT_VECTOR || compute == SIE_COMPUTE_F32;
  w->table.dtype = wide ? SIE_F32 : (compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_BF16);
  int64_t element = dtype_bytes(w->table.dtype);
  w->table.ld = w->kind == SIE_WEIGHT_VECTOR ? 1 : round_up(w->k, 64 / element);
  return w->n * w->table.ld * element + 64;
}

// Copies a packed matrix to the seats' nodes but the first.
sie_status copy_to_nodes(sie_weight *w, uint32_t group, sie_error *err) {
  const Seats &seats = w->device->seats;
  WeightCopy *copies = array_of<WeightCopy>(&w->copies, seats.nodes - 1);
  SIE_FAIL_IF(copies == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for copies of a weight");
  while (w->n_copies < seats.nodes - 1) {
    WeightCopy &copy = copies[w->n_copies];
    SIE_FAIL_IF(!w->device->weight_pages.allocate(seats, group, w->n_copies + 1, w->data.bytes, &copy.data),
                SIE_OUT_OF_MEMORY, err, "no memory for copy %d of a weight of %lld bytes", w->n_copies + 1,
                static_cast<long long>(w->data.bytes));
    w->n_copies++;
    OnNode here(seats, w->n_copies);
    memcpy(copy.data.p, w->data.p, w->data.bytes);
    copy.packed = w->packed;
    copy.packed.data = copy.data.p;
    w->bytes += static_cast<int64_t>(copy.data.bytes);
  }
  return SIE_OK;
}

void release_data(sie_weight *w) {
  WeightPages &pages = w->device->weight_pages;
  for (int32_t i = 0; i < w->n_copies; i++) pages.release(&static_cast<WeightCopy *>(w->copies.p)[i].data);
  release(&w->copies);
  pages.release(&w->data);
}

sie_status fill(sie_weight *w, const sie_weight_desc *d, sie_error *err) {
  int64_t bytes = choose_form(w, w->device, d->dtype);
  SIE_FAIL_IF(bytes < 0, SIE_INTERNAL, err, "no packed form of class %s", compute_name(w->compute));
  const Seats &seats = w->device->seats;
  const bool placed = !w->device->is_gpu() && has_nodes(seats) && bytes >= static_cast<int64_t>(placed_from);
  const bool copied = placed && d->placement == SIE_PLACE_COPIED && w->kind == SIE_WEIGHT_LINEAR;
  const uint32_t group = w->device->is_gpu() ? 0 : d->group;
  const int32_t place = copied ? 0 : WeightPages::anywhere;
  const size_t size = static_cast<size_t>(bytes);
  const bool ok = placed && !copied ? allocate_on(seats, -1, size, &w->data)
                                    : w->device->weight_pages.allocate(seats, group, place, size, &w->data);
  SIE_FAIL_IF(!ok, SIE_OUT_OF_MEMORY, err, "no memory for a weight of %lld bytes",
              static_cast<long long>(bytes));
  w->bytes = static_cast<int64_t>(w->data.bytes);
  // On a GPU the pointers stay null until the bytes have been copied there.
  if (!w->device->is_gpu()) w->packed.data = w->table.p = w->data.p;
  if (d->dtype == SIE_I32) {
    copy_data(w, d, 0, d->n);
    note_indices(w);
    return SIE_OK;
  }
  // Multiples of 64 rows, which are whole panels, if 64 rows fit.
  int64_t rows = chunk_bytes / (d->k * static_cast<int64_t>(sizeof(float)));
  rows = rows >= 64 ? rows / 64 * 64 : (rows > 0 ? rows : 1);
  if (rows > d->n) rows = d->n;
  Block block;
  float *chunk = array_of<float>(&block, rows * d->k);
  std::optional<OnNode> here;
  if (copied) here.emplace(seats, 0);
  SIE_FAIL_IF(chunk == nullptr, SIE_OUT_OF_MEMORY, err, "no memory to convert a weight");
  sie_status status = SIE_OK;
  for (int64_t first = 0; first < d->n; first += rows) {
    int64_t count = rows < d->n - first ? rows : d->n - first;
    int64_t denormals = 0;
    status = read_rows(d, first, count, chunk, &denormals, err);
    if (status != SIE_OK) break;
    if (w->kind != SIE_WEIGHT_DATA) w->denormals += denormals;
    if (w->kind == SIE_WEIGHT_DATA) {
      copy_data(w, d, first, count);
    } else {
      pack_rows(w, w->device->ops, first, count, chunk);
    }
  }
  release(&block);
  here.reset();
  return status == SIE_OK && copied ? copy_to_nodes(w, group, err) : status;
}

}  // namespace

}  // namespace sie

sie_status sie_weight_create(sie_device *device, const sie_weight_desc *given, sie_weight **weight,
                             sie_error *err) {
  using namespace sie;
  SIE_FAIL_IF(weight == nullptr, SIE_INVALID_ARGUMENT, err, "weight is NULL");
  *weight = nullptr;
  sie_weight_desc known;
  const sie_weight_desc *desc = &known;
  SIE_FAIL_IF(device == nullptr, SIE_INVALID_ARGUMENT, err, "device is NULL");
  SIE_TRY(take(given, &known, "sie_weight_desc", err));
  SIE_TRY(check_desc(device, desc, err));
  FloatState plain;
  sie_weight *w = new_object<sie_weight>();
  SIE_FAIL_IF(w == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for a weight");
  w->device = device;
  w->kind = desc->kind;
  w->compute = desc->compute;
  w->n = desc->n;
  w->k = desc->k;
  sie_status status = fill(w, desc, err);
  if (status != SIE_OK) {
    release_data(w);
    destroy_object(w);
    return status;
  }
  device->memory_weights += w->bytes;
  *weight = w;
  return SIE_OK;
}

void sie_weight_free(sie_weight *weight) {
  if (weight == nullptr) return;
  weight->device->memory_weights -= weight->bytes;
  sie::release_data(weight);
  sie::destroy_object(weight);
}

int64_t sie_weight_bytes(const sie_weight *weight) { return weight != nullptr ? weight->bytes : 0; }

int64_t sie_weight_denormals(const sie_weight *weight) { return weight != nullptr ? weight->denormals : 0; }

const void *sie_weight_staged(const sie_weight *weight) {
  return weight != nullptr && weight->device->is_gpu() ? weight->data.p : nullptr;
}

sie_status sie_weight_place(sie_weight *weight, void *memory, sie_error *err) {
  using namespace sie;
  SIE_FAIL_IF(weight == nullptr || memory == nullptr, SIE_INVALID_ARGUMENT, err, "weight or memory is NULL");
  SIE_FAIL_IF(!weight->device->is_gpu(), SIE_INVALID_ARGUMENT, err, "only weights of a GPU are placed");
  SIE_FAIL_IF(weight->table.p != nullptr, SIE_INVALID_ARGUMENT, err, "the weight is placed already");
  SIE_FAIL_IF(reinterpret_cast<uintptr_t>(memory) % 256 != 0, SIE_INVALID_ARGUMENT, err,
              "memory is not aligned to 256 bytes");
  weight->packed.data = weight->table.p = memory;
  release(&weight->data);
  return SIE_OK;
}
