// golden_test.cc — NumPy's bits of output_rows.
#include "tests/harness.h"

using namespace harness;

namespace {

std::vector<uint8_t> read_file(const char *path) {
  std::vector<uint8_t> bytes;
  FILE *file = fopen(path, "rb");
  if (file == nullptr) return bytes;
  uint8_t block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) bytes.insert(bytes.end(), block, block + n);
  fclose(file);
  return bytes;
}

}  // namespace

TEST(output_rows_are_numpys_bits) {
  std::vector<uint8_t> file = read_file(SIE_TESTDATA "/output_rows.bin");
  size_t at = 0;
  auto take = [&](void *p, size_t bytes) {
    if (at + bytes > file.size()) return false;
    memcpy(p, file.data() + at, bytes);
    at += bytes;
    return true;
  };
  int32_t count = 0;
  CHECK(take(&count, sizeof count) && count >= 100, "%d cases in output_rows.bin", count);
  for (int32_t i = 0; i < count; i++) {
    int32_t head[3];
    if (!take(head, sizeof head))
      return check::failed(__FILE__, __LINE__, "output_rows.bin ends in case %d", i);
    std::vector<float> row(static_cast<size_t>(head[1]));
    std::vector<uint8_t> want(static_cast<size_t>(head[2])), got(want.size());
    bool whole = take(row.data(), row.size() * sizeof(float)) && take(want.data(), want.size());
    CHECK(whole, "output_rows.bin ends in case %d", i);
    for (const sie_ops *ops : backends()) {
      sie_out_item item = {head[0], 0, 0, 0, 0};
      int32_t one = 1;
      sie_output_rows_args a = {};
      a.seqs = {1, &one};
      a.c = head[1];
      a.x = {row.data(), head[1], SIE_F32, 0, nullptr, nullptr, nullptr};
      a.items = &item;
      a.out = got.data();
      sie_op_bounds bounds = {};
      bounds.kind = SIE_OP_OUTPUT_ROWS;
      bounds.c = head[1];
      Scratch scratch(ops, bounds);
      sie_share share = scratch.share(0, 1);
      CHECK(ops->output_rows(&a, &share) == SIE_OK, "%s has no output_rows", ops->name);
      for (size_t b = 0; b < want.size(); b++) {
        CHECK(got[b] == want[b], "%s: case %d (%s, %d columns), byte %zu is %d, NumPy's is %d", ops->name, i,
              dtype_text(head[0]), head[1], b, got[b], want[b]);
      }
    }
  }
}
