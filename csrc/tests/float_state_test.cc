// float_state_test.cc — threads compute in the default floating-point state, whatever the state of
// the thread that opened the device.
#include <string.h>

#include <vector>

#include "device.h"
#include "float_state.h"
#include "model.h"
#include "tests/check.h"
#include "weight.h"

namespace {

// Rounds up, and flushes denormal results and operands to zero.
#if defined(__x86_64__)
constexpr uint64_t other_state = 0xdfc0, flags = 0x3f;
#else
constexpr uint64_t other_state = 1u << 22 | 1u << 24, flags = 0;
#endif

// Sets the other state for its lifetime.
class OtherState {
 public:
  OtherState() : former_(sie::read_float_state()) { sie::write_float_state(other_state); }
  ~OtherState() { sie::write_float_state(former_); }
  OtherState(const OtherState &) = delete;
  OtherState &operator=(const OtherState &) = delete;

 private:
  uint64_t former_;
};

struct Look : sie::Run {
  std::atomic<uint64_t> seen[4] = {};
  Look() {
    tickets = 4;
    work = run;
  }
  static void run(sie::Run *r, int32_t ticket, int32_t, int32_t) {
    static_cast<Look *>(r)->seen[ticket].store(sie::read_float_state() & ~flags);
  }
};

std::vector<char> packed_int8(sie_device *device, const std::vector<float> &values) {
  sie_weight_desc d = {};
  d.struct_size = sizeof d;
  d.kind = SIE_WEIGHT_LINEAR;
  d.compute = SIE_COMPUTE_INT8;
  d.dtype = SIE_F32;
  d.n_parts = 1;
  d.n = 8;
  d.k = static_cast<int64_t>(values.size()) / 8;
  d.parts[0] = {values.data(), 8, 0};
  sie_weight *w;
  sie_error err = {};
  CHECK(sie_weight_create(device, &d, &w, &err) == SIE_OK, "%s", err.message);
  const char *bytes = static_cast<const char *>(w->data.p);
  std::vector<char> copy(bytes, bytes + w->data.bytes);
  sie_weight_free(w);
  return copy;
}

}  // namespace

TEST(float_state_of_executors_is_the_default) {
  sie::Executors executors;
  Look look;
  {
    OtherState other;
    CHECK(executors.start(2, nullptr, nullptr) == SIE_OK, "cannot start");
  }
  CHECK(executors.submit(&look), "refused");
  executors.wait(&look);
  executors.stop();
  for (const std::atomic<uint64_t> &seen : look.seen)
    CHECK(seen.load() == sie::plain_float_state, "state %llx", static_cast<unsigned long long>(seen.load()));
}

TEST(float_state_of_packing_is_the_default) {
  sie_device_options options = {};
  options.struct_size = sizeof options;
  options.kind = SIE_DEVICE_CPU;
  options.threads = 1;
  sie_device *device;
  sie_error err = {};
  CHECK(sie_device_open(&options, &device, &err) == SIE_OK, "%s", err.message);
  std::vector<float> values(8 * 300);
  model::Random random(7);
  for (float &x : values) x = random.real();
  std::vector<char> plain = packed_int8(device, values);
  uint64_t after = 0;
  {
    OtherState other;
    CHECK(packed_int8(device, values) == plain, "other bytes");
    after = sie::read_float_state() & ~flags;
  }
  CHECK(after == other_state, "the caller's state became %llx", static_cast<unsigned long long>(after));
  sie_device_close(device);
}

TEST(float_state_of_recording_is_the_default) {
  // The scale of attention that a program leaves to the library: rounded up, some would differ.
  model::Model m;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32) == SIE_OK, "%s", m.err.message);
  sie_error err = {};
  for (int32_t d : {1, 3, 5, 7, 8, 13, 16, 24, 32, 40, 48, 63}) {
    record::Caps caps;
    caps.max_tokens = caps.max_len = 64;
    caps.max_seqs = 4;
    float scales[2] = {};
    for (int state = 0; state < 2; state++) {
      sie_program *p = nullptr;
      sie_value x = 0, y = 0, z = 0;
      CHECK(record::begin(m.device, caps, &p, &err) == SIE_OK &&
                record::embed_layernorm(p, m.weights[0], nullptr, nullptr, m.weights[3], nullptr, 0, 0, &x,
                                        &err) == SIE_OK &&
                record::columns(p, x, 0, d, &y, &err) == SIE_OK,
            "%s", err.message);
      sie_attention_params a = record::params<sie_attention_params>();
      a.heads = 1;
      a.head_dim = d;
      sie_status status;
      if (state == 0) {
        status = record::attention(p, y, y, y, &a, &z, &err);
      } else {
        OtherState other;
        status = record::attention(p, y, y, y, &a, &z, &err);
      }
      CHECK(status == SIE_OK, "%s", err.message);
      scales[state] = p->ops[p->ops.size() - 1].attention.scale;
      sie_program_free(p);
    }
    CHECK(memcmp(&scales[0], &scales[1], sizeof(float)) == 0, "heads of %d columns: another scale", d);
  }
}
