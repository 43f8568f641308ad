// names_test.cc — the names in messages and listings, and what the codes of a CUDA driver mean.
#include <string.h>

#include <initializer_list>

#include "program.h"
#include "status.h"
#include "tests/check.h"

namespace {

void named(const char *what, int64_t number, const char *got, const char *want) {
  CHECK(strcmp(got, want) == 0, "%s %lld is named %s, not %s", what, static_cast<long long>(number), got,
        want);
}

}  // namespace

TEST(names_of_operations) {
  const char *const names[] = {"embed_layernorm",
                               "layernorm",
                               "linear",
                               "quantise_rows",
                               "attention",
                               "gather_rows",
                               "pool",
                               "output_rows",
                               "qk_norm_rope",
                               "pool_output",
                               "muvera",
                               "keep_rows",
                               "splade",
                               "output_sparse",
                               "maxsim",
                               "lora",
                               "smve",
                               "mark_nonfinite",
                               "join_columns",
                               "take_rows",
                               "product",
                               "dots",
                               "lstm",
                               "spans",
                               "pairs",
                               "softmax",
                               "linear_norm"};
  for (uint32_t kind = 0; kind <= SIE_OP_LINEAR_NORM; kind++)
    named("operation", kind, sie::op_name(kind), names[kind]);
  for (uint32_t kind : {27u, 28u, 63u, 66u, UINT32_MAX})
    named("operation", kind, sie::op_name(kind), "unknown");
  named("operation", 64, sie::op_name(sie::op_output_values), "output_values");
  named("operation", 65, sie::op_name(sie::op_state_rows), "state_rows");
}

TEST(names_of_types_and_classes) {
  const char *const types[] = {"?", "f32", "f16", "bf16", "i8", "u8", "i32", "f8e4m3", "binary", "?"};
  for (int32_t type = 0; type <= 9; type++) named("type", type, sie::dtype_name(type), types[type]);
  for (int32_t type : {-1, -2, INT32_MIN, INT32_MAX}) named("type", type, sie::dtype_name(type), "?");
  const char *const classes[] = {"?", "f32", "bf16", "int8", "f16", "fp8", "?"};
  for (uint32_t compute = 0; compute <= 6; compute++)
    named("class", compute, sie::compute_name(compute), classes[compute]);
  named("class", UINT32_MAX, sie::compute_name(UINT32_MAX), "?");
}

TEST(names_of_failures) {
  sie_error err = {};
  CHECK(sie::fail(&err, SIE_UNSUPPORTED, "%d of %s", 3, "four") == SIE_UNSUPPORTED, "another status");
  CHECK(err.status == SIE_UNSUPPORTED && strcmp(err.message, "3 of four") == 0, "%s", err.message);
  CHECK(sie::fail(nullptr, SIE_INTERNAL, "nobody reads %s", "this") == SIE_INTERNAL, "another status");
}

// A capture that was invalidated ran nothing; what is unknown ends the process.
TEST(names_of_driver_codes) {
  struct {
    int32_t code;
    sie_status want;
  } cases[] = {{0, SIE_OK},           {2, SIE_OUT_OF_MEMORY}, {100, SIE_UNSUPPORTED}, {804, SIE_UNSUPPORTED},
               {1, SIE_INTERNAL},     {912, SIE_INTERNAL},    {899, SIE_DEVICE_LOST}, {900, SIE_INTERNAL},
               {908, SIE_INTERNAL},   {909, SIE_DEVICE_LOST}, {700, SIE_DEVICE_LOST}, {-1, SIE_DEVICE_LOST},
               {719, SIE_DEVICE_LOST}};
  for (const auto &c : cases) {
    CHECK(sie_gpu_status(c.code) == c.want, "code %d: status %d", c.code, sie_gpu_status(c.code));
  }
}
