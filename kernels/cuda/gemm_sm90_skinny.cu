// gemm_sm90_skinny.cu — instances and launch of the skinny form.
#include "cuda/gemm_sm90_launch.cuh"
#include "cuda/gemm_sm90_skinny.cuh"

namespace sie_cuda {

namespace {

template <class Class, int Tokens>
sie_status launch(const GemmCall &call) {
  using Tile = Sm90Skinny<Class, Tokens>;
  const int64_t n = call.args->n, processors = call.on->multiprocessors;
  Sm90SkinnyGemm a = {};
  // As many CTAs as still run at once: more CTAs read W faster, but each reads x again.
  a.weight_rows = 16;
  while (a.weight_rows < 64 && divide_up(n, a.weight_rows) > processors) a.weight_rows *= 2;
  ptx::TensorMap x, w;
  sie_status status = sm90_operand_maps(call, Tile::step, Tokens, a.weight_rows, &x, &w);
  if (status != SIE_OK) return status;
  a.g = sm90_arguments(call, Tile::step);
  return SIE_LAUNCH((gemm_sm90_skinny_kernel<Tile>), divide_up(n, a.weight_rows), sm90_skinny_threads,
                    Tile::shared_bytes, call.on, x, w, a);
}

template <class Class>
sie_status launch(const GemmCall &call) {
  const int64_t cap = call.args->rows.cap;
  if (cap <= 8) return launch<Class, 8>(call);
  if (cap <= 16) return launch<Class, 16>(call);
  if (cap <= 24) return launch<Class, 24>(call);
  if (cap <= 32) return launch<Class, 32>(call);
  return cap <= 64 ? launch<Class, 64>(call) : SIE_UNSUPPORTED;
}

}  // namespace

sie_status gemm_sm90_skinny(const GemmCall &call) {
  switch (call.args->w->compute) {
    case SIE_COMPUTE_BF16:
      return launch<Sm90Class<ptx::Operand::bf16>>(call);
    case SIE_COMPUTE_F16:
      return launch<Sm90Class<ptx::Operand::f16>>(call);
    default:
      return launch<Sm90Class<ptx::Operand::e4m3>>(call);
  }
}

}  // namespace sie_cuda
