// standin.h — inside the stand-in for the CUDA driver: one process-wide state under one lock.
//
// A stream is a thread that carries out operations in order, each after a random delay; nothing
// else orders two streams, so that whoever forgets to wait for an event reads what is not there
// yet. Memory is host memory between guards. What a correct program never does (a copy beside an
// allocation, from memory that is not pinned, a guard overwritten) prints a line to stderr and
// aborts: no test can overlook it. What a driver answers with a code has that code.
#ifndef SIE_CSRC_CUDA_STANDIN_STANDIN_H
#define SIE_CSRC_CUDA_STANDIN_STANDIN_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver.h"

#define STANDIN_API extern "C" __attribute__((visibility("default")))

namespace standin {

using DevicePointer = unsigned long long;

[[noreturn, gnu::format(printf, 1, 2)]] void die(const char *format, ...);

// ---- what there is

struct Context;

struct Device {
  int ordinal = 0;
  int major = 9, minor = 0;
  int multiprocessors = 4;  // few: a grid of one CTA each is quicker to emulate
  size_t memory = size_t{8} << 30;
  size_t allocated = 0;
  unsigned flags = 0;  // of the primary context
  int retained = 0;
  int lost = 0;                      // the error that no call gets past
  std::shared_ptr<Context> primary;  // while retained
};

struct Event {
  std::shared_ptr<Context> context;
  unsigned flags = 0;
  uint64_t recorded = 0, completed = 0;  // records asked for, and the last that its stream came to
  timespec time = {};
  bool captured = false;  // last recorded in a stream that captures
};

struct Operation {
  enum Kind { kernel, copy, record, wait } kind;
  std::function<void()> run;     // kernel, copy: without the lock
  std::shared_ptr<Event> event;  // record, wait
  uint64_t ticket = 0;           // which record
};

struct Capture {
  int mode;
  std::thread::id thread;
  bool invalidated = false;
  std::vector<Operation> operations;
};

struct Stream {
  std::shared_ptr<Context> context;
  unsigned flags = 0;
  int priority = 0;
  uint64_t number = 0;
  std::deque<Operation> queue;
  uint64_t submitted = 0, finished = 0;
  bool closing = false;
  std::unique_ptr<Capture> capture;
};

struct Context {
  Device *device;
  bool destroyed = false;
  std::set<std::shared_ptr<Stream>> streams;  // destroyed ones too, until their thread has ended
};

using Operations = std::vector<Operation>;

struct State {
  std::mutex mutex;                 // guards all of it
  std::condition_variable changed;  // an operation, a thread or a device has come to its end
  std::deque<Device> devices;
  std::string name = "SIE stand-in GPU";
  int driver = 13000;
  unsigned delay = 100;  // microseconds, at most, before an operation
  uint64_t streams_made = 0;
  std::map<const void *, std::shared_ptr<Stream>> streams;
  std::map<const void *, std::shared_ptr<Event>> events;
  std::map<const void *, std::shared_ptr<const Operations>> graphs, execs;
};

// Never destroyed: threads of streams outlive main.
State &state();

// ---- calls (calls.cc)

enum class Needs { nothing, context };

// One call of a driver function: holds the lock, counts the call, and knows what it must answer
// before it does anything: a failure that a test asked for, no context, or the error that the
// device is lost by.
class Call {
 public:
  explicit Call(const char *name, Needs needs = Needs::context);
  int refusal() const { return injected_ != 0 ? injected_ : refusal_; }
  // Functions that free do it even where a failure was asked for, so that a test can look for leaks
  // afterwards.
  int refusal_to_free() const { return refusal_; }
  int answer(int code) const { return injected_ != 0 ? injected_ : code; }
  const std::shared_ptr<Context> &context() const { return context_; }
  std::unique_lock<std::mutex> &lock() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
  std::shared_ptr<Context> context_;
  int injected_ = 0, refusal_ = 0;
};

// The code that an operation of this kind is to fail with now; with the lock.
int injected_execution(Operation::Kind kind);
// From now on every call for the device answers the code; with the lock.
void lose(Device *device, int code);
// Runs a command of sie_standin_control; with the lock. False: answer says what is wrong with it.
bool control(const std::string &command, std::string *answer);

// ---- contexts (devices.cc)

// The calling thread's; NULL: none.
std::shared_ptr<Context> &current();

// ---- memory (memory.cc); with the lock

// Frees what the context still owns.
void free_all(const Context *context);
// Dies unless [p, p + bytes) lies inside one live allocation of the device's memory.
void check_device_range(const Context *context, DevicePointer p, size_t bytes, const char *what);
// Dies where it is device memory, or is not pinned although it must be.
void check_host_range(const Context *context, const void *p, size_t bytes, bool pinned, const char *what);
std::string describe_memory();

// ---- streams (streams.cc); with the lock

std::shared_ptr<Stream> stream_of(CUstream handle);
// Appends to the stream, or to what it captures.
int submit(Stream *stream, Operation operation);
// Waits until the streams of the context have come to their ends; blocking_only: those that the
// default stream waits for.
void drain(std::unique_lock<std::mutex> &lock, const Context *context, bool blocking_only);

// ---- capture (graphs.cc); with the lock

// What a call answers that may not be made while a stream captures, having spoilt the capture; 0:
// none captures.
int forbidden_while_capturing(int code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);

}  // namespace standin

#endif  // SIE_CSRC_CUDA_STANDIN_STANDIN_H
