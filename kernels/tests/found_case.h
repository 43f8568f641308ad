// found_case.h — what the cases of spans and pairs share: words and labels of sequences,
// thresholds, the two passes, and the comparison of what is found.
//
// A case tests one pass. That of the second computes the first for itself, whole, in every call.
#ifndef SIE_KERNELS_TESTS_FOUND_CASE_H
#define SIE_KERNELS_TESTS_FOUND_CASE_H

#include "tests/model_cases.h"

namespace harness {

// The thresholds of a case's sequences: few scores above, more than found has room for, all scores,
// none, these in turn, or a number that many scores equal (operands are small integers).
enum Above { few, many, everything, nothing, in_turn, equal };

struct FoundShape {
  std::vector<int32_t> words, labels;  // rows of each sequence
  int64_t k;
  Above above;
  int32_t room;  // records of an item
  bool write, holes, bench;
  bool shared = false;  // sequences share labels, and some have none
};

// The words of twenty sequences, some of which have none.
inline std::vector<int32_t> short_sequences() {
  std::vector<int32_t> all;
  for (int32_t i = 0; i < 20; i++) all.push_back(i * 7 % 5);
  return all;
}

class FoundCase : public Case {
 public:
  int64_t words() const { return words_.tokens(); }
  void rows_of(int64_t u, int64_t *first, int64_t *last) const override;
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override;
  void expect() override;
  void verify(const char *backend) override;

 protected:
  // A score of a word: its code, its logits, and how far each may be off.
  struct Score {
    int32_t code;
    double y[3], tolerance;
  };
  // What both passes of an entry are given.
  struct Pass {
    int64_t first, count;  // sequences
    bool write;
    int32_t *found;  // of the first row
    int64_t ld;
    const sie_out_item *items;
    void *out;
  };

  // numbers: of a record, before its logits.
  FoundCase(const FoundShape &shape, Layout layout, int32_t logits, int32_t numbers, uint32_t seed);
  // After the operands are filled.
  void choose_thresholds();
  // The sequence whose labels sequence b has; −1: it has none.
  int64_t group_of(int64_t b) const;
  int64_t label_count(int64_t b) const { return group_of(b) < 0 ? 0 : labels_.length(group_of(b)); }
  // What an entry is told of the labels of `count` sequences from `first` on; returns the row from
  // which the places count. Valid until the next call.
  int64_t give_labels(int64_t first, int64_t count, const int32_t **cu, const int32_t **group);
  // A value of an operand; small integers where scores shall be equal to the threshold.
  float value(double scale);
  // Fills an operand; holes: with some NaN.
  void fill_operand(Rows *x, double scale);

  virtual sie_status pass(const sie_ops *ops, const sie_share *share, const Pass &pass) = 0;
  // All scores of word i of sequence b, by ascending code.
  virtual std::vector<Score> scores(int64_t b, int64_t i) const = 0;
  // The numbers of a record.
  virtual std::vector<int32_t> numbers(int64_t b, int64_t i, int32_t code) const = 0;

  FoundShape f_;
  Sequences words_, labels_;
  int32_t logits_, numbers_;
  Random random_;

 private:
  struct Record {
    std::vector<int32_t> numbers;
    const float *y;
  };
  const sie_out_item *items_of(int64_t first, int64_t count);
  float threshold_of(int64_t b);
  // Compares records with the scores that may be above the threshold; all: there was room for all
  // of them. Returns how many may be there: least and most.
  void compare(const std::string &what, const std::vector<Record> &got, bool all,
               const std::vector<std::pair<std::vector<int32_t>, Score>> &want, float threshold,
               int32_t count);
  void verify_word(const std::string &what, int64_t b, int64_t i);
  void verify_item(const std::string &what, int64_t b);

  std::vector<float> thresholds_;
  Array<int32_t> groups_;
  std::vector<std::vector<Score>> expected_;  // of each word
  std::unique_ptr<Rows> found_, items_;
  Array<sie_out_item> list_;
};

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_FOUND_CASE_H
