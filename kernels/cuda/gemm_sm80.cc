// gemm_sm80.cc — the host side of gemm_sm80.h: checks, the choice of a tile, the kernel's
// parameter.
#include "cuda/gemm_sm80.h"

#include "cuda/gemm_call.h"
#include "cuda/gemm_sm80_instances.h"
#include "cuda/gemm_tiles.h"

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

// A block of y's scales must lie in one tile.
bool takes_output(const GemmSm80Instance &instance, const sie_linear_args *a) {
  return a->y.dtype != SIE_F8E4M3 || instance.shape.columns / (a->gate != SIE_GATE_NONE ? 2 : 1) % 128 == 0;
}

// An estimate of the time, in clocks; only its order counts. Per SM and clock it counts
// multiply-adds of the tensor cores at the 80 % they reach, bytes from L2, and bytes through shared
// memory; then a chain of mma that waits for itself, and a start and an end a CTA. CTAs of one SM
// share all this.
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

sie_status check(const sie_linear_args *a, const sie_stream *on, GemmCall *call) {
  sie_status status = gemm_call(a, on, call);
  if (status != SIE_OK) return status;
  const bool fp8 = a->w->compute == SIE_COMPUTE_FP8;
  const bool takes = on->sm >= 80 && on->sm / 10 != 9 && (!fp8 || on->sm == 89 || on->sm >= 120);
  return takes ? SIE_OK : SIE_UNSUPPORTED;
}

// The Family of gemm_choose (gemm_tiles.h).
struct Family {
  const GemmCall &call;
  const GemmSm80Instance *instances;
  int32_t count;
  explicit Family(const GemmCall &of) : call(of) {
    const Table table = table_of(of.args->w->compute);
    instances = table.instances;
    count = table.count;
  }
  const char *name(int32_t i) const { return instances[i].shape.name; }
  bool takes(int32_t i) const { return takes_output(instances[i], call.args); }
  int64_t clocks(int32_t i) const { return estimate(instances[i], call.args, call.on); }
};

sie_status run(int32_t variant, const GemmCall &call) {
  const sie_linear_args &a = *call.args;
  const Family family(call);
  if (variant < 0 || variant >= family.count || !family.takes(variant)) return SIE_UNSUPPORTED;
  const GemmSm80Instance &instance = family.instances[variant];
  const int64_t row_tiles = divide_up(a.rows.cap, instance.shape.rows);
  const int64_t column_tiles = divide_up(a.n, instance.shape.columns);
  if (row_tiles * column_tiles > INT32_MAX) return SIE_UNSUPPORTED;
  if (row_tiles == 0) return SIE_OK;

  GemmSm80Args args = {};
  args.rows = a.rows.n;
  args.x = static_cast<const uint8_t *>(a.x.p);
  args.w = static_cast<const uint8_t *>(a.w->data);
  args.x_row = a.x.ld * call.layout.element;
  args.w_row = call.layout.k_padded * call.layout.element;
  args.x_scale = a.x.scale;
  args.w_scale = call.w_scale;
  args.block_scales = call.block_scales;
  args.x_scale_ld = call.block_scales ? divide_up(a.k, 128) : 1;
  args.k_bytes = static_cast<int32_t>(a.k * call.layout.element);
  args.lines = static_cast<int32_t>(divide_up(args.k_bytes, instance.line));
  args.row_tiles = static_cast<int32_t>(row_tiles);
  args.column_tiles = static_cast<int32_t>(column_tiles);
  args.epilogue = call.epilogue;
  return instance.launch(args, static_cast<uint32_t>(row_tiles * column_tiles), call.on);
}

}  // namespace

const GemmSm80Variant *gemm_sm80_variant(uint32_t compute, int32_t index) {
  Table table = table_of(compute);
  return index >= 0 && index < table.count ? &table.instances[index].shape : nullptr;
}

int32_t gemm_sm80_choose(const sie_linear_args *a, const sie_stream *on) {
  GemmCall call;
  if (check(a, on, &call) != SIE_OK) return -1;
  return gemm_choose(Family(call), gemm_tiles, *call.args, *call.on);
}

sie_status gemm_sm80_run(int32_t variant, const sie_linear_args *a, const sie_stream *on) {
  GemmCall call;
  sie_status status = check(a, on, &call);
  return status == SIE_OK ? run(variant, call) : status;
}

}  // namespace sie_cuda
