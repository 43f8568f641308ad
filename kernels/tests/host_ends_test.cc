// host_ends_test.cc — on every CPU table: operands that end where their memory does, so that who reads
// on ends the program.
#include "at_end.h"

using namespace at_end;

TEST(host_embeds_the_last_token_of_its_memory) {
  constexpr int64_t c = 8;
  const int32_t rows = 3, one = 1, cu[] = {0, rows};
  AtEnd<int32_t> ids(rows, 1);
  AtEnd<float> word(2 * c, 1.0f);
  for (const sie_ops *ops : tables()) {
    float y[rows * c];
    sie_embed_layernorm_args a = {};
    a.tokens = {rows, &rows}, a.seqs = {1, &one};
    a.ids = ids.data(), a.cu_seqlens = cu;
    a.word = of(word.data(), c, SIE_F32), a.y = of(y, c, SIE_F32);
    a.norm = SIE_NORM_NONE;
    a.c = c;
    const sie_share share = whole();
    CHECK(ops->embed_layernorm(&a, &share) == SIE_OK, "%s: an embedding is refused", ops->name);
    for (float v : y) CHECK(v == 1, "%s: y = %g", ops->name, static_cast<double>(v));
  }
}

// Rows in numbers that fill the vectors of lanes that a table has, and one more.
TEST(host_multiplies_the_last_row_of_its_memory) {
  constexpr int64_t c = 3;
  for (const sie_ops *ops : tables()) {
    for (int32_t rows : {1, 8, 9, 16, 17}) {
      AtEnd<float> x(rows * c, 2.0f), y(rows);
      const sie_tensor t = of(x.data(), c, SIE_F32);
      const sie_dots_args a = {{rows, &rows}, c, t, t, of(y.data(), 1, SIE_F32)};
      const sie_share share = whole();
      CHECK(ops->dots(&a, &share) == SIE_OK, "%s: dots are refused", ops->name);
      for (int32_t r = 0; r < rows; r++)
        CHECK(y.data()[r] == 4 * c, "%s: y[%d] = %g", ops->name, r, static_cast<double>(y.data()[r]));
    }
  }
}

// A sequence without rows has none of its neighbours'.
TEST(host_marks_the_last_row_of_its_memory) {
  constexpr int64_t c = 5;
  const int32_t two = 2, rows = 3;
  for (const sie_ops *ops : tables()) {
    for (int32_t which : {0, +SIE_POOL_CLS, +SIE_POOL_LAST}) {
      for (int32_t first : {0, 1, rows}) {
        AtEnd<float> x(rows * c, 1.0f);
        const int32_t cu[] = {0, first, rows};
        int32_t flags[] = {0, 0};
        sie_mark_nonfinite_args a = {};
        a.rows = {rows, &rows}, a.seqs = {2, &two};
        a.cu_seqlens = cu;
        a.which = which;
        a.c = c;
        a.x = of(x.data(), c, SIE_F32);
        a.flags = flags;
        const sie_share share = whole();
        CHECK(ops->mark_nonfinite(&a, &share) == SIE_OK && flags[0] == 0 && flags[1] == 0,
              "%s: flags %d %d of finite rows", ops->name, flags[0], flags[1]);
        for (int64_t i = 0; i < rows * c; i++) x.data()[i] = __builtin_inff();
        CHECK(ops->mark_nonfinite(&a, &share) == SIE_OK, "%s: rows are refused", ops->name);
        CHECK(flags[0] == (first > 0) && flags[1] == (first < rows), "%s: flags %d %d of infinite rows",
              ops->name, flags[0], flags[1]);
      }
    }
  }
}

// One chain of FMAs over the row's own columns: of products too small for f32 it comes to −0, which
// another zero would make +0.
TEST(host_dots_of_tiny_numbers) {
  const int32_t one = 1;
  for (const sie_ops *ops : tables()) {
    float x[] = {1e-30f, 0}, z[] = {-1e-30f, 0}, y = 7;
    const sie_dots_args a = {{1, &one}, 1, of(x, 1, SIE_F32), of(z, 1, SIE_F32), of(&y, 1, SIE_F32)};
    const sie_share share = whole();
    CHECK(ops->dots(&a, &share) == SIE_OK && y == 0 && signbit(y), "%s: y = %g", ops->name,
          static_cast<double>(y));
  }
}

// Blocks of rows, panels of ranks, and an inner sum that is narrower than its panel.
TEST(host_adapters_end_with_their_memory) {
  const struct {
    int64_t k, n;
    int32_t rank;
  } configs[] = {{1, 16, 3}, {2, 17, 17}, {9, 16, 1}};
  for (const auto &[k, n, rank] : configs) {
    const int32_t rows = 512, two = 2, cu[] = {0, 256, rows};
    AtEnd<float> x(rows * k), a(rank * k), b(n * rank);
    AtEnd<int32_t> adapter(2, 0);
    for (int64_t i = 0; i < rows * k; i++) x.data()[i] = small(i);
    for (int64_t i = 0; i < rank * k; i++) a.data()[i] = small(i + 1);
    for (int64_t i = 0; i < n * rank; i++) b.data()[i] = small(i + 2);
    const sie_lora_pair pair = {a.data(), b.data(), rank, SIE_F32};
    std::vector<float> want;
    for (const sie_ops *ops : tables()) {
      std::vector<float> y(static_cast<size_t>(rows * n), -1e9f);
      sie_lora_args args = {};
      args.rows = {rows, &rows}, args.seqs = {2, &two};
      args.cu_seqlens = cu, args.adapter = adapter.data();
      args.n_adapters = 1, args.max_rank = rank, args.adapters = &pair;
      args.n = n, args.k = k;
      args.x = of(x.data(), k, SIE_F32), args.y = of(y.data(), n, SIE_F32);
      sie_op_bounds bounds = {};
      bounds.kind = SIE_OP_LORA;
      bounds.rows = rows, bounds.seqs = 2, bounds.n = n, bounds.k = k, bounds.max_rank = rank;
      Scratch scratch(ops, bounds);
      const sie_share share = scratch.share(0, 1);
      CHECK(ops->lora(&args, &share) == SIE_OK && scratch.intact(), "%s: rank %d", ops->name, rank);
      if (want.empty()) want = y;
      close_to(ops->name, y, want, 0);
    }
  }
}

TEST(host_maxsim_ends_with_its_queries) {
  constexpr int64_t c = 9;
  const int32_t rows = 7, one = 1, cu[] = {0, rows}, partner = 0;
  for (int32_t count : {1, 3, 8, 17}) {
    const int32_t cu_queries[] = {0, count};
    AtEnd<float> x(rows * c), queries(count * c);
    for (int64_t i = 0; i < rows * c; i++) x.data()[i] = small(i);
    for (int64_t i = 0; i < count * c; i++) queries.data()[i] = small(i + 3);
    std::vector<float> want;
    for (const sie_ops *ops : tables()) {
      std::vector<float> y(1, -1.0f);
      sie_maxsim_args a = {};
      a.rows = {rows, &rows}, a.seqs = {1, &one};
      a.cu_seqlens = cu, a.cu_queries = cu_queries, a.partner = &partner;
      a.c = c;
      a.x = of(x.data(), c, SIE_F32), a.queries = queries.data(), a.y = of(y.data(), 1, SIE_F32);
      sie_op_bounds bounds = {};
      bounds.kind = SIE_OP_MAXSIM;
      bounds.rows = bounds.max_len = rows, bounds.seqs = 1, bounds.c = c, bounds.query_rows = count;
      Scratch scratch(ops, bounds);
      const sie_share share = scratch.share(0, 1);
      CHECK(ops->maxsim(&a, &share) == SIE_OK && scratch.intact(), "%s: maxsim", ops->name);
      if (want.empty()) want = y;
      close_to(ops->name, y, want, 0);
    }
  }
}

// Sums of 65 sequences, which are more than a group, and the last that ends first.
TEST(host_recurrences_of_many_sequences) {
  for (int64_t h : {1, 2, 9}) {
    const int32_t seqs = 130;
    std::vector<int32_t> cu = {0};
    for (int32_t b = 0; b < seqs; b++) cu.push_back(cu.back() + 1 + b % 3);
    const int32_t rows = cu.back();
    Random random(95);
    std::vector<float> values(static_cast<size_t>(4 * h * h));
    for (float &v : values) v = random.real();
    Weight weight(SIE_COMPUTE_F32, 4 * h, h, values);
    AtEnd<float> gates(rows * 4 * h);
    for (int64_t i = 0; i < rows * 4 * h; i++) gates.data()[i] = random.real();
    std::vector<float> want;
    for (const sie_ops *ops : tables()) {
      std::vector<float> y(static_cast<size_t>(rows * h), -9.0f);
      sie_lstm_args a = {};
      a.rows = {rows, &rows}, a.seqs = {seqs, &seqs};
      a.cu_seqlens = cu.data();
      a.h = h;
      a.w = weight.packed(ops);
      a.gates = of(gates.data(), 4 * h, SIE_F32), a.y = of(y.data(), h, SIE_F32);
      sie_op_bounds bounds = {};
      bounds.kind = SIE_OP_LSTM;
      bounds.rows = rows, bounds.seqs = seqs, bounds.max_len = 3, bounds.c = 4 * h, bounds.k = h;
      Scratch scratch(ops, bounds);
      const sie_share share = scratch.share(0, 1);
      CHECK(ops->lstm(&a, &share) == SIE_OK && scratch.intact(), "%s: H %lld", ops->name,
            static_cast<long long>(h));
      if (want.empty()) want = y;
      close_to(ops->name, y, want, 1e-5);
    }
  }
}

// More rows than a slab; the last of the sequences has none.
TEST(host_splade_ends_with_its_sequences) {
  constexpr int64_t k = 3, n = 70;
  const int32_t rows = 576 + 3, seqs = 5;
  AtEnd<int32_t> cu(seqs + 1);
  const int32_t starts[] = {0, 2, 288, 300, rows, rows};
  memcpy(cu.data(), starts, sizeof starts);
  AtEnd<float> x(rows * k);
  for (int64_t i = 0; i < rows * k; i++) x.data()[i] = small(i) - static_cast<float>(i / k % 29);
  std::vector<float> values(n * k);
  for (int64_t i = 0; i < n * k; i++) values[static_cast<size_t>(i)] = small(i + 5);
  Weight weight(SIE_COMPUTE_F32, n, k, values);
  for (int32_t count : {2, 3, 5}) {
    std::vector<float> want;
    const int32_t tokens = starts[count];
    AtEnd<int32_t> own(count + 1);
    memcpy(own.data(), starts, static_cast<size_t>(count + 1) * sizeof(int32_t));
    for (const sie_ops *ops : tables()) {
      std::vector<float> y(static_cast<size_t>(count * n), -9.0f);
      sie_splade_args a = {};
      a.tokens = {tokens, &tokens}, a.seqs = {count, &count};
      a.cu_seqlens = own.data();
      a.n = n, a.k = k;
      a.x = of(x.data() + (rows - tokens) * k, k, SIE_F32);
      a.w = weight.packed(ops);
      a.y = of(y.data(), n, SIE_F32);
      sie_op_bounds bounds = {};
      bounds.kind = SIE_OP_SPLADE, bounds.compute = SIE_COMPUTE_F32;
      bounds.rows = bounds.max_len = tokens, bounds.seqs = count, bounds.n = n, bounds.k = k;
      Scratch scratch(ops, bounds);
      const sie_share share = scratch.share(0, 1);
      CHECK(ops->splade(&a, &share) == SIE_OK && scratch.intact(), "%s: splade", ops->name);
      if (want.empty()) want = y;
      close_to(ops->name, y, want, 0);
    }
  }
}

// Scores whose powers would overflow; what lies behind the rows is not weighed.
TEST(host_pools_by_the_rows_own_scores) {
  constexpr int64_t c = 9;
  for (int32_t rows : {2, 8, 9, 16}) {
    const int32_t one = 1, cu[] = {0, rows};
    AtEnd<float> x(rows * c);
    std::vector<float> w(c), want;
    for (int64_t i = 0; i < rows * c; i++) x.data()[i] = small(i);
    for (int64_t i = 0; i < c; i++) w[static_cast<size_t>(i)] = 16 + small(i);
    for (const sie_ops *ops : tables()) {
      std::vector<float> y(c + 1, 16.0f);
      sie_pool_args a = {};
      a.seqs = {1, &one};
      a.cu_seqlens = cu;
      a.mode = SIE_POOL_ATTENTION;
      a.c = c;
      a.x = of(x.data(), c, SIE_F32), a.y = of(y.data(), c, SIE_F32);
      a.w = w.data();
      sie_op_bounds bounds = {};
      bounds.kind = SIE_OP_POOL;
      bounds.rows = bounds.max_len = rows, bounds.seqs = 1, bounds.c = c;
      Scratch scratch(ops, bounds);
      const sie_share share = scratch.share(0, 1);
      CHECK(ops->pool(&a, &share) == SIE_OK && scratch.intact(), "%s: pool", ops->name);
      if (want.empty()) want = y;
      close_to(ops->name, y, want, 1e-5);
      a.mode = SIE_POOL_RMS;
      CHECK(ops->pool(&a, &share) == SIE_OK && y[c] == 16, "%s: a root behind the columns: %g", ops->name,
            static_cast<double>(y[c]));
    }
  }
}

// Sizes in which a part of the scratch is smaller than what lies before it.
TEST(host_muvera_of_odd_sizes) {
  const struct {
    int64_t c;
    int32_t repetitions, bits, projected, final_dims, rows;
    bool centred;
  } configs[] = {{9, 2, 1, 1, 0, 40, true},  {9, 2, 1, 2, 0, 32, true},   {5, 2, 2, 12, 0, 20, false},
                 {45, 3, 0, 0, 9, 2, false}, {4, 1, 6, 0, 9, 1, false},   {4, 2, 2, 0, 300, 3, false},
                 {8, 2, 6, 0, 0, 16, false}, {3, 2, 7, 0, 0, 17, false},  {16, 1, 9, 0, 0, 32, true},
                 {8, 3, 2, 3, 0, 32, true},  {17, 2, 1, 1, 0, 32, false}, {8, 2, 10, 0, 9, 1, false}};
  for (const auto &[c, repetitions, bits, projected, final_dims, rows, centred] : configs) {
    for (bool query : {false, true}) {
      const int32_t one = 1, cu[] = {0, rows};
      const int64_t p = projected != 0 ? projected : c, block = (int64_t{1} << bits) * p,
                    columns = final_dims != 0 ? final_dims : repetitions * block;
      AtEnd<float> x(rows * c), simhash(repetitions * c * bits + 1);
      AtEnd<int32_t> ams(repetitions * c), sketch(repetitions * block);
      for (int64_t i = 0; i < rows * c; i++) x.data()[i] = small(i + i / c * 3);
      for (int64_t i = 0; i < repetitions * c * bits; i++) simhash.data()[i] = small(i + 4) + 0.125f;
      for (int64_t i = 0; i < repetitions * c; i++)
        ams.data()[i] = static_cast<int32_t>(i % 3 == 0 ? ~(i * 5 % p) : i * 5 % p);
      for (int64_t i = 0; final_dims != 0 && i < repetitions * block; i++)
        sketch.data()[i] = static_cast<int32_t>(i % 5 == 0 ? ~(i * 7 % final_dims) : i * 7 % final_dims);
      std::vector<float> want;
      for (const sie_ops *ops : tables()) {
        std::vector<float> y(static_cast<size_t>(columns), -9.0f);
        const sie_out_item item = {SIE_F32, 0, 0, 0, 0};
        sie_muvera_args a = {};
        a.tokens = {rows, &rows}, a.seqs = {1, &one};
        a.cu_seqlens = cu;
        a.c = c;
        a.x = of(x.data(), c, SIE_F32);
        a.repetitions = repetitions, a.simhash_bits = bits, a.projected = projected,
        a.final_dims = final_dims;
        a.is_query = query ? 1 : 0, a.fill_empty = query ? 0 : 1, a.center_tokens = centred ? 1 : 0;
        a.simhash = simhash.data();
        a.ams = projected != 0 ? ams.data() : nullptr;
        a.sketch = final_dims != 0 ? sketch.data() : nullptr;
        a.items = &item, a.out = y.data();
        sie_op_bounds bounds = {};
        bounds.kind = SIE_OP_MUVERA;
        bounds.rows = bounds.max_len = rows, bounds.seqs = 1, bounds.c = c;
        bounds.projected = static_cast<int32_t>(p), bounds.repetitions = repetitions;
        bounds.simhash_bits = bits, bounds.final_dims = columns;
        Scratch scratch(ops, bounds);
        const sie_share share = scratch.share(0, 1);
        CHECK(ops->muvera(&a, &share) == SIE_OK && scratch.intact(), "%s: C %lld", ops->name,
              static_cast<long long>(c));
        if (want.empty()) want = y;
        close_to(ops->name, y, want, 1e-5);
      }
    }
  }
}
