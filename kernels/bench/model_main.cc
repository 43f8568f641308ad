// model_main.cc — prints what kernels/cuda/cost.h predicts: tokens a second of whole models, and each
// kernel of the bench's list. bench/results/gpu-model.md is its output, which a test compares.
#include <stdio.h>

#include <vector>

#include "bench/model.h"
#include "cuda/gemm_sm90_code.h"

namespace {

using sie_cuda::Card;

constexpr int64_t kBatch = 16384;  // tokens
constexpr int32_t kLengths[] = {50, 128, 512, 8192};

void print_models(const Card &card) {
  printf("\n## Models on %s\n\n| model | class |", card.name);
  for (int32_t length : kLengths) printf(" S = %d |", length);
  printf(" one query of 32 tokens |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n");
  for (const bench::ModelDepth &d : bench::model_depths()) {
    for (int fp8 = 0; fp8 < 2; fp8++) {
      printf("| %s | %s |", d.shape.name, fp8 ? "fp8" : "bf16");
      for (int32_t length : kLengths) {
        const int64_t seqs = kBatch / length;
        printf(" %.2f M |",
               static_cast<double>(seqs * length) / predict_model_us(card, d, seqs, length, fp8));
      }
      printf(" %.2f ms |\n", predict_model_us(card, d, 1, 32, fp8) / 1e3);
    }
  }
}

// Where the time of one query goes: what lies between kernels, and what each waits for.
void print_query(const Card &card) {
  printf(
      "\n## One query of 32 tokens on %s\n\nKernels one after another, in a graph, %.1f us from the end of "
      "one "
      "to the first work of the next.\n\n| model | class | kernels | gaps us | their own us | together us "
      "|\n| --- | --- | ---: | ---: | ---: | ---: |\n",
      card.name, card.gap_us);
  for (const bench::ModelDepth &d : bench::model_depths()) {
    for (int fp8 = 0; fp8 < 2; fp8++) {
      const int32_t kernels = bench::model_launches(d);
      const double us = predict_model_us(card, d, 1, 32, fp8), gaps = kernels * card.gap_us;
      printf("| %s | %s | %d | %.0f | %.0f | %.0f |\n", d.shape.name, fp8 ? "fp8" : "bf16", kernels, gaps,
             us - gaps, us);
    }
  }
}

void print_kernels(const Card &card) {
  printf(
      "\n## Kernels on %s\n\nThe tile of a product is the one that `linear` chooses; where the model finds "
      "another one faster, that "
      "follows.\n\n| case | tile | us | limit | %% of floor | faster by the model | us |\n"
      "| --- | --- | ---: | --- | ---: | --- | ---: |\n",
      card.name);
  for (const bench::Point &point : bench::points()) {
    const double bytes = bench::predicts_bytes(point) ? point.named()->bytes() : 0;
    bench::Predicted p;
    if (!bench::predict(card, point, bytes, &p)) continue;
    printf("| %s | %s | %.1f | %s | %.0f |", point.name().c_str(), p.variant, p.by.us, limit_name(p.by.limit),
           100 * p.by.floor_us / p.by.us);
    if (p.fastest_variant != p.variant) {
      printf(" %s | %.1f |\n", p.fastest_variant, p.fastest.us);
    } else {
      printf("  |  |\n");
    }
  }
}

// What attention_narrow_keys was chosen by: both forms at lengths around it and beyond.
void print_attention(const Card &card) {
  constexpr int32_t lengths[] = {512, 768, 1024, 2048, 8192};
  constexpr struct {
    int32_t heads, dim;
  } shapes[] = {{12, 64}, {16, 128}, {3, 256}};
  static const char *const terms[] = {"", "slopes", "a bias to 128"};
  printf(
      "\n## Forms of attention on %s\n\nMicroseconds by the narrow form (attention.cuh) and by the wide one "
      "(attention_sm90.cuh), of which\n`attention_narrow_keys` chooses by a text's own length.\n\n| heads | "
      "mask | with | form |",
      card.name);
  for (int32_t length : lengths) printf(" S = %d |", length);
  printf("\n| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n");
  for (const auto &shape : shapes) {
    for (int turn = 0; turn < 12; turn++) {
      const bool causal = turn / 6 == 1, wide = turn % 2 == 1;
      const int term = turn / 2 % 3;
      if (shape.dim == 256 && term > 0) continue;
      printf("| %d of %d | %s | %s | %s |", shape.heads, shape.dim, causal ? "causal" : "full", terms[term],
             wide ? "wide" : "narrow");
      sie_cuda::AttentionShape a = {shape.heads, shape.heads, shape.dim};
      a.causal = causal, a.slopes = term == 1, a.reach = term == 2 ? 128 : -1;
      a.most = wide ? 1 : INT32_MAX;
      for (int32_t length : lengths) {
        const std::vector<int32_t> texts(static_cast<size_t>(kBatch / length), length);
        printf(" %.0f |", predict_attention(card, a, texts.data(), kBatch / length).us);
      }
      printf("\n");
    }
  }
}

// What the size of a product's kernel costs: of the endings' own kernels, and of those of before ca7036ce, which looked
// up their types and had this much code.
void print_code(const Card &card) {
  using harness::ModelLinear;
  constexpr struct {
    int32_t columns, plain, activated;  // bytes
  } before[] = {{128, 147456, 220928}, {192, 215424, 322944}, {256, 147072, 219904}};
  constexpr ModelLinear parts[] = {ModelLinear::qkv, ModelLinear::attention_out, ModelLinear::up,
                                   ModelLinear::down};
  printf(
      "\n## Code of products on %s\n\nbf16, %lld tokens, tiles of 128 rows and so many columns in pairs: "
      "microseconds with the kernel of the\nending, and with those of before there were endings, by their "
      "KiB of "
      "code.\n\n| model | product | columns | KiB | us | KiB before | us |\n"
      "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
      card.name, static_cast<long long>(kBatch));
  for (const bench::ModelDepth &d : bench::model_depths()) {
    if (d.shape.mask != SIE_MASK_FULL || d.shape.gate != SIE_GATE_NONE) continue;
    for (ModelLinear part : parts) {
      const sie_cuda::GemmWork w = bench::linear_work(d.shape, kBatch, part, false);
      for (const auto &old : before) {
        sie_cuda::GemmTileShape tile = {128, old.columns, old.columns == 256 ? 64 : 128, 2,
                                        sie_cuda::gemm_sm90_code(128, old.columns, w)};
        printf("| %s | %s | %d | %.0f | %.1f |", d.shape.name, bench::part_name(part), old.columns,
               tile.code / 1024.0, predict_gemm(card, w, tile).us);
        tile.code = w.activated ? old.activated : old.plain;
        printf(" %.0f | %.1f |\n", tile.code / 1024.0, predict_gemm(card, w, tile).us);
      }
    }
  }
}

}  // namespace

int main() {
  printf(
      "# Predictions for GPUs\n\n"
      "What the cost model of kernels/cuda/cost.h says, made by `make kernels-model`. No card has run these\n"
      "kernels. Models: millions of tokens a second, device side, in batches of %lld tokens.\n",
      static_cast<long long>(kBatch));
  print_models(sie_cuda::card_h100);
  print_models(sie_cuda::card_h200);
  print_query(sie_cuda::card_h200);
  print_code(sie_cuda::card_h200);
  print_attention(sie_cuda::card_h200);
  print_kernels(sie_cuda::card_h200);
  return 0;
}
