// cublaslt.cc — the few functions and constants of cuBLASLt that a product needs (cuBLAS 12 and 13
// documentation, cublasLt API reference). Everything column-major there: yᵀ [N, R] = W·xᵀ, with W
// taken transposed.
#include "bench/cublaslt.h"

#include <dlfcn.h>

#include "bench/device.h"
#include "cuda/gemm_pack.h"

namespace cublaslt {

namespace {

enum : int { r_32f = 0, r_16f = 2, r_16bf = 14, r_8f_e4m3 = 28 };
enum : int { compute_32f = 68, op_t = 1 };
enum : int { desc_transa = 3, desc_epilogue = 7, desc_bias_pointer = 8 };
enum : int { epilogue_bias = 4, epilogue_gelu_bias = 36 };
enum : int { preference_workspace = 1 };

struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

using Handle = void *;
int (*create)(Handle *);
size_t (*get_version)();
int (*desc_create)(Handle *, int compute, int scale);
int (*desc_destroy)(Handle);
int (*desc_set)(Handle, int attribute, const void *value, size_t bytes);
int (*layout_create)(Handle *, int type, uint64_t rows, uint64_t columns, int64_t ld);
int (*layout_destroy)(Handle);
int (*preference_create)(Handle *);
int (*preference_set)(Handle, int attribute, const void *value, size_t bytes);
int (*heuristic)(Handle, Handle desc, Handle a, Handle b, Handle c, Handle d, Handle preference, int asked,
                 Heuristic *results, int *found);
int (*matmul)(Handle, Handle desc, const void *alpha, const void *a, Handle a_layout, const void *b,
              Handle b_layout, const void *beta, const void *c, Handle c_layout, void *d, Handle d_layout,
              const Algorithm *algorithm, void *workspace, size_t workspace_bytes, void *stream);

constexpr size_t workspace_bytes = size_t{64} << 20, bias_bytes = size_t{1} << 17;
Handle handle, preference;
void *workspace, *bias;

template <typename F>
bool find(void *library, const char *name, F *function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

bool find_all(void *library) {
  return find(library, "cublasLtCreate", &create) && find(library, "cublasLtGetVersion", &get_version) &&
         find(library, "cublasLtMatmulDescCreate", &desc_create) &&
         find(library, "cublasLtMatmulDescDestroy", &desc_destroy) &&
         find(library, "cublasLtMatmulDescSetAttribute", &desc_set) &&
         find(library, "cublasLtMatrixLayoutCreate", &layout_create) &&
         find(library, "cublasLtMatrixLayoutDestroy", &layout_destroy) &&
         find(library, "cublasLtMatmulPreferenceCreate", &preference_create) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", &preference_set) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", &heuristic) &&
         find(library, "cublasLtMatmul", &matmul);
}

int type_of(int32_t dtype) {
  switch (dtype) {
    case SIE_F32:
      return r_32f;
    case SIE_F16:
      return r_16f;
    case SIE_BF16:
      return r_16bf;
    case SIE_F8E4M3:
      return r_8f_e4m3;
    default:
      return -1;
  }
}

// The descriptors of one product.
struct Plan {
  Handle desc = nullptr, w = nullptr, x = nullptr, c = nullptr, y = nullptr;
  ~Plan() {
    if (desc != nullptr) desc_destroy(desc);
    for (Handle layout : {w, x, c, y}) {
      if (layout != nullptr) layout_destroy(layout);
    }
  }
};

}  // namespace

bool open(const std::string &path, std::string *what) {
  void *library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    if (library == nullptr && path.empty()) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    const char *error = dlerror();
    *what = error != nullptr ? error : "not found";
    return false;
  }
  if (!find_all(library) || create(&handle) != 0 || preference_create(&preference) != 0 ||
      preference_set(preference, preference_workspace, &workspace_bytes, sizeof workspace_bytes) != 0) {
    *what = "it lacks a function, or does not start";
    return false;
  }
  workspace = device::allocate(workspace_bytes);
  bias = device::allocate(bias_bytes);
  const std::string zeros(bias_bytes, '\0');
  if (workspace == nullptr || bias == nullptr || !device::copy_in(bias, zeros.data(), bias_bytes)) {
    *what = "no memory for its workspace";
    return false;
  }
  *what = std::to_string(get_version());
  return true;
}

sie_status linear(const sie_linear_args *a, const sie_share *share) {
  const bool gelu = a->act == SIE_ACT_GELU_ERF, fp8 = a->w->compute == SIE_COMPUTE_FP8;
  const int x_type = type_of(a->x.dtype), y_type = type_of(a->y.dtype);
  if (a->gate != SIE_GATE_NONE || (a->act != SIE_ACT_NONE && !gelu) || x_type < 0) return SIE_UNSUPPORTED;
  if (y_type != r_16bf && (fp8 || (y_type != r_16f && y_type != r_32f))) return SIE_UNSUPPORTED;
  if (a->residual.p != nullptr && a->residual.dtype != a->y.dtype) return SIE_UNSUPPORTED;
  sie_cuda::GemmLayout layout;
  if (!sie_cuda::gemm_layout(a->w->compute, a->n, a->k, &layout)) return SIE_UNSUPPORTED;
  const uint64_t n = static_cast<uint64_t>(a->n), k = static_cast<uint64_t>(a->k),
                 r = static_cast<uint64_t>(a->rows.cap);
  if (n * 4 > bias_bytes) return SIE_UNSUPPORTED;

  Plan plan;
  const int epilogue = gelu ? epilogue_gelu_bias : epilogue_bias, transpose = op_t;
  const int64_t c_ld = a->residual.p != nullptr ? a->residual.ld : a->y.ld;
  if (desc_create(&plan.desc, compute_32f, r_32f) != 0 ||
      desc_set(plan.desc, desc_transa, &transpose, sizeof transpose) != 0 ||
      desc_set(plan.desc, desc_epilogue, &epilogue, sizeof epilogue) != 0 ||
      desc_set(plan.desc, desc_bias_pointer, &bias, sizeof bias) != 0 ||
      layout_create(&plan.w, x_type, k, n, layout.k_padded) != 0 ||
      layout_create(&plan.x, x_type, k, r, a->x.ld) != 0 || layout_create(&plan.c, y_type, n, r, c_ld) != 0 ||
      layout_create(&plan.y, y_type, n, r, a->y.ld) != 0) {
    return SIE_UNSUPPORTED;
  }
  Heuristic best = {};
  int found = 0;
  if (heuristic(handle, plan.desc, plan.w, plan.x, plan.c, plan.y, preference, 1, &best, &found) != 0 ||
      found == 0)
    return SIE_UNSUPPORTED;
  const float one = 1, beta = a->residual.p != nullptr ? 1.0f : 0.0f;
  const void *c = a->residual.p != nullptr ? a->residual.p : a->y.p;
  const int status = matmul(handle, plan.desc, &one, a->w->data, plan.w, a->x.p, plan.x, &beta, c, plan.c,
                            a->y.p, plan.y, &best.algorithm, workspace, workspace_bytes, share->on->stream);
  return status == 0 ? SIE_OK : SIE_UNSUPPORTED;
}

}  // namespace cublaslt
