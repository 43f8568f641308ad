// model_main.cc — prints what kernels/cuda/cost.h predicts: tokens a second of whole models, and each
// kernel of the bench's list. bench/results/gpu-model.md is its output, which a test compares.
#include <stdio.h>

#include "bench/model.h"

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

void print_kernels(const Card &card) {
  printf(
      "\n## Kernels on %s\n\nThe tile of a product is the one that `linear` chooses; where the model finds "
      "another one faster, that "
      "follows.\n\n| case | tile | us | limit | %% of floor | faster by the model | us |\n"
      "| --- | --- | ---: | --- | ---: | --- | ---: |\n",
      card.name);
  for (const bench::Point &point : bench::points()) {
    const double bytes = bench::predicts_bytes(point) ? point.make()->bytes() : 0;
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

}  // namespace

int main() {
  printf(
      "# Predictions for GPUs\n\n"
      "What the cost model of kernels/cuda/cost.h says, made by `make kernels-model`. No card has run these\n"
      "kernels. Models: millions of tokens a second, device side, in batches of %lld tokens.\n",
      static_cast<long long>(kBatch));
  print_models(sie_cuda::card_h100);
  print_models(sie_cuda::card_h200);
  print_kernels(sie_cuda::card_h200);
  return 0;
}
