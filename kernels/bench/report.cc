// report.cc — the two forms of a result. torch_peer.py and report.py read the JSON.
#include "bench/report.h"

#include "bench/model.h"

#include <algorithm>

namespace bench {

namespace {

std::string lengths_text(const harness::Lengths &lengths) {
  std::string all;
  for (int32_t length : lengths) all += (all.empty() ? "" : ",") + std::to_string(length);
  return "[" + all + "]";
}

std::string ceilings_text(const Ceilings &c) {
  return harness::text("{\"gbs\":%.1f,\"bf16_tflops\":%.1f,\"fp8_tflops\":%.1f,\"launch_us\":%.3f}",
                       c.copy_gbs, c.bf16_tflops, c.fp8_tflops, c.launch_us);
}

std::string model_text(const harness::ModelShape &m) {
  const std::string sizes =
      harness::text("\"width\":%d,\"heads\":%d,\"kv_heads\":%d,\"head_dim\":%d,\"inner\":%d", m.width,
                    m.heads, m.kv_heads, m.head_dim, m.inner);
  const std::string kinds =
      harness::text("\"gate\":%d,\"norm\":%d,\"mask\":%d,\"window\":%d,\"rotary\":%s,\"pooling\":%d", m.gate,
                    m.norm, m.mask, m.window, m.rotary ? "true" : "false", m.pooling);
  return "{\"name\":" + quoted(m.name) + "," + sizes + "," + kinds + "}";
}

// What was predicted of the case on this card, in microseconds; "null" without a model.
std::string predicted_text(const std::string &gpu, const Point &point, const harness::Case &c) {
  const sie_cuda::Card &card =
      gpu.find("H200") != std::string::npos ? sie_cuda::card_h200 : sie_cuda::card_h100;
  Predicted p;
  return predict(card, point, c.bytes(), &p) ? harness::text("%.3f", p.by.us) : "null";
}

}  // namespace

std::string quoted(const std::string &text) {
  std::string all = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') all += '\\';
    all += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return all + '"';
}

std::unique_ptr<Report> Report::open(const std::string &json) {
  std::unique_ptr<Report> report(new Report);
  if (json.empty()) return report;
  report->json_ = fopen(json.c_str(), "w");
  if (report->json_ != nullptr) return report;
  perror(json.c_str());
  return nullptr;
}

Report::~Report() {
  if (json_ != nullptr) fclose(json_);
}

void Report::device(const device::Info &info, const Ceilings &ceilings, const std::string &cublaslt) {
  ceilings_ = ceilings;
  gpu_ = info.name;
  hopper_ = info.sm / 10 == 9;
  printf("goos: linux\ngoarch: %s\npkg: kernels/bench\ncpu: %s\n",
#if defined(__aarch64__)
         "arm64",
#else
         "amd64",
#endif
         info.name.c_str());
  printf("# ceilings: copy %.0f GB/s, bf16 %.0f TFLOP/s, fp8 %.0f TFLOP/s, a launch in a graph %.2f us\n",
         ceilings.copy_gbs, ceilings.bf16_tflops, ceilings.fp8_tflops, ceilings.launch_us);
  printf("# cuBLASLt: %s\n", cublaslt.c_str());
  if (json_ == nullptr) return;
  fprintf(
      json_,
      "{\"gpu\":%s,\"sm\":%d,\"multiprocessors\":%d,\"memory\":%lld,\"l2\":%lld,\"driver\":%d,\"runtime\":%d,"
      "\"cublaslt\":%s,\"ceilings\":%s}\n",
      quoted(info.name).c_str(), info.sm, info.multiprocessors, static_cast<long long>(info.memory_bytes),
      static_cast<long long>(info.l2_bytes), info.driver, info.runtime, quoted(cublaslt).c_str(),
      ceilings_text(ceilings).c_str());
}

double Report::floor_us(const Ceilings &c, Roof roof, double bytes, double flops, const char **bound) {
  const double peak = roof == Roof::bf16 ? c.bf16_tflops : (roof == Roof::fp8 ? c.fp8_tflops : 0);
  const double by_bytes = bytes / (c.copy_gbs * 1e3), by_flops = peak > 0 ? flops / (peak * 1e6) : 0;
  *bound = by_flops > by_bytes ? "flops" : "bytes";
  if (c.launch_us > std::max(by_bytes, by_flops)) *bound = "launch";
  return std::max({by_bytes, by_flops, c.launch_us});
}

void Report::result(const Point &point, const harness::Case &c, const Result &r) {
  const bool timed = r.status == SIE_OK;
  const double us = timed ? r.us.p50 : 0, bytes = c.bytes(), flops = c.flops();
  const char *bound = "";
  const double floor = floor_us(ceilings_, point.roof, bytes, flops, &bound);
  const double gbs = timed ? bytes / (us * 1e3) : 0, tflops = timed ? flops / (us * 1e6) : 0,
               share = timed ? 100 * floor / us : 0;
  if (timed) {
    printf("BenchmarkKernel/%s/impl=%s %lld %.0f ns/op %.1f GB/s %.2f TFLOP/s %.1f %%floor %.1f %%noise\n",
           point.name().c_str(), r.name.c_str(), static_cast<long long>(r.calls), us * 1e3, gbs, tflops,
           share, 100 * r.noise);
    fflush(stdout);
  }
  if (json_ == nullptr) return;
  fprintf(json_, "{\"name\":%s,\"op\":%s,\"part\":%s,\"load\":%s,\"type\":%s,\"impl\":%s,\"case\":%s,",
          quoted(point.name()).c_str(), quoted(point.op).c_str(), quoted(point.part).c_str(),
          quoted(point.load).c_str(), quoted(point.type).c_str(), quoted(r.name).c_str(),
          quoted(c.form + " " + c.shape).c_str());
  fprintf(json_,
          "\"model\":%s,\"lengths\":%s,\"bytes\":%.0f,\"flop\":%.0f,\"floor_us\":%.3f,\"bound\":\"%s\","
          "\"predicted_us\":%s,",
          model_text(*point.model).c_str(), lengths_text(point.lengths).c_str(), bytes, flops, floor, bound,
          hopper_ ? predicted_text(gpu_, point, c).c_str() : "null");
  fprintf(json_,
          "\"status\":%d,\"us\":{\"p10\":%.3f,\"p50\":%.3f,\"p90\":%.3f},\"gbs\":%.1f,\"tflops\":%.2f,"
          "\"pct_floor\":%.1f,\"pct_noise\":%.2f}\n",
          static_cast<int>(r.status), r.us.p10, r.us.p50, r.us.p90, gbs, tflops, share, 100 * r.noise);
  fflush(json_);
}

void Report::drift(const Ceilings &c) {
  printf(
      "# ceilings at the end: copy %.0f GB/s, bf16 %.0f TFLOP/s, fp8 %.0f TFLOP/s, a launch in a graph %.2f "
      "us\n",
      c.copy_gbs, c.bf16_tflops, c.fp8_tflops, c.launch_us);
  if (json_ != nullptr) fprintf(json_, "{\"ceilings_at_end\":%s}\n", ceilings_text(c).c_str());
}

}  // namespace bench
