// calls.cc — counts calls, makes them fail where a test asked for it, and runs the commands of
// sie_standin_control.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/standin/standin.h"

namespace standin {

namespace {

// The call that brings `left` to 0 returns `code`. name "": any call.
struct Failure {
  std::string name;
  uint64_t left;
  int code;
  bool sticky;
};

struct Failures {
  std::vector<Failure> pending;
  std::map<std::string, uint64_t> calls;
};

Failures &failures() {
  static Failures *all = new Failures;
  return *all;
}

// Counts one call or operation. Returns the code of the failure that is due now, or 0.
int next(const char *name, bool any, bool *sticky) {
  int code = 0;
  std::vector<Failure> &pending = failures().pending;
  for (size_t i = 0; i < pending.size();) {
    Failure &failure = pending[i];
    if ((failure.name.empty() ? any : failure.name == name) && --failure.left == 0) {
      code = failure.code;
      *sticky = failure.sticky;
      pending.erase(pending.begin() + static_cast<ptrdiff_t>(i));
    } else {
      i++;
    }
  }
  return code;
}

bool number(const std::vector<std::string> &words, size_t i, uint64_t *value) {
  if (i >= words.size() || words[i].empty()) return false;
  char *end;
  *value = strtoull(words[i].c_str(), &end, 0);
  return *end == '\0';
}

std::vector<std::string> split(const std::string &command) {
  std::vector<std::string> words;
  std::string word;
  for (char c : command + " ") {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(word);
      word.clear();
    }
  }
  return words;
}

bool ask_for_failure(const std::vector<std::string> &words, bool any) {
  Failure failure = {};
  size_t i = 1;
  uint64_t code = 0;
  if (!any && i < words.size()) failure.name = words[i++];
  if (any == failure.name.empty() && number(words, i, &failure.left) && number(words, i + 1, &code) &&
      code != 0 && failure.left != 0) {
    failure.code = static_cast<int>(code);
    failure.sticky = words.size() == i + 3 && words[i + 2] == "sticky";
    if (words.size() == i + 2 || failure.sticky) {
      failures().pending.push_back(failure);
      return true;
    }
  }
  return false;
}

// Sets properties of all devices, or of the one that the last word names. False: a word is wrong.
bool set_devices(const std::vector<std::string> &words) {
  uint64_t only = 0, value = 0;
  if (words.size() > 3 || (words.size() == 3 && (!number(words, 2, &only) || only >= state().devices.size())))
    return false;
  int major = 0, minor = 0;
  const bool capability = words[0] == "capability";
  if (words.size() < 2) return false;
  if (capability ? sscanf(words[1].c_str(), "%d.%d", &major, &minor) != 2 : !number(words, 1, &value))
    return false;
  for (Device &device : state().devices) {
    if (words.size() == 3 && device.ordinal != static_cast<int>(only)) continue;
    if (capability) {
      device.major = major;
      device.minor = minor;
    } else if (words[0] == "memory") {
      device.memory = value;
    } else {
      device.multiprocessors = static_cast<int>(value);
    }
  }
  return true;
}

bool set_device_count(uint64_t count) {
  std::deque<Device> &devices = state().devices;
  for (const Device &device : devices) {
    if (device.retained > 0) return false;
  }
  while (devices.size() > count) devices.pop_back();
  while (devices.size() < count) {
    devices.push_back(devices.empty() ? Device{} : devices.front());
    devices.back().ordinal = static_cast<int>(devices.size()) - 1;
  }
  return true;
}

// Forgets failures, and makes lost devices usable again if no caller holds their context.
bool reset() {
  failures().pending.clear();
  bool all = true;
  for (Device &device : state().devices) {
    if (device.lost != 0 && device.retained > 0) {
      all = false;
    } else {
      device.lost = 0;
    }
  }
  return all;
}

std::string list_handles() {
  State &s = state();
  size_t contexts = 0;
  for (const Device &device : s.devices) contexts += device.primary != nullptr;
  char text[160];
  snprintf(text, sizeof text, "contexts %zu streams %zu events %zu graphs %zu execs %zu", contexts,
           s.streams.size(), s.events.size(), s.graphs.size(), s.execs.size());
  return text;
}

// How many kernels may start under the end of the one before. The first of a graph and one behind a
// copy have no kernel before them.
std::string list_programmatic() {
  size_t edges = 0, kernels = 0;
  for (const auto &[handle, operations] : state().execs) {
    const Operation *before = nullptr;
    for (const Operation &operation : *operations) {
      kernels += operation.kind == Operation::kernel;
      edges += operation.programmatic && before != nullptr && before->kind == Operation::kernel;
      before = &operation;
    }
  }
  char text[160];
  snprintf(text, sizeof text, "launches %llu of %llu edges %zu of %zu",
           static_cast<unsigned long long>(state().launched_programmatic),
           static_cast<unsigned long long>(state().launched), edges, kernels);
  return text;
}

std::string list_calls() {
  std::string text;
  for (const auto &[name, count] : failures().calls) text += name + " " + std::to_string(count) + "\n";
  return text;
}

}  // namespace

State &state() {
  static State *all = [] {
    State *made = new State;
    made->devices.emplace_back();
    return made;
  }();
  return *all;
}

void die(const char *format, ...) {
  fprintf(stderr, "CUDA stand-in: ");
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  fflush(stderr);
  abort();
}

void lose(Device *device, int code) {
  if (device->lost == 0) device->lost = code;
  state().changed.notify_all();
}

Call::Call(const char *name, Needs needs) : lock_(state().mutex) {
  failures().calls[name]++;
  context_ = current();
  bool sticky = false;
  injected_ = next(name, true, &sticky);
  if (injected_ != 0 && sticky) {
    // All devices, if the call is for none in particular.
    for (Device &device : state().devices) {
      if (context_ == nullptr || context_->device == &device) lose(&device, injected_);
    }
  }
  if (needs == Needs::nothing) return;
  if (context_ == nullptr) {
    refusal_ = CUDA_ERROR_INVALID_CONTEXT;
  } else if (context_->destroyed) {
    refusal_ = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  } else {
    refusal_ = context_->device->lost;
  }
}

int injected_execution(Operation::Kind kind) {
  bool sticky;
  return next(kind == Operation::kernel ? "kernel" : "copy", false, &sticky);
}

bool control(const std::string &command, std::string *answer) {
  State &s = state();
  const std::vector<std::string> words = split(command);
  const std::string verb = words.empty() ? "" : words[0];
  uint64_t value = 0;
  const bool one_number = words.size() == 2 && number(words, 1, &value);
  if (verb == "calls") {
    *answer = list_calls();
  } else if (verb == "reset-calls") {
    failures().calls.clear();
    s.launched = s.launched_programmatic = 0;
  } else if (verb == "allocated") {
    *answer = describe_memory();
  } else if (verb == "handles") {
    *answer = list_handles();
  } else if (verb == "programmatic") {
    *answer = list_programmatic();
  } else if (verb == "pending") {
    *answer = std::to_string(failures().pending.size());
  } else if (verb == "name" && words.size() > 1) {
    s.name = command.substr(command.find(words[1]));
  } else if (verb == "driver" && one_number) {
    s.driver = static_cast<int>(value);
  } else if (verb == "delay" && one_number && value < 1000000) {
    s.delay = static_cast<unsigned>(value);
  } else if (verb == "devices" && one_number) {
    if (set_device_count(value)) return true;
    *answer = "a primary context is retained: release it before the number of devices changes";
    return false;
  } else if (verb == "reset") {
    if (reset()) return true;
    *answer = "a lost device keeps its error until its primary context is released";
    return false;
  } else if (!(((verb == "fail" || verb == "fail-any") && ask_for_failure(words, verb == "fail-any")) ||
               ((verb == "capability" || verb == "memory" || verb == "multiprocessors") &&
                set_devices(words)))) {
    *answer = "not a command: " + command + " (csrc/cuda/standin/README.md lists them)";
    return false;
  }
  return true;
}

namespace {

// Runs the commands in the environment, which act before a test's first call: SIE_STANDIN="devices
// 2; fail cuInit 1 999".
void obey_environment() {
  const char *text = getenv("SIE_STANDIN");
  if (text == nullptr) return;
  std::string commands = text, answer;
  for (size_t at = 0; at < commands.size();) {
    size_t end = commands.find(';', at);
    if (end == std::string::npos) end = commands.size();
    const std::string command = commands.substr(at, end - at);
    if (!split(command).empty() && !control(command, &answer)) die("SIE_STANDIN: %s", answer.c_str());
    at = end + 1;
  }
}

}  // namespace

}  // namespace standin

using namespace standin;

// Runs a command. 0: done, and answer [size] has the command's answer, "" for most; -1: not done,
// and answer says why. An answer that is too long is cut. May be called from any thread.
STANDIN_API int sie_standin_control(const char *command, char *answer, size_t size) {
  std::string text;
  std::unique_lock<std::mutex> lock(state().mutex);
  const bool done = control(command, &text);
  if (size > 0) snprintf(answer, size, "%s", text.c_str());
  return done ? 0 : -1;
}

STANDIN_API int cuInit(unsigned) {
  static std::once_flag once;
  std::call_once(once, [] {
    std::unique_lock<std::mutex> lock(state().mutex);
    obey_environment();
  });
  Call call("cuInit", Needs::nothing);
  if (call.refusal() != 0) return call.refusal();
  return state().devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}
