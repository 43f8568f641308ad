// found_case.cc — thresholds, passes and comparisons of the cases of spans and pairs.
#include "tests/found_case.h"

#include <math.h>

#include <algorithm>

#include "common/found.h"

namespace harness {

namespace {

constexpr int64_t header_bytes = 16;

int64_t item_bytes(int32_t room, int32_t words) {
  return (header_bytes + int64_t{room} * words * 4 + 15) / 16 * 16;
}

}  // namespace

FoundCase::FoundCase(const FoundShape &shape, Layout layout, int32_t logits, int32_t numbers, uint32_t seed)
    : f_(shape),
      words_(shape.words),
      labels_(shape.labels),
      logits_(logits),
      numbers_(numbers),
      random_(seed) {
  units = words_.count();
  bench = f_.bench;
  if (names_only) return;
  if (f_.write) {
    items_.reset(new Rows(&random_, aligned, units, item_bytes(f_.room, numbers_ + logits_), SIE_I8));
    outputs = {items_.get()};
  } else {
    found_.reset(new Rows(&random_, layout, words_.tokens(), SIE_FOUND_WORDS, SIE_F32));
    outputs = {found_.get()};
  }
}

void FoundCase::rows_of(int64_t u, int64_t *first, int64_t *last) const {
  *first = f_.write ? u : words_.first(u);
  *last = f_.write ? u + 1 : words_.first(u + 1);
}

int64_t FoundCase::group_of(int64_t b) const {
  if (!f_.shared) return b;
  return b % 4 == 3 ? -1 : units - 1 - b / 2;
}

int64_t FoundCase::give_labels(int64_t first, int64_t count, const int32_t **cu, const int32_t **group) {
  if (!f_.shared) {
    *cu = labels_.cu(first, count);
    *group = nullptr;
    return labels_.first(first);
  }
  groups_.clear();
  for (int64_t b = first; b < first + count; b++) groups_.push_back(static_cast<int32_t>(group_of(b)));
  *cu = labels_.cu(0, units);
  *group = groups_.data();
  return 0;
}

float FoundCase::value(double scale) {
  if (f_.above == equal) return static_cast<float>(random_.below(5) - 2);
  return static_cast<float>(static_cast<double>(random_.real()) * scale);
}

void FoundCase::fill_operand(Rows *x, double scale) {
  for (int64_t r = 0; r < x->rows(); r++) {
    for (int64_t c = 0; c < x->columns(); c++) x->set(r, c, value(scale));
    if (f_.holes && random_.below(4) == 0) {
      x->set(r, random_.below(static_cast<int32_t>(x->columns())), NAN);
    }
  }
}

// Of a sample of the sequence's scores, the middle between two neighbours.
float FoundCase::threshold_of(int64_t b) {
  static const Above turns[] = {few, many, nothing, everything};
  const Above above = f_.above == in_turn ? turns[b % 4] : f_.above;
  if (above == everything) return -INFINITY;
  if (above == nothing) return INFINITY;
  if (above == equal) return 2;
  if (f_.bench) return 1;
  std::vector<double> sample;
  for (int64_t i = 0; i < words_.length(b) && i < 3; i++) {
    for (const Score &score : scores(b, i)) {
      for (int32_t o = 0; o < logits_; o++) {
        if (!isnan(score.y[o])) sample.push_back(score.y[o]);
      }
    }
  }
  if (sample.empty()) return 0;
  std::sort(sample.begin(), sample.end());
  const size_t at = sample.size() * (above == few ? 95 : 20) / 100;
  const double next = at + 1 < sample.size() ? sample[at + 1] : sample[at] + 1;
  return static_cast<float>((sample[at] + next) / 2);
}

void FoundCase::choose_thresholds() {
  for (int64_t b = 0; b < units; b++) thresholds_.push_back(threshold_of(b));
}

const sie_out_item *FoundCase::items_of(int64_t first, int64_t count) {
  if (list_.size() != static_cast<size_t>(count)) list_.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i++) {
    int64_t offset = 0;
    if (f_.write) {
      offset = static_cast<uint8_t *>(items_->at(first + i)) - static_cast<uint8_t *>(items_->at(0));
    }
    const sie_out_item item = {SIE_F32, f_.room, 0, thresholds_[static_cast<size_t>(first + i)], offset};
    write_changed(&list_[static_cast<size_t>(i)], item);
  }
  return list_.data();
}

sie_status FoundCase::call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) {
  Pass of = {first, count, false, nullptr, 0, items_of(first, count), nullptr};
  if (!f_.write) {
    const sie_tensor rows = found_->tensor(words_.first(first));
    of.found = static_cast<int32_t *>(rows.p);
    of.ld = rows.ld;
    return pass(ops, share, of);
  }
  Array<int32_t> found(static_cast<size_t>((words_.first(first + count) - words_.first(first)) * 33 + 1));
  of.found = found.data();
  of.ld = 33;
  Scratch scratch(ops, bounds());
  const sie_share whole = scratch.share(0, 1);
  sie_status status = pass(ops, &whole, of);
  if (status == SIE_OK) status = memory.finish(share->on);
  if (status != SIE_OK) return status;
  of.write = true;
  of.out = items_->at(0);
  status = pass(ops, share, of);
  return status == SIE_OK ? memory.finish(share->on) : status;
}

void FoundCase::expect() {
  for (int64_t b = 0; b < units; b++) {
    for (int64_t i = 0; i < words_.length(b); i++) expected_.push_back(scores(b, i));
  }
}

void FoundCase::compare(const std::string &what, const std::vector<Record> &got, bool all,
                        const std::vector<std::pair<std::vector<int32_t>, Score>> &want, float threshold,
                        int32_t count) {
  const double limit = static_cast<double>(threshold);
  size_t at = 0;
  int32_t least = 0, most = 0;
  for (const auto &[numbers, score] : want) {
    bool surely = false, maybe = false;
    for (int32_t o = 0; o < logits_; o++) {
      // An infinite limit has no doubtful scores.
      surely = surely || score.y[o] > limit + score.tolerance;
      maybe = maybe || score.y[o] > limit - score.tolerance;
    }
    if (score.tolerance == 0) maybe = surely;
    least += surely ? 1 : 0;
    most += maybe ? 1 : 0;
    const bool here = at < got.size() && got[at].numbers == numbers;
    if (here) {
      CHECK(maybe, "%s: record %zu is not above the threshold", what.c_str(), at);
      for (int32_t o = 0; o < logits_; o++) {
        const double y = static_cast<double>(got[at].y[o]);
        const bool close = fabs(y - score.y[o]) <= score.tolerance || (isnan(y) && isnan(score.y[o]));
        CHECK(close, "%s: record %zu logit %d is %.9g, %.9g expected, ±%.2g", what.c_str(), at, o, y,
              score.y[o], score.tolerance);
      }
      at++;
    } else {
      const bool missing = surely && (all || at < got.size());
      CHECK(!missing, "%s: code %d is missing before record %zu: %.9g is above %.9g", what.c_str(),
            score.code, at, score.y[0], limit);
    }
  }
  CHECK(at == got.size(), "%s: record %zu of %zu is none of the scores, or out of order", what.c_str(), at,
        got.size());
  CHECK(count >= least && count <= most, "%s: %d counted, %d to %d expected", what.c_str(), count, least,
        most);
}

void FoundCase::verify_word(const std::string &what, int64_t b, int64_t i) {
  const int64_t r = words_.first(b) + i;
  const int32_t *row = static_cast<const int32_t *>(found_->at(r)), room = sie_found_room(logits_);
  const int32_t kept = std::min(row[0], room);
  std::vector<Record> got;
  std::vector<std::pair<std::vector<int32_t>, Score>> want;
  for (int32_t e = 0; e < kept; e++) {
    const int32_t *entry = sie_found_entry(row, logits_, e);
    got.push_back({{entry[0]}, reinterpret_cast<const float *>(entry + 1)});
  }
  for (const Score &score : expected_[static_cast<size_t>(r)]) want.push_back({{score.code}, score});
  compare(text("%s word %lld", what.c_str(), static_cast<long long>(r)), got, row[0] <= room, want,
          thresholds_[static_cast<size_t>(b)], row[0]);
  for (int32_t w = 1 + kept * (1 + logits_); w < SIE_FOUND_WORDS && row[0] <= room; w++) {
    CHECK(row[w] == -1, "%s: wrote behind what is found of word %lld", what.c_str(),
          static_cast<long long>(r));
  }
}

void FoundCase::verify_item(const std::string &what, int64_t b) {
  const int32_t *header = static_cast<const int32_t *>(items_->at(b)), words = numbers_ + logits_;
  const int32_t kept = std::min(header[0], f_.room);
  CHECK(header[1] == 0 && header[2] == 0 && header[3] == 0, "%s: item %lld: words behind the count",
        what.c_str(), static_cast<long long>(b));
  std::vector<Record> got;
  std::vector<std::pair<std::vector<int32_t>, Score>> want;
  for (int32_t e = 0; e < kept; e++) {
    const int32_t *record = header + 4 + e * words;
    got.push_back({std::vector<int32_t>(record, record + numbers_),
                   reinterpret_cast<const float *>(record + numbers_)});
  }
  for (int64_t i = 0; i < words_.length(b); i++) {
    for (const Score &score : expected_[static_cast<size_t>(words_.first(b) + i)]) {
      want.push_back({numbers(b, i, score.code), score});
    }
  }
  compare(text("%s item %lld", what.c_str(), static_cast<long long>(b)), got, header[0] <= f_.room, want,
          thresholds_[static_cast<size_t>(b)], header[0]);
  for (int32_t w = kept * words; w < f_.room * words; w++) {
    CHECK(header[4 + w] == -1, "%s: item %lld: wrote a record that it does not have", what.c_str(),
          static_cast<long long>(b));
  }
}

void FoundCase::verify(const char *backend) {
  const std::string what = text("%s %s %s", backend, form.c_str(), shape.c_str());
  for (int64_t b = 0; b < units; b++) {
    if (f_.write) verify_item(what, b);
    for (int64_t i = 0; i < words_.length(b) && !f_.write; i++) verify_word(what, b, i);
  }
}

}  // namespace harness
