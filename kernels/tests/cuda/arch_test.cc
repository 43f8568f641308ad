// arch_test.cc — the cards that the CUDA kernels accept, and the messages for the others. Needs no
// GPU.
#include "cuda/arch.h"

#include "tests/check.h"

namespace {

constexpr char all[] = "80,86,89,90a,100f,120f";
constexpr char older[] = "80,86,89,90a";

struct Card {
  int32_t major, minor;
  bool runs;
};

sie_status ask(const char *targets, const char *release, int32_t major, int32_t minor, char (&message)[252]) {
  memset(message, 'x', sizeof message);
  return sie_cuda_arch_refusal_of(targets, release, major, minor, message, sizeof message);
}

void expect(const char *targets, const char *release, const Card &card) {
  char message[252];
  sie_status status = ask(targets, release, card.major, card.minor, message);
  CHECK(status == (card.runs ? SIE_OK : SIE_UNSUPPORTED), "%d.%d with %s: status %d", card.major, card.minor,
        targets, status);
  CHECK((message[0] == '\0') == card.runs, "%d.%d: '%s'", card.major, card.minor, message);
  CHECK(memchr(message, '\0', sizeof message) != nullptr, "%d.%d: the message has no end", card.major,
        card.minor);
}

}  // namespace

TEST(the_full_build_runs_on_ampere_to_blackwell) {
  const Card cards[] = {{8, 0, true},  {8, 6, true},   {8, 9, true},   {9, 0, true},  {10, 0, true},
                        {10, 3, true}, {12, 0, true},  {12, 1, true},  {8, 7, false}, {8, 8, false},
                        {9, 1, false}, {11, 0, false}, {13, 0, false}, {7, 5, false}, {7, 0, false},
                        {6, 1, false}, {3, 5, false},  {0, 0, false},  {-1, 0, false}};
  for (const Card &card : cards) expect(all, "13.0", card);
}

TEST(the_build_for_older_drivers_has_no_blackwell) {
  const Card cards[] = {{8, 0, true}, {8, 6, true},   {8, 9, true},
                        {9, 0, true}, {10, 0, false}, {12, 0, false}};
  for (const Card &card : cards) expect(older, "12.4", card);
}

TEST(a_part_of_the_targets) {
  expect("86", "13.0", {8, 0, false});
  expect("86", "13.0", {8, 9, true});
  expect("90a", "13.0", {9, 0, true});
  expect("90a", "13.0", {8, 0, false});
  expect("100a", "13.0", {10, 0, true});
  expect("100a", "13.0", {10, 3, false});
  expect("103f", "13.0", {10, 0, false});
  expect("", "13.0", {8, 0, false});
  expect("80;90a", "13.0", {9, 0, false});
}

TEST(messages_name_the_capability_the_need_and_the_fix) {
  char message[252];
  ask(all, "13.0", 7, 5, message);
  CHECK(strstr(message, "7.5 (sm_75)") && strstr(message, "8.0 or newer") && strstr(message, "CPU"), "%s",
        message);
  ask(older, "12.4", 12, 0, message);
  CHECK(strstr(message, "12.0 (sm_120)") && strstr(message, "CUDA 12.4") &&
            strstr(message, "make kernels TOOLKIT=13.0"),
        "%s", message);
  ask(all, "13.0", 11, 0, message);
  CHECK(strstr(message, "11.0 (sm_110)") && strstr(message, all), "%s", message);
  // The longest message must fit into a sie_error.
  CHECK(strlen(message) < sizeof message - 1, "%zu bytes", strlen(message));
}

TEST(drivers_of_the_same_major_release_or_newer) {
  char message[252];
  auto ask_driver = [&message](const char *release, int32_t driver) {
    return sie_cuda_driver_refusal_of(release, driver, message, sizeof message) == SIE_OK;
  };
  CHECK(ask_driver("13.0", 13000) && ask_driver("13.0", 13020) && ask_driver("13.2", 13000), "%s", message);
  CHECK(ask_driver("12.4", 12000) && ask_driver("12.4", 12080) && ask_driver("12.4", 13000), "%s", message);
  CHECK(!ask_driver("12.4", 11080), "an older major is accepted");
  CHECK(!ask_driver("13.0", 12090) && strstr(message, "CUDA 12.9") && strstr(message, "580") &&
            strstr(message, "TOOLKIT=12.4"),
        "%s", message);
  CHECK(strlen(message) < sizeof message - 1, "%zu bytes", strlen(message));
}

TEST(a_small_or_absent_buffer) {
  char message[8] = "yyyyyyy";
  CHECK(sie_cuda_arch_refusal(7, 5, message, 4) == SIE_UNSUPPORTED, "accepted");
  CHECK(strcmp(message, "the") == 0 && message[4] == 'y', "'%s'", message);
  CHECK(sie_cuda_arch_refusal(7, 5, nullptr, 0) == SIE_UNSUPPORTED, "accepted");
  CHECK(sie_cuda_arch_refusal(8, 0, nullptr, 0) == SIE_OK, "refused");
}

int main(int argc, char **argv) { return check::run_tests(argc, argv); }
