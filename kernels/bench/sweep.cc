// sweep.cc — variants by name, one against the other.
#include "bench/sweep.h"

#include "bench/mirror.h"
#include "bench/points.h"
#include "cuda/cuda_ops.h"
#include "cuda/gemm_sm80.h"
#include "cuda/gemm_sm90.h"

namespace bench {

namespace {

// A launcher is a plain function, so the variant that it runs, and what it saw, are kept here.
int32_t variant = 0, chosen = -1;

bool hopper(const sie_stream *on) { return on->sm / 10 == 9; }

sie_status run_variant(const sie_linear_args *a, const sie_share *share) {
  return hopper(share->on) ? sie_cuda::gemm_sm90_run(variant, a, share->on)
                           : sie_cuda::gemm_sm80_run(variant, a, share->on);
}

sie_status ask_choice(const sie_linear_args *a, const sie_share *share) {
  chosen =
      hopper(share->on) ? sie_cuda::gemm_sm90_choose(a, share->on) : sie_cuda::gemm_sm80_choose(a, share->on);
  return SIE_OK;
}

const char *variant_name(const sie_stream *on, uint32_t compute, int32_t index) {
  if (hopper(on)) {
    const sie_cuda::GemmSm90Variant *v = sie_cuda::gemm_sm90_variant(index);
    return v != nullptr ? v->name : nullptr;
  }
  const sie_cuda::GemmSm80Variant *v = sie_cuda::gemm_sm80_variant(compute, index);
  return v != nullptr ? v->name : nullptr;
}

struct Candidate {
  int32_t index;
  double us;
};

// The variants that take the case, with their times; each gives the first one's bits.
std::vector<Candidate> candidates(Timer *timer, const sie_ops *table, const sie_ops &by_variant,
                                  harness::Case *c, uint32_t compute, const std::string &name) {
  std::vector<Candidate> all;
  std::vector<uint8_t> first;
  const sie_stream *on = device::stream();
  harness::Scratch scratch(table, c->bounds());
  const sie_share share = scratch.share(0, 1);
  for (variant = 0; variant_name(on, compute, variant) != nullptr; variant++) {
    const char *label = variant_name(on, compute, variant);
    for (harness::Rows *rows : c->outputs) rows->clear();
    mirror::use(&by_variant);
    const sie_status status = c->call(table, &share, 0, c->units);
    mirror::use(nullptr);
    if (status == SIE_UNSUPPORTED) continue;
    CHECK(status == SIE_OK, "%s %s: status %d", name.c_str(), label, status);
    if (status != SIE_OK) continue;
    const std::vector<uint8_t> bits = c->outputs[0]->bytes(0, c->outputs[0]->rows());
    if (first.empty()) first = bits;
    CHECK(bits == first, "%s: %s gives other bits than the first variant", name.c_str(), label);
    const Result result = timer->time(c, table, {{label, &by_variant}})[0];
    CHECK(result.status == SIE_OK, "%s %s: status %d", name.c_str(), label, result.status);
    if (result.status != SIE_OK) continue;
    all.push_back({variant, result.us.p50});
    printf("BenchmarkTile/%s/variant=%s 1 %.0f ns/op %.2f TFLOP/s\n", name.c_str(), label,
           result.us.p50 * 1e3, c->flops() / (result.us.p50 * 1e6));
    fflush(stdout);
  }
  return all;
}

}  // namespace

void sweep(const device::Info &info, Timer *timer, const sie_ops *table, const std::string &file,
           double seconds) {
  static const char *const classes[] = {"", "F32", "BF16", "INT8", "F16", "FP8"};
  const int32_t rows[] = {16, 64, 256, 1024, 4096, 16384};
  FILE *out = file.empty() ? nullptr : fopen(file.c_str(), "w");
  if (!file.empty() && out == nullptr) perror(file.c_str());
  CHECK(file.empty() || out != nullptr, "%s cannot be written", file.c_str());
  sie_ops by_variant = *sie_cuda_ops(info.sm), asking = by_variant;
  by_variant.linear = run_variant;
  asking.linear = ask_choice;
  const double begin = check::seconds();
  int swept = 0, left = 0;
  // Large batches first: they decide the headline if time runs out.
  for (size_t i = sizeof rows / sizeof *rows; i-- > 0;) {
    for (const SweepShape &shape : sweep_shapes()) {
      if (check::seconds() - begin > seconds) {
        left++;
        continue;
      }
      std::unique_ptr<harness::Case> c =
          harness::model_linear(*shape.model, {rows[i]}, shape.part, shape.compute);
      const sie_op_bounds b = c->bounds();
      if (!c->present(table)) continue;
      const std::string name =
          harness::text("class=%s/N=%lld/K=%lld/rows=%d", classes[shape.compute], static_cast<long long>(b.n),
                        static_cast<long long>(b.k), rows[i]);
      harness::Scratch scratch(table, b);
      const sie_share share = scratch.share(0, 1);
      chosen = -1;
      mirror::use(&asking);
      c->call(table, &share, 0, c->units);
      mirror::use(nullptr);
      const int32_t today = chosen;
      const std::vector<Candidate> all = candidates(timer, table, by_variant, c.get(), shape.compute, name);
      swept++;
      const Candidate *best = nullptr, *current = nullptr;
      for (const Candidate &candidate : all) {
        if (best == nullptr || candidate.us < best->us) best = &candidate;
        if (candidate.index == today) current = &candidate;
      }
      if (best == nullptr || out == nullptr) continue;
      if (current != nullptr && best->us > 0.97 * current->us) continue;
      fprintf(out, "    {%d, SIE_COMPUTE_%s, %lld, %lld, %d, %d, \"%s\"},  // %.1f us, not %.1f\n",
              info.sm / 10 == 9 ? 90 : info.sm, classes[shape.compute], static_cast<long long>(b.n),
              static_cast<long long>(b.k), i > 0 ? rows[i - 1] : 0, rows[i],
              variant_name(device::stream(), shape.compute, best->index), best->us,
              current != nullptr ? current->us : 0);
      fflush(out);
    }
  }
  printf("# sweep: %d shapes, %d left when the time was up\n", swept, left);
  if (out != nullptr) fclose(out);
}

}  // namespace bench
