// head_batches.cc — packs batches for heads, and reads their outputs.
#include <string.h>

#include "heads.h"

namespace heads {

namespace {

using model::Batch;
using model::Random;
using model::Result;

int64_t bytes_of(const sie_out_item &item, int64_t columns) {
  int64_t dims = item.dims != 0 ? item.dims : columns;
  if (item.dtype == SIE_BINARY) return (dims + 7) / 8;
  return dims * (item.dtype == SIE_F32 ? 4 : (item.dtype == SIE_F16 ? 2 : 1));
}

bool is_kept(int number, int i) {
  Random random(static_cast<uint32_t>(7000 + 131 * number + i));
  return number % 6 != 5 && random.below(3) != 0;  // every sixth sequence keeps nothing
}

int64_t rows_of(const Output &output, const Batch &batch, int b) {
  const std::vector<int32_t> &cu = output.words ? batch.cu_words : output.labels ? batch.cu_labels : batch.cu;
  const std::vector<uint8_t> &marks = output.labels ? batch.choose : batch.keep;
  int64_t rows = 0;
  for (int32_t i = cu[static_cast<size_t>(b)]; i < cu[static_cast<size_t>(b) + 1]; i++) {
    rows += !output.kept || marks[static_cast<size_t>(i)] != 0 ? 1 : 0;
  }
  return rows;
}

void add_labels(const model::Shape &shape, int number, Batch *batch) {
  Random random(static_cast<uint32_t>(9000 + number));
  for (int i = 0; i < labels_of(number); i++) {
    batch->label_ids.push_back(random.below(shape.vocabulary));
    batch->choose.push_back(static_cast<uint8_t>(random.below(2)));
  }
  batch->cu_labels.push_back(static_cast<int32_t>(batch->label_ids.size()));
}

// Words of one, two or three tokens that need not ascend; none where there are no tokens.
void add_words(int number, int length, Batch *batch) {
  Random random(static_cast<uint32_t>(9500 + number));
  for (int i = 0; length > 0 && i < labels_of(number); i++) {
    const int first = random.below(length), last = first + random.below(3);
    batch->word_first.push_back(first);
    batch->word_last.push_back(last < length ? last : length - 1);
  }
  batch->cu_words.push_back(static_cast<int32_t>(batch->word_first.size()));
}

sie_out_item item_of(const Output &output, int number, bool mixed) {
  static const int32_t types[] = {SIE_F32, SIE_F16, SIE_I8, SIE_U8, SIE_BINARY};
  sie_out_item item = {SIE_F32, 0, 0, 0, 0};
  bool sparse = output.kind == Kind::sparse;
  if (sparse) item.dims = output.columns;
  if (!mixed) return item;
  item.dtype = sparse ? types[number % 2] : types[number % 5];
  item.normalize = sparse ? 0 : static_cast<uint32_t>(number / 2 % 2);
  if (number % 3 == 1) item.dims = sparse ? 7 : output.columns / 2 + 1;
  return item;
}

// Finds the bytes of sequence b in an output; also for VALUES, whose rows are in the batch's order.
void locate(const Head &head, const Batch &batch, int o, int b, int64_t *offset, int64_t *bytes) {
  const Output &output = head.outputs[o];
  if (output.kind == Kind::values) {
    int64_t before = b;
    for (int i = 0; !output.by_seq && i < b; i++) before += rows_of(output, batch, i) - 1;
    *offset = before * output.columns * 4;
    *bytes = (output.by_seq ? 1 : rows_of(output, batch, b)) * output.columns * 4;
    return;
  }
  const sie_out_item &item = batch.items[o][static_cast<size_t>(b)];
  *offset = item.offset;
  if (output.kind == Kind::sparse) {
    *bytes = 16 + int64_t{item.dims} * (item.dtype == SIE_F32 ? 8 : 6);
  } else {
    *bytes =
        (output.kind == Kind::token_rows ? rows_of(output, batch, b) : 1) * bytes_of(item, output.columns);
  }
}

}  // namespace

int length_of(int number) {
  static const int lengths[] = {1, 7, 31, 64, 0, 65, 130, 33, 2, 100, 32, 5};
  return number < 1000 ? lengths[number % 12] : 513 + number % 100;
}

int labels_of(int number) {
  static const int rows[] = {3, 0, 70, 1, 5, 64, 9, 0, 2, 17, 33, 6, 130};
  return number >= 500 && number % 3 != 0 ? 640 : rows[number % 13];
}

Batch batch_of(const Head &head, const model::Shape &shape, const std::vector<int> &numbers, bool mixed) {
  Batch batch;
  int64_t ends[4] = {};
  bool asks[n_queries] = {};
  int place[n_queries] = {}, queries = 0;
  for (int number : numbers) asks[number % n_queries] = true;
  batch.cu_labels.push_back(0);
  batch.cu_words.push_back(0);
  // Only the queries that a sequence uses.
  batch.cu_queries.push_back(0);
  for (int q = 0; q < n_queries; q++) {
    if (!asks[q]) continue;
    const int rows[n_queries] = {5, 0, 9};
    std::vector<float> values = reals(static_cast<uint32_t>(300 + q), rows[q] * reduced, 0.3f);
    batch.queries.insert(batch.queries.end(), values.begin(), values.end());
    batch.cu_queries.push_back(batch.cu_queries.back() + rows[q]);
    place[q] = queries++;
  }
  for (int number : numbers) {
    int length = length_of(number), b = static_cast<int>(batch.seqs());
    batch.add(shape, number, length);
    for (int i = 0; i < length; i++) batch.keep.push_back(is_kept(number, i) ? 1 : 0);
    add_labels(shape, number, &batch);
    add_words(number, length, &batch);
    batch.adapter.push_back(number % (n_adapters + 1) - 1);
    batch.partner.push_back(number % 4 == 3 ? -1 : place[number % n_queries]);
    batch.items[0].pop_back();  // the plain model's item
    for (int o = 0; o < 4; o++) {
      const Output &output = head.outputs[o];
      int64_t offset = 0, bytes = 0;
      if (output.kind == Kind::none) continue;
      if (output.kind != Kind::values) {
        batch.items[o].push_back(item_of(output, number, mixed));
        batch.items[o].back().offset = (ends[o] + 15) / 16 * 16;
      }
      locate(head, batch, o, b, &offset, &bytes);
      ends[o] = offset + bytes;
      batch.bytes[o] = ends[o];
    }
  }
  return batch;
}

std::vector<uint8_t> part(const Head &head, const Batch &batch, const Result &result, int o, int b) {
  int64_t offset, bytes;
  locate(head, batch, o, b, &offset, &bytes);
  const uint8_t *from = result.bytes[o].data() + offset;
  if (head.outputs[o].kind != Kind::sparse) return {from, from + bytes};
  const sie_out_item &item = batch.items[o][static_cast<size_t>(b)];
  int32_t columns;
  memcpy(&columns, from, sizeof columns);
  int64_t used = columns < item.dims ? columns : item.dims;
  std::vector<uint8_t> row(from, from + 16 + used * 4);
  const uint8_t *values = from + 16 + int64_t{item.dims} * 4;
  row.insert(row.end(), values, values + used * (item.dtype == SIE_F32 ? 4 : 2));
  return row;
}

std::vector<float> numbers_of(const Head &head, const Batch &batch, const Result &result, int o, int b) {
  std::vector<uint8_t> bytes = part(head, batch, result, o, b);
  bool sparse = head.outputs[o].kind == Kind::sparse;
  std::vector<float> numbers(sparse ? static_cast<size_t>(head.outputs[o].columns) : bytes.size() / 4);
  if (!sparse) {
    if (!bytes.empty()) memcpy(numbers.data(), bytes.data(), numbers.size() * 4);
    return numbers;
  }
  size_t used = (bytes.size() - 16) / 8;
  for (size_t i = 0; i < used; i++) {
    int32_t column;
    memcpy(&column, &bytes[16 + 4 * i], 4);
    memcpy(&numbers.at(static_cast<size_t>(column)), &bytes[16 + 4 * used + 4 * i], 4);
  }
  return numbers;
}

}  // namespace heads
