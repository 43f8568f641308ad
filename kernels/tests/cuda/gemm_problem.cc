#include "tests/cuda/gemm_problem.h"

#include <math.h>
#include <sys/mman.h>

#include "common/dtype.h"
#include "common/tol.h"
#include "cuda/gemm_pack.h"

namespace gemm_test {

#if defined(__SANITIZE_ADDRESS__)
Bytes::Bytes(int64_t size, int64_t shift) : size_(size), shift_(shift) {
  map_bytes_ = static_cast<size_t>(size + shift + (size + shift == 0));
  if (posix_memalign(&map_, 16, map_bytes_) != 0) abort();
  memory_ = static_cast<uint8_t *>(map_);
  memset(memory_, 0xff, static_cast<size_t>(size + shift));
}
Bytes::~Bytes() { free(map_); }
#else
Bytes::Bytes(int64_t size, int64_t shift) : size_(size), shift_(shift) {
  constexpr int64_t page = 4096;
  const int64_t lines = (size + shift + 15) / 16 * 16, pages = (lines + page - 1) / page * page;
  map_bytes_ = static_cast<size_t>(pages + page);
  map_ = mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map_ == MAP_FAILED) abort();
  uint8_t *end = static_cast<uint8_t *>(map_) + pages;
  if (mprotect(end, static_cast<size_t>(page), PROT_NONE) != 0) abort();
  memory_ = end - lines;
  memset(map_, 0xff, static_cast<size_t>(pages));
}
Bytes::~Bytes() { munmap(map_, map_bytes_); }
#endif

int64_t element_bytes(int32_t dtype) {
  return dtype == SIE_F32 ? 4 : (dtype == SIE_BF16 || dtype == SIE_F16 ? 2 : 1);
}

float load(int32_t dtype, const void *row, int64_t column) {
  if (dtype == SIE_F32) return static_cast<const float *>(row)[column];
  if (dtype == SIE_F8E4M3) return sie_f32_from_f8e4m3(static_cast<const uint8_t *>(row)[column]);
  uint16_t bits = static_cast<const uint16_t *>(row)[column];
  return dtype == SIE_BF16 ? sie_f32_from_bf16(bits) : sie_f32_from_f16(bits);
}

void store(int32_t dtype, void *row, int64_t column, float x) {
  if (dtype == SIE_F32) {
    static_cast<float *>(row)[column] = x;
  } else if (dtype == SIE_F8E4M3) {
    static_cast<uint8_t *>(row)[column] = sie_f8e4m3_from_f32(x);
  } else {
    static_cast<uint16_t *>(row)[column] = dtype == SIE_BF16 ? sie_bf16_from_f32(x) : sie_f16_from_f32(x);
  }
}

namespace {

int32_t x_dtype(uint32_t compute) {
  if (compute == SIE_COMPUTE_F32) return SIE_F32;
  return compute == SIE_COMPUTE_BF16 ? SIE_BF16 : (compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_F8E4M3);
}

// Scales of a row of x.
int64_t x_groups(const Shape &s) {
  if (s.compute != SIE_COMPUTE_FP8) return 0;
  return s.x_group == 128 ? (s.k + 127) / 128 : 1;
}

int64_t x_bytes(const Shape &s, int64_t ld) {
  return s.cap > 0 ? ((s.cap - 1) * ld + s.k) * element_bytes(x_dtype(s.compute)) : 0;
}

}  // namespace

int64_t gap(uint32_t compute, int64_t k, int64_t more) {
  const int64_t of_16 = 16 / element_bytes(x_dtype(compute));
  return (of_16 - k % of_16) % of_16 + more * of_16;
}

Problem::Problem(const Shape &s)
    : shape_(s),
      x_ld_(s.k + s.x_gap),
      x_(x_bytes(s, x_ld_)),
      w_(sie_cuda::gemm_packed_bytes(s.compute, s.n, s.k)),
      bias_(s.n * 4),
      odd_bias_(s.n * 4, 4),
      x_scale_(s.cap * x_groups(s) * 4),
      packed_() {
  Random random(static_cast<uint32_t>(s.n * 131 + s.k * 7 + s.n_rows));
  const int32_t dtype = x_dtype(s.compute);
  const bool fp8 = s.compute == SIE_COMPUTE_FP8;
  std::vector<float> w(static_cast<size_t>(s.n * s.k));
  for (float &value : w) value = random.real() * 2 / sqrtf(static_cast<float>(s.k));
  memset(w_.p(), 0, static_cast<size_t>(w_.size()));
  sie_cuda::gemm_pack(s.compute, s.n, s.k, 0, s.n, w.data(), s.k, w_.p());
  packed_.compute = s.compute;
  packed_.n = s.n;
  packed_.k = s.k;
  packed_.data = w_.p();
  sie_cuda::GemmLayout layout;
  if (!sie_cuda::gemm_layout(s.compute, s.n, s.k, &layout)) abort();
  // The weights as the kernel sees them.
  for (int64_t n = 0; n < s.n; n++) {
    const uint8_t *row = w_.p() + n * layout.k_padded * layout.element;
    float scale = fp8 ? reinterpret_cast<const float *>(w_.p() + layout.scale_offset)[n] : 1.0f;
    double norm = 0;
    for (int64_t k = 0; k < s.k; k++) {
      float value = load(dtype, row, k) * scale;
      w[static_cast<size_t>(n * s.k + k)] = value;
      norm += static_cast<double>(value) * static_cast<double>(value);
    }
    w_norm_.push_back(sqrt(norm));
    reinterpret_cast<float *>(bias_.p())[n] = random.real();
  }
  memcpy(odd_bias_.p(), bias_.p(), static_cast<size_t>(bias_.size()));
  const int64_t groups = x_groups(s);
  float *x_scale = reinterpret_cast<float *>(x_scale_.p());  // NaN from n_rows on
  for (int64_t i = 0; i < s.n_rows * groups; i++)
    x_scale[i] = ldexpf(1.5f + 0.5f * random.real(), static_cast<int>(i % 5) - 3);
  std::vector<double> x(static_cast<size_t>(s.k));
  for (int64_t r = 0; r < s.n_rows; r++) {
    double norm = 0;
    for (int64_t k = 0; k < s.k; k++) {
      store(dtype, x_row(r), k, random.real());
      const float scale = groups == 0 ? 1.0f : x_scale[r * groups + (groups > 1 ? k / 128 : 0)];
      double value = static_cast<double>(load(dtype, x_row(r), k)) * static_cast<double>(scale);
      x[static_cast<size_t>(k)] = value;
      norm += value * value;
    }
    x_norm_.push_back(sqrt(norm));
    for (int64_t n = 0; n < s.n; n++) {
      double sum = 0;
      for (int64_t k = 0; k < s.k; k++) {
        sum += x[static_cast<size_t>(k)] * static_cast<double>(w[static_cast<size_t>(n * s.k + k)]);
      }
      z_.push_back(sum);
      residual_.push_back(random.real() * 2);
      addend_.push_back(random.real());
    }
  }
}

uint8_t *Problem::x_row(int64_t r) const {
  return x_.p() + r * x_ld_ * element_bytes(x_dtype(shape_.compute));
}

double Problem::z_tolerance(int64_t r, int64_t c) const {
  return sie_tol_dot(shape_.k, x_norm_[static_cast<size_t>(r)], w_norm_[static_cast<size_t>(c)]) +
         4 * SIE_TOL_U * (fabs(z(r, c)) + 1);
}

float Problem::residual(int32_t dtype, int64_t r, int64_t c) const {
  uint8_t element[4];
  store(dtype, element, 0, residual_[static_cast<size_t>(r * shape_.n + c)]);
  return load(dtype, element, 0);
}

void Problem::fill_residual(const Ending &e, const Bytes &memory) const {
  const int64_t columns = this->columns(e);
  for (int64_t r = 0; r < shape_.n_rows; r++) {
    uint8_t *row = memory.p() + r * residual_ld(e) * element_bytes(e.residual);
    for (int64_t c = 0; c < columns; c++)
      store(e.residual, row, c, residual_[static_cast<size_t>(r * shape_.n + c)]);
  }
}

void Problem::fill_addend(const Ending &e, const Bytes &memory) const {
  for (int64_t r = 0; r < shape_.n_rows; r++) {
    memcpy(memory.p() + r * addend_ld(e) * 4, addend_.data() + r * shape_.n,
           static_cast<size_t>(shape_.n * 4));
  }
}

sie_linear_args Problem::args(const Ending &e, const Bytes &y, const Bytes &residual, float *y_scale,
                              const Bytes *addend) const {
  sie_linear_args a = {};
  a.n = shape_.n;
  a.k = shape_.k;
  a.x.p = x_.p();
  a.x.ld = x_ld_;
  a.x.dtype = x_dtype(shape_.compute);
  if (shape_.compute == SIE_COMPUTE_FP8) {
    a.x.scale_group = shape_.x_group;
    a.x.scale = reinterpret_cast<float *>(x_scale_.p());
  }
  a.w = &packed_;
  a.bias = e.bias ? reinterpret_cast<const float *>((e.odd_bias ? odd_bias_ : bias_).p()) : nullptr;
  a.act = e.act;
  a.gate = e.gate;
  a.y.p = y.p();
  a.y.ld = y_ld(e);
  a.y.dtype = e.y;
  if (e.y == SIE_F8E4M3) {
    a.y.scale_group = 128;
    a.y.scale = y_scale;
  }
  if (e.residual != 0) {
    a.residual.p = residual.p();
    a.residual.ld = residual_ld(e);
    a.residual.dtype = e.residual;
  }
  if (e.addend && addend != nullptr) {
    a.addend.p = addend->p();
    a.addend.ld = addend_ld(e);
    a.addend.dtype = SIE_F32;
  }
  a.rows.cap = shape_.cap;
  return a;
}

}  // namespace gemm_test
