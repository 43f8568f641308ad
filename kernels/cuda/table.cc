// table.cc — the operation tables of the CUDA backend, one per family of devices (kernels/ops.h,
// cuda_ops.h).
//
// A launcher belongs here when its kernels pass the conformance list.
#include "cuda/attention_work.h"
#include "cuda/cuda_ops.h"
#include "cuda/gemm_pack.h"
#include "cuda/linear.h"
#include "cuda/linear_norm.h"
#include "cuda/lora.h"
#include "cuda/maxsim.h"
#include "cuda/muvera.h"
#include "cuda/places.h"
#include "cuda/rows.h"
#include "cuda/smve.h"
#include "cuda/spans.h"
#include "cuda/splade.h"

extern "C" int64_t sie_cuda_scratch_bytes(const sie_op_bounds *bounds) {
  if (bounds->kind == SIE_OP_SMVE) return sie_cuda::smve_scratch(bounds);
  if (bounds->kind == SIE_OP_POOL || bounds->kind == SIE_OP_POOL_OUTPUT)
    return sie_cuda::pool_scratch(bounds);
  return bounds->kind == SIE_OP_MUVERA ? sie_cuda::muvera_scratch(bounds) : 0;
}

namespace {

// F32 is for the heads behind pooling: attention has no such form.
constexpr uint32_t classes = 1u << SIE_COMPUTE_F32 | 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_F16;

sie_ops table(const char *name, uint32_t compute_mask, bool wide_attention = false) {
  sie_ops ops = {};
  ops.name = name;
  ops.compute_mask = compute_mask;
  ops.packed_bytes = sie_cuda::gemm_packed_bytes;
  ops.pack = sie_cuda::gemm_pack;
  ops.linear = sie_cuda::linear;
  ops.act_dtype_bf16 = SIE_BF16;
  ops.act_dtype_int8 = SIE_F32;
  ops.scratch_bytes = sie_cuda_scratch_bytes;
  ops.attention = sie_cuda::attention;
  ops.attention_work_bytes = sie_cuda::attention_work_bytes;
  ops.attention_work = wide_attention ? sie_cuda::attention_work_sm90 : sie_cuda::attention_work;
  ops.embed_layernorm = sie_cuda::embed_layernorm;
  ops.layernorm = sie_cuda::layernorm;
  ops.quantise_rows = sie_cuda::quantise_rows;
  ops.gather_rows = sie_cuda::gather_rows;
  ops.pool = sie_cuda::pool;
  ops.output_rows = sie_cuda::output_rows;
  ops.qk_norm_rope = sie_cuda::qk_norm_rope;
  ops.pool_output = sie_cuda::pool_output;
  ops.muvera = sie_cuda::muvera;
  ops.keep_rows = sie_cuda::keep_rows;
  ops.output_sparse = sie_cuda::output_sparse;
  ops.splade = sie_cuda::splade;
  ops.smve = sie_cuda::smve;
  ops.maxsim = sie_cuda::maxsim;
  ops.lora = sie_cuda::lora;
  ops.mark_nonfinite = sie_cuda::mark_nonfinite;
  ops.join_columns = sie_cuda::join_columns;
  ops.take_rows = sie_cuda::take_rows;
  ops.product = sie_cuda::product;
  ops.dots = sie_cuda::dots;
  ops.lstm = sie_cuda::lstm;
  ops.spans = sie_cuda::spans;
  ops.pairs = sie_cuda::pairs;
  ops.linear_norm = sie_cuda::linear_norm;
  ops.linear_norm_pays = sie_cuda::linear_norm_pays;
  return ops;
}

const sie_ops sm80 = table("cuda-sm80", classes);
const sie_ops sm89 = table("cuda-sm89", classes | 1u << SIE_COMPUTE_FP8);
const sie_ops sm90 = table("cuda-sm90", classes | 1u << SIE_COMPUTE_FP8, true);

}  // namespace

extern "C" const sie_ops *sie_cuda_ops(int sm) {
  if (sm < 80) return nullptr;
  if (sm >= 90 && sm < 100) return &sm90;
  return sm == 89 || sm >= 120 ? &sm89 : &sm80;
}
