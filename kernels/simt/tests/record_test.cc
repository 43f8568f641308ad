// The emulator against recordings of a real device (testdata/hopper), and the comparison against
// itself.
#include <dirent.h>
#include <stdio.h>

#include <string>

#include "simt/experiments.h"
#include "simt_test.h"

namespace simt_test {
namespace {

using simt_record::Experiment;
using simt_record::Recording;

const Experiment *find(const char *name) {
  size_t count;
  const Experiment *list = simt_record::experiments(&count);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(list[i].name, name) == 0) return &list[i];
  }
  return nullptr;
}

void run_emulated(const Experiment &experiment, const uint8_t *input, std::vector<uint8_t> *output) {
  Aligned<uint8_t> in(experiment.input_bytes), out(experiment.output_bytes);
  memcpy(in.data(), input, experiment.input_bytes);
  memset(out.data(), 0xff, experiment.output_bytes);
  sie_status status = experiment.run(&on_sm90, in.data(), out.data());
  CHECK(status == SIE_OK, "%s: status %d", experiment.name, status);
  output->assign(out.begin(), out.end());
}

// Elements that differ by more than the experiment allows.
size_t count_differences(const Experiment &experiment, const std::vector<uint8_t> &got, const uint8_t *want) {
  size_t different = 0;
  for (size_t i = 0; i < got.size(); i += 4) {
    if (memcmp(&got[i], want + i, 4) == 0) continue;
    float x, y;
    memcpy(&x, &got[i], 4);
    memcpy(&y, want + i, 4);
    float limit = experiment.tolerance * (1.0f + fabsf(y));
    different += experiment.tolerance == 0.0f || !(fabsf(x - y) <= limit);
  }
  return different;
}

// The recording's differences, or -1 with a message when it cannot be compared.
long compare(const std::vector<uint8_t> &recording, const char *path) {
  Recording head;
  if (recording.size() < sizeof head) {
    CHECK(false, "%s: %zu bytes are no recording", path, recording.size());
    return -1;
  }
  memcpy(&head, recording.data(), sizeof head);
  head.name[sizeof head.name - 1] = '\0';
  const Experiment *experiment = memcmp(head.magic, "SIEREC01", 8) == 0 ? find(head.name) : nullptr;
  if (experiment == nullptr || head.input_bytes != experiment->input_bytes ||
      head.output_bytes != experiment->output_bytes ||
      recording.size() != sizeof head + head.input_bytes + head.output_bytes) {
    CHECK(false, "%s: of no experiment here, or of another shape: record again", path);
    return -1;
  }
  std::vector<uint8_t> output;
  run_emulated(*experiment, recording.data() + sizeof head, &output);
  return static_cast<long>(
      count_differences(*experiment, output, recording.data() + sizeof head + head.input_bytes));
}

TEST(recordings_of_a_device_are_reproduced) {
  std::string folder = std::string(SIE_TESTDATA) + "/hopper";
  int compared = 0;
  if (DIR *directory = opendir(folder.c_str())) {
    while (dirent *entry = readdir(directory)) {
      std::string name = entry->d_name;
      if (name.size() < 4 || name.compare(name.size() - 4, 4, ".bin") != 0) continue;
      std::string path = folder + "/" + name;
      std::vector<uint8_t> recording;
      FILE *file = fopen(path.c_str(), "rb");
      CHECK(file != nullptr, "%s cannot be read", path.c_str());
      if (file == nullptr) continue;
      uint8_t buffer[4096];
      for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;)
        recording.insert(recording.end(), buffer, buffer + n);
      fclose(file);
      long different = compare(recording, name.c_str());
      CHECK(different == 0, "%s: %ld elements differ", name.c_str(), different);
      compared++;
    }
    closedir(directory);
  }
  size_t count;
  simt_record::experiments(&count);
  if (compared == 0) {
    printf("     no recordings of a device: 0 of %zu experiments compared (make one with sie_record)\n",
           count);
  } else {
    CHECK(compared == static_cast<int>(count), "%d recordings of %zu experiments", compared, count);
    printf("     %d recordings of %zu experiments compared\n", compared, count);
  }
}

// Tests the check itself: the emulator reproduces its own recordings under any seed, and one wrong
// bit is noticed.
TEST(a_recording_of_the_emulator_is_reproduced) {
  size_t count;
  const Experiment *list = simt_record::experiments(&count);
  for (size_t i = 0; i < count; i++) {
    const Experiment &experiment = list[i];
    std::vector<uint8_t> recording(sizeof(Recording) + experiment.input_bytes), output;
    Recording head = {};
    memcpy(head.magic, "SIEREC01", 8);
    snprintf(head.name, sizeof head.name, "%s", experiment.name);
    head.input_bytes = experiment.input_bytes;
    head.output_bytes = experiment.output_bytes;
    memcpy(recording.data(), &head, sizeof head);
    simt_record::fill_input(experiment, 1, recording.data() + sizeof head);
    run_emulated(experiment, recording.data() + sizeof head, &output);
    recording.insert(recording.end(), output.begin(), output.end());
    CHECK(compare(recording, experiment.name) == 0, "%s does not repeat itself", experiment.name);
    size_t untouched = 0;
    for (size_t b = 0; b < output.size(); b += 4) untouched += memcmp(&output[b], "\xff\xff\xff\xff", 4) == 0;
    CHECK(untouched < output.size() / 4, "%s writes nothing", experiment.name);
    recording[sizeof head + head.input_bytes + 3] ^= 0x40;  // an exponent bit, or a byte's
    CHECK(compare(recording, experiment.name) > 0, "%s: a wrong bit is not seen", experiment.name);
  }
}

// The operands are as described: with integers nothing rounds, and nothing is NaN.
TEST(experiments_have_finite_operands) {
  size_t count;
  const Experiment *list = simt_record::experiments(&count);
  for (size_t i = 0; i < count; i++) {
    if (list[i].input == Experiment::bytes) continue;
    std::vector<uint8_t> input(list[i].input_bytes), output;
    simt_record::fill_input(list[i], 1, input.data());
    run_emulated(list[i], input.data(), &output);
    int nonzero = 0;
    for (size_t b = 0; b < output.size(); b += 4) {
      float x;
      memcpy(&x, &output[b], 4);
      CHECK(x == x && fabsf(x) < 1e7f, "%s: %g", list[i].name, static_cast<double>(x));
      CHECK(list[i].input != Experiment::small_integers || x == rintf(x), "%s: %g", list[i].name,
            static_cast<double>(x));
      nonzero += x != 0.0f;
    }
    CHECK(nonzero > static_cast<int>(output.size() / 16), "%s: nearly all zeros", list[i].name);
  }
}

}  // namespace
}  // namespace simt_test
