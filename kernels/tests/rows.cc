// rows.cc — guarded rows, packed weights and scratch.
#include <math.h>

#include "common/dtype.h"
#include "harness.h"

namespace harness {

namespace {

constexpr uint8_t sentinel = 0xff;

// AddressSanitizer reports an access one byte past a block, so the block ends with the last element.
#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t tail_guard = 0;
#else
constexpr int64_t tail_guard = 256;
#endif

int64_t element_bytes(int32_t dtype) {
  return dtype == SIE_F32 ? 4 : (dtype == SIE_BF16 || dtype == SIE_F16 ? 2 : 1);
}

}  // namespace

Rows::Rows(int64_t rows, int64_t columns, int32_t dtype, int64_t gap, int64_t shift, bool outliers)
    : rows_(rows), columns_(columns), ld_(columns + gap), element_(element_bytes(dtype)), dtype_(dtype) {
  front_ = 128 + shift * element_;
  int64_t content = rows > 0 ? ((rows - 1) * ld_ + columns) * element_ : 0;
  size_ = front_ + content + tail_guard;
  memory_ = nullptr;
  if (posix_memalign(reinterpret_cast<void **>(&memory_), 64, static_cast<size_t>(size_)) != 0) abort();
  if (dtype == SIE_U8) {
    scale_.resize(static_cast<size_t>(rows + 2 * guard_elements));
    zero_.resize(static_cast<size_t>(rows + 2 * guard_elements));
    if (outliers) outlier_.resize(static_cast<size_t>(rows + 2 * guard_elements));
  }
  clear();
}

Rows::~Rows() { free(memory_); }

sie_tensor Rows::tensor(int64_t first) const {
  sie_tensor t = {};
  t.p = at(first);
  t.ld = ld_;
  t.dtype = dtype_;
  if (dtype_ == SIE_U8) {
    t.scale_group = -1;
    t.scale = const_cast<float *>(scale_.data()) + guard_elements + first;
    t.zero = const_cast<int32_t *>(zero_.data()) + guard_elements + first;
    if (!outlier_.empty()) t.outlier = const_cast<sie_outlier *>(outlier_.data()) + guard_elements + first;
  }
  return t;
}

void *Rows::at(int64_t r) const { return memory_ + front_ + r * ld_ * element_; }

void Rows::set(int64_t r, int64_t c, float x) {
  if (dtype_ == SIE_BF16) {
    static_cast<uint16_t *>(at(r))[c] = sie_bf16_from_f32(x);
  } else {
    static_cast<float *>(at(r))[c] = x;
  }
}

double Rows::get(int64_t r, int64_t c) const {
  switch (dtype_) {
    case SIE_BF16:
      return static_cast<double>(sie_f32_from_bf16(static_cast<uint16_t *>(at(r))[c]));
    case SIE_U8: {
      int32_t level = static_cast<uint8_t *>(at(r))[c] - zero(r);
      if (outlier(r) == c) level += outlier_[static_cast<size_t>(guard_elements + r)].excess;
      return static_cast<double>(scale(r)) * level;
    }
    default:
      return static_cast<double>(static_cast<float *>(at(r))[c]);
  }
}

void Rows::clear() {
  memset(memory_, sentinel, static_cast<size_t>(size_));
  if (!scale_.empty()) memset(scale_.data(), sentinel, scale_.size() * sizeof(float));
  if (!zero_.empty()) memset(zero_.data(), sentinel, zero_.size() * sizeof(int32_t));
  if (!outlier_.empty()) memset(outlier_.data(), sentinel, outlier_.size() * sizeof(sie_outlier));
}

void Rows::poison(int64_t r) {
  if (dtype_ == SIE_U8) {
    scale_[static_cast<size_t>(guard_elements + r)] = NAN;
    return;
  }
  // Every third one infinite: NaN and infinity leak in different ways.
  for (int64_t c = 0; c < columns_; c++) set(r, c, c % 3 == 2 ? INFINITY : NAN);
}

bool Rows::guards_intact() const {
  auto guard = [this](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      if (memory_[i] != sentinel) return false;
    }
    return true;
  };
  if (!guard(0, front_)) return false;
  for (int64_t r = 0; r < rows_; r++) {
    int64_t end = front_ + (r * ld_ + columns_) * element_;
    if (!guard(end, r + 1 < rows_ ? front_ + (r + 1) * ld_ * element_ : size_)) return false;
  }
  if (rows_ == 0 && !guard(front_, size_)) return false;
  for (size_t i = 0; dtype_ == SIE_U8 && i < static_cast<size_t>(guard_elements); i++) {
    for (size_t at : {i, scale_.size() - 1 - i}) {
      if (sie_f32_bits(scale_[at]) != 0xffffffffu || zero_[at] != -1) return false;
      if (!outlier_.empty() && (outlier_[at].column != -1 || outlier_[at].excess != -1)) return false;
    }
  }
  return true;
}

std::vector<uint8_t> Rows::bytes(int64_t first, int64_t last) const {
  std::vector<uint8_t> all;
  auto append = [&all](const void *p, int64_t count) {
    const uint8_t *b = static_cast<const uint8_t *>(p);
    all.insert(all.end(), b, b + count);
  };
  for (int64_t r = first; r < last; r++) append(at(r), columns_ * element_);
  if (dtype_ == SIE_U8) {
    append(scale_.data() + guard_elements + first, (last - first) * 4);
    append(zero_.data() + guard_elements + first, (last - first) * 4);
    if (!outlier_.empty()) append(outlier_.data() + guard_elements + first, (last - first) * 8);
  }
  return all;
}

bool Rows::untouched(int64_t first, int64_t last) const {
  for (uint8_t b : bytes(first, last)) {
    if (b != sentinel) return false;
  }
  return true;
}

Weight::Weight(uint32_t compute, int64_t n, int64_t k, std::vector<float> values)
    : compute_(compute), n_(n), k_(k), values_(std::move(values)) {}

Weight::~Weight() {
  for (std::unique_ptr<Form> &form : forms_) free(form->memory);
}

const sie_packed *Weight::packed(const sie_ops *ops) {
  for (std::unique_ptr<Form> &form : forms_) {
    if (form->ops == ops) return &form->packed;
  }
  int64_t bytes = ops->packed_bytes(compute_, n_, k_);
  if (bytes < 0) return nullptr;
  std::unique_ptr<Form> form(new Form{ops, nullptr, {compute_, 0, n_, k_, nullptr}});
  if (posix_memalign(&form->memory, 64, static_cast<size_t>(bytes)) != 0) abort();
  memset(form->memory, 0, static_cast<size_t>(bytes));
  form->packed.data = form->memory;
  // In pieces that end nowhere near a panel's end.
  for (int64_t first = 0; first < n_;) {
    int64_t rows = std::min<int64_t>(first == 0 ? 19 : 150, n_ - first);
    ops->pack(compute_, n_, k_, first, rows, values_.data() + first * k_, k_, form->memory);
    first += rows;
  }
  forms_.push_back(std::move(form));
  return &forms_.back()->packed;
}

double Weight::norm(int64_t n) const {
  double sum = 0;
  for (int64_t i = 0; i < k_; i++) {
    double x = static_cast<double>(values_[static_cast<size_t>(n * k_ + i)]);
    sum += x * x;
  }
  return sqrt(sum);
}

Scratch::Scratch(const sie_ops *ops, const sie_op_bounds &bounds) : memory_(nullptr) {
  bytes_ = ops->scratch_bytes(&bounds);
  int64_t size = bytes_ + tail_guard;
  if (posix_memalign(reinterpret_cast<void **>(&memory_), 64, static_cast<size_t>(size > 0 ? size : 1)) != 0)
    abort();
  memset(memory_, sentinel, static_cast<size_t>(size));
}

sie_share Scratch::share(int32_t part, int32_t parts) { return {part, parts, memory_, bytes_, nullptr}; }

bool Scratch::intact() const {
  for (int64_t i = bytes_; i < bytes_ + tail_guard; i++) {
    if (memory_[i] != sentinel) return false;
  }
  return true;
}

}  // namespace harness
