// rows.cc — guarded rows, sequences and packed weights.
#include <math.h>

#include <algorithm>

#include "common/dtype.h"
#include "harness.h"

namespace harness {

namespace {

constexpr uint8_t sentinel = 0xff;

// AddressSanitizer reports an access one byte past a block, so the block ends with the last
// element.
#if defined(SIE_ADDRESS_SANITIZER)
constexpr int64_t tail_guard = 0;
#else
constexpr int64_t tail_guard = 256;
#endif

int64_t element_bytes(int32_t dtype) {
  return dtype == SIE_F32 ? 4 : (dtype == SIE_BF16 || dtype == SIE_F16 ? 2 : 1);
}

void *allocate_host(size_t bytes) {
  void *p = nullptr;
  if (posix_memalign(&p, 64, bytes > 0 ? bytes : 1) != 0) abort();
  return p;
}

sie_status nothing_to_wait_for(const sie_stream *) { return SIE_OK; }

}  // namespace

Memory memory = {allocate_host, free, nothing_to_wait_for};

Rows::Rows(Random *random, Layout layout, int64_t rows, int64_t columns, int32_t dtype, Quantised quantised,
           int64_t extra_gap)
    : rows_(rows), columns_(columns), element_(element_bytes(dtype)), dtype_(dtype) {
  const int64_t line = 16 / element_;
  int64_t gap = 0, shift = 0;
  if (layout > aligned) gap = 1 + random->below(7), shift = random->below(9);
  if (layout == aligned) {
    gap = (line - (columns + extra_gap) % line) % line;
    gap += gap == 0 || random->below(2) == 0 ? line : 0;
    shift = line * random->below(4);
  }
  // Odd rows are always odd: a form's support for them must not depend on chance.
  if (layout > aligned && (columns + extra_gap + gap) % line == 0 && shift % line == 0) gap++;
  ld_ = columns + extra_gap + gap;
  front_ = 128 + shift * element_;
  int64_t content = rows > 0 ? ((rows - 1) * ld_ + columns) * element_ : 0;
  size_ = front_ + content + tail_guard;
  memory_ = static_cast<uint8_t *>(memory.allocate(static_cast<size_t>(size_)));
  if (dtype == SIE_U8 || dtype == SIE_F8E4M3) {
    scale_group_ = dtype == SIE_F8E4M3 ? quantised.group : -1;
    group_ = scale_group_ == 128 ? 128 : columns;
    scales_ = (columns + group_ - 1) / group_;
    scale_.resize(static_cast<size_t>((rows + 2 * guard_elements) * scales_));
  }
  if (dtype == SIE_U8) {
    zero_.resize(static_cast<size_t>(rows + 2 * guard_elements));
    if (quantised.outliers) outlier_.resize(static_cast<size_t>(rows + 2 * guard_elements));
  }
  clear();
}

Rows::~Rows() { memory.release(memory_); }

sie_tensor Rows::tensor(int64_t first) const {
  sie_tensor t = {};
  t.p = at(first);
  t.ld = ld_;
  t.dtype = dtype_;
  if (scales_ > 0) {
    t.scale_group = scale_group_;
    t.scale = const_cast<float *>(scale_.data()) + (guard_elements + first) * scales_;
  }
  if (!zero_.empty()) t.zero = const_cast<int32_t *>(zero_.data()) + guard_elements + first;
  if (!outlier_.empty()) t.outlier = const_cast<sie_outlier *>(outlier_.data()) + guard_elements + first;
  return t;
}

void *Rows::at(int64_t r) const { return memory_ + front_ + r * ld_ * element_; }

void Rows::set(int64_t r, int64_t c, float x) {
  if (dtype_ == SIE_BF16) {
    static_cast<uint16_t *>(at(r))[c] = sie_bf16_from_f32(x);
  } else if (dtype_ == SIE_F16) {
    static_cast<uint16_t *>(at(r))[c] = sie_f16_from_f32(x);
  } else {
    static_cast<float *>(at(r))[c] = x;
  }
}

double Rows::get(int64_t r, int64_t c) const {
  switch (dtype_) {
    case SIE_BF16:
      return static_cast<double>(sie_f32_from_bf16(static_cast<uint16_t *>(at(r))[c]));
    case SIE_F16:
      return static_cast<double>(sie_f32_from_f16(static_cast<uint16_t *>(at(r))[c]));
    case SIE_F8E4M3:
      return static_cast<double>(scale(r, c)) *
             static_cast<double>(sie_f32_from_f8e4m3(static_cast<uint8_t *>(at(r))[c]));
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
  for (int64_t g = 0; g < scales_; g++) scale_[static_cast<size_t>((guard_elements + r) * scales_ + g)] = NAN;
  if (dtype_ == SIE_F8E4M3) memset(at(r), 0x7f, static_cast<size_t>(columns_));
  if (scales_ > 0) return;
  // Every third one infinite: NaN and infinity leak in different ways.
  for (int64_t c = 0; c < columns_; c++) set(r, c, c % 3 == 2 ? INFINITY : NAN);
}

bool Rows::guards_intact() const {
  auto guard = [](const void *p, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      if (static_cast<const uint8_t *>(p)[i] != sentinel) return false;
    }
    return true;
  };
  if (!guard(memory_, 0, front_)) return false;
  for (int64_t r = 0; r < rows_; r++) {
    int64_t end = front_ + (r * ld_ + columns_) * element_;
    if (!guard(memory_, end, r + 1 < rows_ ? front_ + (r + 1) * ld_ * element_ : size_)) return false;
  }
  if (rows_ == 0 && !guard(memory_, front_, size_)) return false;
  auto both_ends = [&](const void *p, size_t elements, int64_t guarded, int64_t bytes) {
    int64_t end = static_cast<int64_t>(elements) * bytes, width = guarded * bytes;
    return elements == 0 || (guard(p, 0, width) && guard(p, end - width, end));
  };
  return both_ends(scale_.data(), scale_.size(), guard_elements * scales_, 4) &&
         both_ends(zero_.data(), zero_.size(), guard_elements, 4) &&
         both_ends(outlier_.data(), outlier_.size(), guard_elements, 8);
}

std::vector<uint8_t> Rows::bytes(int64_t first, int64_t last) const {
  std::vector<uint8_t> all;
  auto append = [&all](const void *p, int64_t count) {
    const uint8_t *b = static_cast<const uint8_t *>(p);
    all.insert(all.end(), b, b + count);
  };
  for (int64_t r = first; r < last; r++) append(at(r), columns_ * element_);
  append(scale_.data() + (guard_elements + first) * scales_, (last - first) * scales_ * 4);
  if (!zero_.empty()) append(zero_.data() + guard_elements + first, (last - first) * 4);
  if (!outlier_.empty()) append(outlier_.data() + guard_elements + first, (last - first) * 8);
  return all;
}

bool Rows::untouched(int64_t first, int64_t last) const {
  for (uint8_t b : bytes(first, last)) {
    if (b != sentinel) return false;
  }
  return true;
}

void Rows::copy(const Rows &from, int64_t first, int64_t last) {
  for (int64_t r = first; r < last; r++) memcpy(at(r), from.at(r), static_cast<size_t>(columns_ * element_));
}

Sequences::Sequences(const std::vector<int32_t> &lengths) : cu_(1, 0) {
  for (int32_t length : lengths) {
    cu_.push_back(cu_.back() + length);
    longest_ = std::max<int64_t>(longest_, length);
  }
}

int64_t Sequences::longest_of(int64_t b, int64_t count) const {
  int64_t most = 0;
  for (int64_t i = b; i < b + count; i++) most = std::max(most, length(i));
  return most;
}

const int32_t *Sequences::cu(int64_t b, int64_t count) {
  if (some_.size() != static_cast<size_t>(count + 1)) some_.resize(static_cast<size_t>(count + 1));
  for (int64_t i = 0; i <= count; i++) {
    write_changed(&some_[static_cast<size_t>(i)], static_cast<int32_t>(first(b + i) - first(b)));
  }
  return some_.data();
}

Kept::Kept(Random *random, const Sequences &sequences) {
  int32_t row = 2;
  index_.reserve(static_cast<size_t>(sequences.tokens()));  // no more: a sanitizer sees who reads on
  for (int64_t b = 0; b < sequences.count(); b++) {
    cu_whole_.push_back(row);
    for (int64_t i = 0; i < sequences.length(b); i++) {
      row += random->below(3);
      index_.push_back(row++);
    }
    row += random->below(3);
  }
  if (index_.empty()) index_.push_back(row);  // so that a pointer to the first is one to something
  cu_whole_.push_back(row);
}

Weight::Weight(uint32_t compute, int64_t n, int64_t k, std::vector<float> values)
    : compute_(compute), n_(n), k_(k), values_(std::move(values)) {
  for (int64_t row = 0; row < n; row++) {
    double sum = 0;
    for (int64_t i = row * k; i < (row + 1) * k; i++) {
      double x = static_cast<double>(values_[static_cast<size_t>(i)]);
      sum += x * x;
    }
    norms_.push_back(sqrt(sum));
  }
}

Weight::~Weight() {
  for (std::unique_ptr<Form> &form : forms_) memory.release(form->memory);
}

const sie_packed *Weight::packed(const sie_ops *ops) {
  for (std::unique_ptr<Form> &form : forms_) {
    if (form->ops == ops) return &form->packed;
  }
  int64_t bytes = ops->packed_bytes(compute_, n_, k_);
  if (bytes < 0) return nullptr;
  std::unique_ptr<Form> form(new Form{ops, nullptr, {compute_, 0, n_, k_, nullptr}});
  form->memory = memory.allocate(static_cast<size_t>(bytes));
  memset(form->memory, 0, static_cast<size_t>(bytes));
  form->packed.data = form->memory;
  // In pieces whose ends are far from a panel's end.
  for (int64_t first = 0; first < n_;) {
    int64_t rows = std::min<int64_t>(first == 0 ? 19 : 150, n_ - first);
    ops->pack(compute_, n_, k_, first, rows, values_.data() + first * k_, k_, form->memory);
    first += rows;
  }
  forms_.push_back(std::move(form));
  return &forms_.back()->packed;
}

}  // namespace harness
