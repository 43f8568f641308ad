// plan_test.cc — random programs: values with long lives, views, results that may reuse an input's
// memory, quantised twins, gathered rows. If a plan confuses memory, types or quantised forms, a
// result differs from the reference.
#include <math.h>

#include <vector>

#include "model.h"
#include "tests/check.h"

namespace {

constexpr int64_t width = 64, wide = 128, tokens = 40, seqs = 4;

#define MUST(call)                                                         \
  do {                                                                     \
    sie_status status_ = (call);                                           \
    CHECK(status_ == SIE_OK, "seed %u: %s: %s", seed, #call, err.message); \
    if (status_ != SIE_OK) return false;                                   \
  } while (0)

// Records the program of a seed on a device and runs one batch. The program does not depend on the
// device.
struct Run {
  uint32_t seed;
  sie_device *device = nullptr;
  sie_program *program = nullptr;
  sie_arena *arena = nullptr;
  sie_slot *slot = nullptr;
  std::vector<sie_weight *> weights;
  std::vector<float> outputs[4];
  bool by_token[4] = {};
  sie_error err = {};

  explicit Run(uint32_t s) : seed(s) {}
  Run(const Run &) = delete;
  Run &operator=(const Run &) = delete;
  ~Run() {
    sie_slot_free(slot);
    sie_arena_free(arena);
    sie_program_free(program);
    for (sie_weight *w : weights) sie_weight_free(w);
    sie_device_close(device);
  }

  sie_weight *weight(uint32_t kind, uint32_t compute, int64_t n, int64_t k, float scale, float offset) {
    model::Random random(seed * 1000 + static_cast<uint32_t>(weights.size()));
    std::vector<float> values(static_cast<size_t>(n * k));
    for (float &x : values) x = random.real() * scale + offset;
    sie_weight_desc d = {};
    d.struct_size = sizeof d;
    d.kind = kind;
    d.compute = compute;
    d.dtype = SIE_F32;
    d.n_parts = 1;
    d.n = n;
    d.k = k;
    d.parts[0] = {values.data(), n, 0};
    sie_weight *w = nullptr;
    CHECK(sie_weight_create(device, &d, &w, &err) == SIE_OK, "%s", err.message);
    weights.push_back(w);
    return w;
  }

  bool open(uint32_t kind, uint32_t compute) {
    sie_device_options o = {};
    o.struct_size = sizeof o;
    o.kind = kind;
    o.threads = 2;
    MUST(sie_device_open(&o, &device, &err));
    sie_device_info info = {};
    info.struct_size = sizeof info;
    sie_device_query(device, &info, &err);
    return (info.compute_mask >> compute & 1) != 0;
  }

  bool norm(sie_value x, sie_value *y) {
    sie_weight *gamma = weight(SIE_WEIGHT_VECTOR, 0, width, 1, 0.3f, 1),
               *beta = weight(SIE_WEIGHT_VECTOR, 0, width, 1, 0.2f, 0);
    MUST(record::layernorm(program, x, gamma, beta, 1e-6f, y, &err));
    return true;
  }

  bool linear(uint32_t compute, sie_value x, int64_t n, sie_act act, sie_value residual, sie_value *y) {
    sie_weight *w = weight(SIE_WEIGHT_LINEAR, compute, n, width, 0.2f, 0);
    MUST(record::linear(program, x, w, nullptr, act, residual, y, &err));
    return true;
  }

  // Each step takes any earlier values of 64 columns, so most values live for a while.
  bool record(uint32_t compute) {
    record::Caps caps;
    caps.max_tokens = tokens;
    caps.max_seqs = seqs;
    caps.max_len = tokens;
    MUST(record::begin(device, caps, &program, &err));
    sie_weight *word = weight(SIE_WEIGHT_TABLE, compute, 50, width, 1, 0);
    sie_weight *gamma = weight(SIE_WEIGHT_VECTOR, 0, width, 1, 0.3f, 1);
    model::Random random(seed);
    std::vector<sie_value> by_tokens(1), by_seqs;
    MUST(record::embed_layernorm(program, word, nullptr, nullptr, gamma, nullptr, 1e-6f, 0, &by_tokens[0],
                                 &err));
    for (int step = 0; step < 14; step++) {
      auto pick = [&random](const std::vector<sie_value> &v) {
        return v[static_cast<size_t>(random.below(static_cast<int32_t>(v.size())))];
      };
      bool of_seqs = !by_seqs.empty() && random.below(4) == 0;
      std::vector<sie_value> &values = of_seqs ? by_seqs : by_tokens;
      sie_value x = pick(values), other = pick(values), y, z;
      switch (random.below(6)) {
        case 0:
          if (!norm(x, &y)) return false;
          break;
        case 1:
          if (!linear(compute, x, width, SIE_ACT_TANH, SIE_NO_VALUE, &y)) return false;
          break;
        case 2:
          // A sum, then a norm: sums of sums would leave the range in which classes can be
          // compared.
          if (!linear(compute, x, width, SIE_ACT_NONE, other, &z) || !norm(z, &y)) return false;
          if (random.below(2) == 0) values.push_back(z);
          break;
        case 3: {
          if (!linear(compute, x, wide, SIE_ACT_GELU_ERF, SIE_NO_VALUE, &z)) return false;
          MUST(record::columns(program, z, random.below(2) * width, width, &y, &err));
          break;
        }
        case 4: {
          sie_attention_params a = {};
          a.struct_size = sizeof a;
          a.heads = a.kv_heads = 2;
          a.head_dim = 32;
          a.scale = 0.17f;
          MUST(record::attention(program, x, pick(by_tokens), pick(by_tokens), &a, &y, &err));
          break;
        }
        default:
          if (of_seqs) continue;
          MUST(
              record::gather_rows(program, x, random.below(2) == 0 ? SIE_POOL_CLS : SIE_POOL_LAST, &y, &err));
          by_seqs.push_back(y);
          continue;
      }
      values.push_back(y);
    }
    for (int32_t i = 0; i < 4; i++) {
      by_token[i] = by_seqs.empty() || i < 2;
      std::vector<sie_value> &values = by_token[i] ? by_tokens : by_seqs;
      // The last value, and others, which must live to the end.
      size_t at = i % 2 == 0 ? values.size() - 1
                             : static_cast<size_t>(random.below(static_cast<int32_t>(values.size())));
      if (by_token[i]) {
        MUST(record::output_values(program, values[at], i, &err));
      } else {
        MUST(record::output_rows(program, values[at], i, &err));
      }
    }
    return true;
  }

  // Cases that random steps seldom make: a sum that only a gather reads, for a linear that needs
  // the class's own type; a value that only linears read, both whole and as a view; and a linear's
  // result that only one linear reads, as x and as the residual.
  bool record_awkward(uint32_t compute) {
    record::Caps caps;
    caps.max_tokens = caps.max_len = tokens;
    caps.max_seqs = seqs;
    MUST(record::begin(device, caps, &program, &err));
    sie_weight *word = weight(SIE_WEIGHT_TABLE, compute, 50, width, 1, 0);
    sie_weight *gamma = weight(SIE_WEIGHT_VECTOR, 0, width, 1, 0.3f, 1);
    sie_value x, sum, gathered, first, both, whole, half, view, twice;
    MUST(record::embed_layernorm(program, word, nullptr, nullptr, gamma, nullptr, 1e-6f, 0, &x, &err));
    if (!linear(compute, x, width, SIE_ACT_NONE, x, &sum)) return false;
    MUST(record::gather_rows(program, sum, SIE_POOL_LAST, &gathered, &err));
    if (!linear(compute, gathered, width, SIE_ACT_NONE, SIE_NO_VALUE, &first)) return false;
    if (!linear(compute, x, wide, SIE_ACT_NONE, SIE_NO_VALUE, &both)) return false;
    sie_weight *w = weight(SIE_WEIGHT_LINEAR, compute, width, wide, 0.2f, 0);
    MUST(record::linear(program, both, w, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, &whole, &err));
    MUST(record::columns(program, both, width, width, &view, &err));
    if (!linear(compute, view, width, SIE_ACT_NONE, SIE_NO_VALUE, &half)) return false;
    if (!linear(compute, half, width, SIE_ACT_NONE, half, &twice)) return false;
    const sie_value values[] = {whole, twice, first, first};
    for (int32_t i = 0; i < 4; i++) {
      by_token[i] = i < 2;
      if (i < 3) MUST(record::output_values(program, values[i], i, &err));
      if (i == 3) MUST(record::output_rows(program, values[i], i, &err));
    }
    return true;
  }

  bool run() {
    sie_workspace workspace;
    MUST(sie_program_end(program, &workspace, &err));
    MUST(sie_arena_create(device, &workspace, &arena, &err));
    sie_slot_caps caps = {};
    caps.struct_size = sizeof caps;
    caps.n_outputs = 4;
    caps.max_tokens = tokens;
    caps.max_seqs = seqs;
    int64_t output_bytes[4];
    for (int64_t &bytes : output_bytes) bytes = tokens * width * 4;
    caps.output_bytes = output_bytes;
    caps.input_bytes = sie_program_input_bytes(program);
    MUST(sie_slot_create(device, &caps, &slot, &err));
    model::Random random(seed + 77);
    std::vector<int32_t> ids(tokens);
    for (int32_t &id : ids) id = random.below(50);
    const int32_t cu[] = {0, 3, 20, 21, tokens};
    std::vector<sie_out_item> items;
    for (int64_t b = 0; b < seqs; b++) items.push_back({SIE_F32, 0, 0, 0, b * width * 4});
    record::Batch batch;
    batch.n_seqs = seqs;
    batch.ids = ids.data();
    batch.cu_seqlens = cu;
    for (const sie_out_item *&of_output : batch.items) of_output = items.data();
    MUST(record::load(slot, program, &batch, &err));
    MUST(sie_program_submit(program, arena, slot, nullptr, &err));
    MUST(sie_slot_wait(slot, &err));
    for (int32_t i = 0; i < 4; i++) {
      const float *values = static_cast<const float *>(sie_slot_output(slot, i, nullptr));
      outputs[i].assign(values, values + (by_token[i] ? tokens : seqs) * width);
    }
    return true;
  }
};

double cosine(const std::vector<float> &a, const std::vector<float> &b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); i++) {
    ab += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    aa += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    bb += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return ab / sqrt(aa * bb);
}

}  // namespace

// Records with `record` on the reference and in every class of the CPU, and compares all four
// outputs.
static void compare(uint32_t seed, bool (Run::*record)(uint32_t)) {
  // The cosine of two unrelated vectors is near 0; quantising fourteen steps leaves it far above
  // that.
  const double least[] = {0, 0.9999999, 0.999, 0.98};
  Run reference(seed);
  if (!reference.open(SIE_DEVICE_REF, SIE_COMPUTE_F32) || !(reference.*record)(SIE_COMPUTE_F32) ||
      !reference.run())
    return;
  for (uint32_t compute : {SIE_COMPUTE_F32, SIE_COMPUTE_BF16, SIE_COMPUTE_INT8}) {
    Run got(seed);
    if (!got.open(SIE_DEVICE_CPU, compute)) continue;  // this machine lacks the class
    if (!(got.*record)(compute) || !got.run()) return;
    for (int i = 0; i < 4; i++) {
      double c = cosine(got.outputs[i], reference.outputs[i]);
      std::vector<char> text(20000);
      if (!(c >= least[compute])) sie_program_describe(got.program, text.data(), text.size());
      CHECK(c >= least[compute], "seed %u class %u output %d: cosine %.7f\n%s", seed, compute, i, c,
            text.data());
    }
  }
}

TEST(plans_of_random_programs) {
  for (uint32_t seed = 1; seed <= 40; seed++) compare(seed, &Run::record);
}

TEST(plans_of_awkward_uses) {
  for (uint32_t seed = 1; seed <= 3; seed++) compare(seed, &Run::record_awkward);
}
