// model_test.cc — what the cost model is asked of a model's operations: the products that the cases have,
// by the tile that the launcher takes.
#include "bench/model.h"

#include <math.h>
#include <string.h>

#include "cuda/cost_heads.h"
#include "cuda/gemm_sm90_code.h"
#include "cuda/gemm_sm90_variants.h"
#include "cuda/splade.h"
#include "tests/check.h"

using bench::Predicted;
using harness::ModelLinear;
using harness::ModelShape;
using sie_cuda::card_h200;

namespace {

double of(double x, double y) { return x / y - 1; }

bool same(double x, double y) { return of(x, y) < 1e-9 && of(x, y) > -1e-9; }

const bench::ModelDepth &model(const char *name) {
  for (const bench::ModelDepth &d : bench::model_depths()) {
    if (strcmp(d.shape.name, name) == 0) return d;
  }
  abort();
}

}  // namespace

// A case counts what it moves and multiplies itself.
TEST(model_products_are_those_of_the_cases) {
  int checked = 0;
  for (const bench::Point &point : bench::points()) {
    if (point.op != "linear" || point.load != "query") continue;
    for (ModelLinear part :
         {ModelLinear::qkv, ModelLinear::attention_out, ModelLinear::up, ModelLinear::down}) {
      if (point.part != bench::part_name(part)) continue;
      const auto c = point.named();
      const sie_cuda::GemmWork w =
          bench::linear_work(*point.model, harness::tokens_of(point.lengths), part, point.type == "fp8");
      const double flops = 2.0 * static_cast<double>(w.rows * w.n * w.k);
      CHECK(flops == c->flops() && gemm_bytes(w) == c->bytes(),
            "%s: %.0f operations and %.0f bytes, of the case %.0f and %.0f", point.name().c_str(), flops,
            gemm_bytes(w), c->flops(), c->bytes());
      CHECK(w.activated == (part == ModelLinear::up), "%s", point.name().c_str());
      checked++;
    }
  }
  CHECK(checked == 5 * 7, "%d products", checked);
}

// The tile is the launcher's, and no other that takes the call is slower than the model's fastest.
TEST(model_predicts_the_tile_that_runs) {
  const struct {
    int64_t rows, n, k;
    bool fp8, gated;
    int32_t y_bytes;
    const char *variant;
  } rows[] = {
      {16, 768, 768, false, false, 2, "skinny"},
      {64, 768, 768, true, false, 2, "skinny"},
      {65, 768, 768, false, false, 2, "pingpong-64x128"},
      {16, 3072, 768, true, false, 1, "pingpong-64x128"},           // y in blocks of 128
      {16384, 2304, 768, false, true, 2, "pingpong-128x128-pair"},  // a gate on 192 columns is none
      {16384, 2304, 768, false, false, 2, "pingpong-128x192-pair"},
      {16384, 1024, 4096, false, false, 2, "cooperative-128x256-pair"},
      {16384, 768, 3072, true, false, 2, "cooperative-128x256-pair"},  // one promotes, the other multiplies
      {16384, 4096, 1024, false, false, 2, "pingpong-128x192-pair"},
  };
  for (const auto &r : rows) {
    sie_cuda::GemmWork w;
    w.rows = r.rows;
    w.n = r.n;
    w.k = r.k;
    w.fp8 = r.fp8;
    w.gated = r.gated;
    w.y_bytes = r.y_bytes;
    const Predicted p = bench::predict_linear(card_h200, w);
    CHECK(strcmp(p.variant, r.variant) == 0, "%lld rows of %lld × %lld: %s, want %s",
          static_cast<long long>(r.rows), static_cast<long long>(r.n), static_cast<long long>(r.k), p.variant,
          r.variant);
  }
  for (const bench::Point &point : bench::points()) {
    Predicted p;
    if (bench::predicts_bytes(point) || !bench::predict(card_h200, point, 0, &p)) continue;
    CHECK(p.by.us >= p.by.floor_us && p.by.floor_us > 0, "%s: %.2f us, floor %.2f", point.name().c_str(),
          p.by.us, p.by.floor_us);
    const bool product = point.op == "linear" || point.op == "linear_norm";
    CHECK((*p.variant != 0) == product && (*p.fastest_variant != 0) == product, "%s: %s, %s",
          point.name().c_str(), p.variant, p.fastest_variant);
    if (!product) continue;
    CHECK(p.fastest.us <= p.by.us, "%s: %s is faster than %s", point.name().c_str(), p.variant,
          p.fastest_variant);
    if (p.fastest.us == p.by.us)
      CHECK(p.variant == p.fastest_variant, "%s: %s and %s", point.name().c_str(), p.variant,
            p.fastest_variant);
  }
}

// SPLADE's tile follows from the rows alone, and no other in ping-pong is more than a tenth faster by the model.
TEST(model_predicts_splade) {
  using sie_cuda::splade_sm90_tile;
  int checked = 0;
  for (const bool fp8 : {false, true}) {
    const int32_t large =
        fp8 ? sie_cuda::GEMM_SM90_PINGPONG_128X128_PAIR : sie_cuda::GEMM_SM90_PINGPONG_128X192_PAIR;
    CHECK(splade_sm90_tile(fp8, 1) == sie_cuda::GEMM_SM90_PINGPONG_64X128 &&
              splade_sm90_tile(fp8, 64) == sie_cuda::GEMM_SM90_PINGPONG_64X128 &&
              splade_sm90_tile(fp8, 65) == sie_cuda::GEMM_SM90_PINGPONG_128X128 &&
              splade_sm90_tile(fp8, 128) == sie_cuda::GEMM_SM90_PINGPONG_128X128 &&
              splade_sm90_tile(fp8, 129) == large && splade_sm90_tile(fp8, 1 << 20) == large,
          "fp8 %d", fp8);
    for (int64_t rows : {16, 50, 100, 128, 256, 512, 1024, 4096, 16384}) {
      sie_cuda::GemmWork w;
      w.rows = rows;
      w.n = 30522;
      w.k = 768;
      w.fp8 = fp8;
      w.y_bytes = 0;
      double own = 0, fastest = 1e9;
      const char *other = "";
      for (int32_t i = sie_cuda::GEMM_SM90_PINGPONG_64X128; i <= sie_cuda::GEMM_SM90_PINGPONG_128X192_PAIR;
           i++) {
        const sie_cuda::GemmSm90Variant &v = sie_cuda::gemm_sm90_variants[i];
        if (fp8 && v.columns == 192) continue;
        const double us =
            predict_splade(card_h200, w, {v.rows, v.columns, v.warpgroup_rows, v.cluster}, 1).us;
        if (i == splade_sm90_tile(fp8, rows)) own = us;
        if (us < fastest) fastest = us, other = v.name;
      }
      CHECK(own > 0 && own <= 1.1 * fastest, "%lld rows, fp8 %d: %.1f us, %.1f by %s",
            static_cast<long long>(rows), fp8, own, fastest, other);
    }
  }
  for (const bench::Point &point : bench::points()) {
    if (point.op != "splade" || point.load != "query") continue;
    const auto c = point.named();
    Predicted p;
    CHECK(bench::predict(card_h200, point, 0, &p), "%s", point.name().c_str());
    CHECK(same(p.by.floor_us, c->bytes() / card_h200.dram_bytes_s * 1e6),
          "%s: a floor of %.3f us, %.0f bytes", point.name().c_str(), p.by.floor_us, c->bytes());
    checked++;
  }
  CHECK(checked == 2, "%d points", checked);
}

TEST(model_predicts_every_operation) {
  for (const bench::Point &point : bench::points()) {
    Predicted p;
    CHECK(bench::predict(card_h200, point, 1, &p) && p.by.us > 0, "%s has no prediction",
          point.name().c_str());
  }
}

// A case counts what it moves and multiplies itself: on FMA units, but for pairs and attention.
TEST(model_heads_have_the_floors_of_their_cases) {
  const double fmas = card_h200.lanes * card_h200.multiprocessors * card_h200.ghz * 1e3,
               products = card_h200.multiply_adds * card_h200.products_share * card_h200.multiprocessors *
                          card_h200.ghz * 1e3;
  static const char *const heads[] = {
      "linear_f32", "lora", "lstm", "spans", "smve", "pairs", "attention_disentangled"};
  int checked[7] = {};
  for (const bench::Point &point : bench::points()) {
    for (int i = 0; i < 7; i++) {
      if (point.op != heads[i] || (point.load != "query" && point.load != "document")) continue;
      const auto c = point.named();
      Predicted p;
      CHECK(bench::predict(card_h200, point, 0, &p), "%s", point.name().c_str());
      const double bytes = c->bytes() / card_h200.dram_bytes_s * 1e6,
                   work = point.op == "lora" ? 0 : c->flops() / 2 / (i < 5 ? fmas : products);
      const double want = bytes > work ? bytes : work;
      // The case of pairs counts the products with its three logits.
      const bool near =
          point.op == "pairs" ? fabs(of(p.by.floor_us, want)) < 3 / 512.0 : same(p.by.floor_us, want);
      CHECK(near, "%s: a floor of %.4f us, of the case %.4f", point.name().c_str(), p.by.floor_us, want);
      checked[i]++;
    }
  }
  for (int i = 0; i < 7; i++) CHECK(checked[i] > 0, "no case of %s", heads[i]);
}

// The rows without an adapter only store zeros.
TEST(model_predicts_the_adapters_of_its_cases) {
  for (const bench::Point &point : bench::points()) {
    if (point.op != "lora" || point.load != "query") continue;
    const auto c = point.named();
    CHECK(c->flops() == 2.0 * 16 * 16 * 2 * point.model->width, "%s", point.name().c_str());
    Predicted p;
    bench::predict(card_h200, point, 0, &p);
    const int32_t width = point.model->width;
    CHECK(same(p.by.us, predict_lora(card_h200, {width, width, 16}, 16, 16).us), "%s", point.name().c_str());
    bench::Point thirds = point;
    thirds.lengths = {3, 4, 5, 6, 7, 8};
    bench::predict(card_h200, thirds, 0, &p);
    CHECK(same(p.by.us, predict_lora(card_h200, {width, width, 16}, 33, 20).us), "%s in thirds",
          point.name().c_str());
  }
}

// Each product of each model in batches, in part of one and of a query: of the tiles that take it none is
// faster by the model than the one that runs.
TEST(model_finds_no_faster_tile) {
  int checked = 0;
  for (const bench::ModelDepth &d : bench::model_depths()) {
    for (int64_t rows : {16384, 1024, 32}) {
      for (ModelLinear part :
           {ModelLinear::qkv, ModelLinear::attention_out, ModelLinear::up, ModelLinear::down}) {
        for (bool fp8 : {false, true}) {
          const sie_cuda::GemmWork w = bench::linear_work(d.shape, rows, part, fp8);
          const Predicted p = bench::predict_linear(card_h200, w);
          const char *fastest = "";
          double least = 0;
          for (const sie_cuda::GemmSm90Variant &v : sie_cuda::gemm_sm90_variants) {
            const bool skinny = v.columns == 0;
            const int64_t group = (w.gated ? 2 : 1) * (w.y_bytes == 1 ? 128 : 64);
            if (skinny ? rows > 64 || w.y_bytes == 1 : v.columns % group != 0) continue;
            if (fp8 && v.columns == 192) continue;
            const double us = skinny ? predict_skinny(card_h200, w).us
                                     : predict_gemm(card_h200, w, gemm_sm90_shape(v, w)).us;
            if (*fastest != 0 && us >= least) continue;
            fastest = v.name;
            least = us;
          }
          CHECK(p.by.us == least, "%s, %lld rows, %s%s: %s takes %.2f us, %s %.2f", d.shape.name,
                static_cast<long long>(rows), bench::part_name(part), fp8 ? " in fp8" : "", p.variant,
                p.by.us, fastest, least);
          checked++;
        }
      }
    }
  }
  CHECK(checked == 5 * 3 * 4 * 2, "%d products", checked);
}

// A cooperative tile shows its epilogue: where that takes long, ping-pong is faster.
TEST(model_tile_depends_on_the_epilogue) {
  sie_packed packed = {};
  packed.compute = SIE_COMPUTE_BF16;
  packed.n = 2048;
  packed.k = 3072;
  sie_linear_args plain = {};
  plain.rows.cap = 16384;
  plain.n = packed.n;
  plain.k = packed.k;
  plain.w = &packed;
  plain.y.dtype = SIE_BF16;
  sie_linear_args wide = plain, added = plain, activated = plain;
  wide.y.dtype = SIE_F32;
  added.addend.p = &packed;  // there is one; nobody reads it
  added.addend.dtype = SIE_F32;
  activated.act = SIE_ACT_GELU_ERF;
  const sie_stream on = {nullptr, 90, 132, 0, 0};
  const auto name = [&](const sie_linear_args &a) {
    return sie_cuda::gemm_sm90_variant(sie_cuda::gemm_sm90_pick(a, on))->name;
  };
  const char *const pingpong = "pingpong-128x192-pair";
  CHECK(strcmp(name(plain), "cooperative-128x256-pair") == 0, "plain: %s", name(plain));
  CHECK(strcmp(name(wide), pingpong) == 0, "y in f32: %s", name(wide));
  CHECK(strcmp(name(added), pingpong) == 0, "an addend: %s", name(added));
  CHECK(strcmp(name(activated), pingpong) == 0, "GELU: %s", name(activated));
}

// Five blocks of ModernBERT, two of which see all tokens, with fp8 where products have it.
TEST(model_is_the_sum_of_its_operations) {
  bench::ModelDepth d = model("ModernBERT-base");
  d.blocks = 5;
  const int64_t tokens = 3 * 500;
  const harness::Lengths lengths(3, 500);
  for (bool fp8 : {false, true}) {
    const auto linear = [&](ModelLinear part) {
      const bool is = fp8 && part != ModelLinear::attention_out;
      return bench::predict_linear(card_h200, bench::linear_work(d.shape, tokens, part, is)).by.us;
    };
    const auto rows = [](double bytes, double waves) { return predict_rows(card_h200, bytes, waves).us; };
    const auto attention = [&](int32_t window) {
      return predict_attention(card_h200, {12, 12, 64, window, false}, lengths.data(), 3).us;
    };
    const double row = 1500.0 * 768 * 2;
    const double block = linear(ModelLinear::qkv) + linear(ModelLinear::attention_out) +
                         linear(ModelLinear::up) + linear(ModelLinear::down) + 2 * rows(2 * row, 1) +
                         rows(2 * 1500.0 * 1536 * 2, 2);
    const double first_rows = rows(3.0 * 768 * 2, 3);
    const double want = 5 * block + 2 * attention(0) + 3 * attention(64) + rows(3 * row, 3) + first_rows;
    const double got = bench::predict_model_us(card_h200, d, 3, 500, fp8);
    CHECK(same(got, want), "%.3f us, the sum is %.3f", got, want);
  }
}

// Two blocks of BERT: products that a norm follows are one operation with it, but not where norms write e4m3.
TEST(model_joins_norms_to_products) {
  for (const char *name : {"MiniLM-L6", "bge-base", "e5-large"}) {
    bench::ModelDepth d = model(name);
    d.blocks = 2;
    for (int64_t seqs : {1, 128}) {
      const int32_t length = seqs == 1 ? 32 : 128;
      const int64_t tokens = seqs * length;
      const harness::Lengths lengths(static_cast<size_t>(seqs), length);
      const ModelShape &m = d.shape;
      const double row = static_cast<double>(tokens) * m.width * 2;
      for (bool fp8 : {false, true}) {
        const auto work = [&](ModelLinear part) {
          return bench::linear_work(m, tokens, part, fp8 && part != ModelLinear::attention_out);
        };
        const auto linear = [&](ModelLinear part) {
          return bench::predict_linear(card_h200, work(part)).by.us;
        };
        const auto with_norm = [&](ModelLinear part) {
          return fp8 ? linear(part) + predict_rows(card_h200, 2 * row, 1).us
                     : bench::predict_linear_norm(card_h200, work(part)).by.us;
        };
        const double block =
            linear(ModelLinear::qkv) + with_norm(ModelLinear::attention_out) + linear(ModelLinear::up) +
            with_norm(ModelLinear::down) +
            predict_attention(card_h200, {m.heads, m.kv_heads, m.head_dim}, lengths.data(), seqs).us;
        bench::ModelDepth none = d;
        none.blocks = 0;
        const double want = 2 * block + bench::predict_model_us(card_h200, none, seqs, length, fp8);
        const double got = bench::predict_model_us(card_h200, d, seqs, length, fp8);
        CHECK(same(got, want), "%s, fp8 %d, %lld tokens: %.3f us, the sum is %.3f", name, fp8,
              static_cast<long long>(tokens), got, want);
      }
    }
  }
}

// One kernel where the model finds it faster than two, and never a slower one.
TEST(model_predicts_norms_of_products) {
  const struct {
    int64_t rows, n, k;
    const char *variant;
  } cases[] = {{16384, 384, 384, "128x192-pair"},    {16384, 768, 768, "128x192-four"},
               {16384, 768, 3072, "128x192-four"},   {16512, 768, 3072, "two kernels"},
               {16384, 1024, 1024, "128x128-eight"}, {16384, 1024, 4096, "cooperative-128x256-four"},
               {32, 768, 768, "two kernels"},        {32, 1024, 4096, "two kernels"},
               {16384, 640, 640, "two kernels"}};
  for (const auto &c : cases) {
    sie_cuda::GemmWork w;
    w.rows = c.rows, w.n = c.n, w.k = c.k;
    w.residual_bytes = 2;
    const Predicted p = bench::predict_linear_norm(card_h200, w);
    CHECK(strcmp(p.variant, c.variant) == 0, "%lld rows of %lld by %lld: %s, want %s",
          static_cast<long long>(c.rows), static_cast<long long>(c.n), static_cast<long long>(c.k), p.variant,
          c.variant);
    const double two = bench::predict_linear(card_h200, w).by.us +
                       predict_rows(card_h200, 4.0 * static_cast<double>(c.rows * c.n), 1).us;
    CHECK(p.by.us <= two && same(p.fastest.us, p.by.us) && p.fastest_variant == p.variant,
          "%lld rows of %lld by %lld: %.1f us, two kernels %.1f", static_cast<long long>(c.rows),
          static_cast<long long>(c.n), static_cast<long long>(c.k), p.by.us, two);
  }
  const auto has = [](int64_t n, bool fp8) {
    sie_cuda::GemmWork w;
    w.rows = 1, w.n = n, w.k = n;
    w.fp8 = fp8;
    return bench::has_linear_norm(card_h200, w);
  };
  CHECK(has(384, false) && has(768, false) && has(1024, false), "a width without linear_norm");
  CHECK(!has(512, false) && !has(768, true), "a width or class that has linear_norm");
}

// A microsecond more between kernels makes a query so many microseconds longer as it has kernels.
TEST(model_counts_the_kernels_of_a_query) {
  sie_cuda::Card slower = card_h200;
  slower.gap_us += 1;
  for (const bench::ModelDepth &d : bench::model_depths()) {
    for (bool fp8 : {false, true}) {
      const double more =
          bench::predict_model_us(slower, d, 1, 32, fp8) - bench::predict_model_us(card_h200, d, 1, 32, fp8);
      CHECK(same(more, bench::model_launches(d)), "%s: %.3f us for %d kernels", d.shape.name, more,
            bench::model_launches(d));
    }
  }
  CHECK(bench::model_launches(model("bge-base")) == 86, "%d", bench::model_launches(model("bge-base")));
}

// A model that takes means, of short texts and of long ones.
TEST(model_pools_what_it_pools) {
  bench::ModelDepth d = model("e5-large");
  d.blocks = 0;
  for (int32_t length : {128, 129, 512}) {
    const harness::Lengths lengths(7, length);
    const double want = predict_rows(card_h200, 7.0 * length * 1024 * 6, 3).us +
                        predict_pool(card_h200, 1024, lengths.data(), 7).us;
    const double got = bench::predict_model_us(card_h200, d, 7, length, false);
    CHECK(same(got, want), "%d rows: %.3f us, the sum is %.3f", length, got, want);
  }
}

int main(int argc, char **argv) { return check::run_tests(argc, argv); }
