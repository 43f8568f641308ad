// gemm_sm80.cc — the host side of gemm_sm80.h: checks, the choice of a tile, the kernel's parameter.
#include "cuda/gemm_sm80.h"

#include "cuda/gemm_pack.h"
#include "cuda/gemm_sm80_instances.h"

namespace sie_cuda {

namespace {

struct Table {
  const GemmSm80Instance *instances;
  int32_t count;
};

Table table_of(uint32_t compute) {
  switch (compute) {
    case SIE_COMPUTE_BF16:
      return {gemm_sm80_bf16, gemm_sm80_16bit_count};
    case SIE_COMPUTE_F16:
      return {gemm_sm80_f16, gemm_sm80_16bit_count};
    case SIE_COMPUTE_FP8:
      return {gemm_sm80_fp8, gemm_sm80_fp8_count};
    default:
      return {nullptr, 0};
  }
}

int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

bool aligned(const void *p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uint64_t>(bytes) == 0;
}

// A block of y's scales must lie in one tile.
bool takes_output(const GemmSm80Instance &instance, const sie_linear_args *a) {
  return a->y.dtype != SIE_F8E4M3 || instance.shape.columns / (a->gate != SIE_GATE_NONE ? 2 : 1) % 128 == 0;
}

// A model of the time, in clocks; only its order counts. Per SM and clock: multiply-adds of the tensor cores
// at the 80 % they reach, bytes from L2, bytes through shared memory; a chain of mma that waits for itself; a
// start and an end a CTA. CTAs of one SM share.
int64_t estimate(const GemmSm80Instance &instance, const sie_linear_args *a, const sie_stream *on) {
  const bool fp8 = a->w->compute == SIE_COMPUTE_FP8,
             datacentre = on->sm == 80 || on->sm == 100 || on->sm == 103;
  const int64_t shared_an_sm = (on->sm == 80 ? 164 : datacentre ? 228 : 100) * 1024;
  const int64_t multiply_adds = (datacentre ? 1024 : 512) * (fp8 ? 2 : 1) * 4 / 5, l2_bytes = 40,
                shared_bytes = 110;
  const int64_t chain = a->k / (fp8 ? 32 : 16) * 36, fixed = 2500;
  int64_t together = shared_an_sm / (instance.shared_bytes + 1024);
  if (together > instance.min_ctas) together = instance.min_ctas;
  if (together < 1) together = 1;
  auto clocks = [&](int64_t ctas) {
    int64_t compute = ctas * instance.shape.rows * instance.shape.columns * a->k / multiply_adds;
    int64_t load = ctas * (instance.shape.rows + instance.shape.columns) * a->k * (fp8 ? 1 : 2) / l2_bytes;
    int64_t shared = ctas * instance.shared_rows * a->k * (fp8 ? 1 : 2) / shared_bytes;
    int64_t longest = compute > load ? compute : load;
    if (shared > longest) longest = shared;
    return (longest > chain ? longest : chain) + fixed;
  };
  const int64_t ctas = divide_up(a->rows.cap, instance.shape.rows) * divide_up(a->n, instance.shape.columns);
  const int64_t processors = on->multiprocessors > 0 ? on->multiprocessors : 1, wave = processors * together;
  const int64_t rest = divide_up(ctas % wave, processors);
  return ctas / wave * clocks(together) + (rest > 0 ? clocks(rest) : 0);
}

sie_status check(const sie_linear_args *a, const sie_stream *on) {
  if (on == nullptr || a->w == nullptr) return SIE_INVALID_ARGUMENT;
  const uint32_t compute = a->w->compute;
  const bool fp8 = compute == SIE_COMPUTE_FP8;
  const int32_t type =
      compute == SIE_COMPUTE_BF16 ? SIE_BF16 : (compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_F8E4M3);
  if (table_of(compute).count == 0 || a->x.dtype != type) return SIE_UNSUPPORTED;
  if (on->sm < 80 || on->sm / 10 == 9 || (fp8 && on->sm != 89 && on->sm < 120)) return SIE_UNSUPPORTED;
  if (fp8 && a->x.scale_group != -1 && a->x.scale_group != 128) return SIE_UNSUPPORTED;
  const int64_t element = fp8 ? 1 : 2;
  if (a->rows.cap < 0 || a->rows.cap > INT32_MAX || a->w->n != a->n || a->w->k != a->k)
    return SIE_INVALID_ARGUMENT;
  if (a->k < 1 || a->k > int64_t{1} << 28 || a->k * element % 16 != 0) return SIE_INVALID_ARGUMENT;
  if (a->x.ld < a->k || a->x.ld * element % 16 != 0 || !aligned(a->x.p, 16)) return SIE_INVALID_ARGUMENT;
  if (!aligned(a->w->data, 16)) return SIE_INVALID_ARGUMENT;
  if (fp8 && (a->x.scale == nullptr || !aligned(a->x.scale, 4))) return SIE_INVALID_ARGUMENT;
  return SIE_OK;
}

}  // namespace

const GemmSm80Variant *gemm_sm80_variant(uint32_t compute, int32_t index) {
  Table table = table_of(compute);
  return index >= 0 && index < table.count ? &table.instances[index].shape : nullptr;
}

int32_t gemm_sm80_choose(const sie_linear_args *a, const sie_stream *on) {
  GemmEpilogue epilogue;
  if (check(a, on) != SIE_OK || gemm_epilogue(a, &epilogue) != SIE_OK) return -1;
  Table table = table_of(a->w->compute);
  int32_t best = -1;
  int64_t least = 0;
  for (int32_t i = 0; i < table.count; i++) {
    if (!takes_output(table.instances[i], a)) continue;
    int64_t clocks = estimate(table.instances[i], a, on);
    if (best < 0 || clocks < least) {
      best = i;
      least = clocks;
    }
  }
  return best;
}

sie_status gemm_sm80_run(int32_t variant, const sie_linear_args *a, const sie_stream *on) {
  sie_status status = check(a, on);
  if (status != SIE_OK) return status;
  GemmSm80Args args = {};
  status = gemm_epilogue(a, &args.epilogue);
  if (status != SIE_OK) return status;
  Table table = table_of(a->w->compute);
  if (variant < 0 || variant >= table.count) return SIE_INVALID_ARGUMENT;
  const GemmSm80Instance &instance = table.instances[variant];
  if (!takes_output(instance, a)) return SIE_UNSUPPORTED;
  GemmLayout layout;
  if (!gemm_layout(a->w->compute, a->n, a->k, &layout)) return SIE_UNSUPPORTED;
  const int64_t row_tiles = divide_up(a->rows.cap, instance.shape.rows);
  const int64_t column_tiles = divide_up(a->n, instance.shape.columns);
  if (row_tiles * column_tiles > INT32_MAX) return SIE_INVALID_ARGUMENT;
  if (row_tiles == 0) return SIE_OK;

  args.rows = a->rows.n;
  args.x = static_cast<const uint8_t *>(a->x.p);
  args.w = static_cast<const uint8_t *>(a->w->data);
  args.x_row = a->x.ld * layout.element;
  args.w_row = layout.k_padded * layout.element;
  if (layout.scale_offset >= 0) {
    args.x_scale = a->x.scale;
    args.w_scale = reinterpret_cast<const float *>(args.w + layout.scale_offset);
    args.block_scales = a->x.scale_group == 128;
    args.x_scale_ld = args.block_scales ? divide_up(a->k, 128) : 1;
  }
  args.k_bytes = static_cast<int32_t>(a->k * layout.element);
  args.lines = static_cast<int32_t>(divide_up(args.k_bytes, instance.line));
  args.row_tiles = static_cast<int32_t>(row_tiles);
  args.column_tiles = static_cast<int32_t>(column_tiles);
  return instance.launch(args, static_cast<uint32_t>(row_tiles * column_tiles), on);
}

sie_status gemm_sm80_linear(const sie_linear_args *a, const sie_share *share) {
  sie_status status = check(a, share->on);
  if (status != SIE_OK) return status;
  GemmEpilogue epilogue;
  status = gemm_epilogue(a, &epilogue);
  if (status != SIE_OK) return status;
  return gemm_sm80_run(gemm_sm80_choose(a, share->on), a, share->on);
}

}  // namespace sie_cuda
