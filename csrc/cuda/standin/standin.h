// standin.h — inside the stand-in for the CUDA driver: one process-wide state under one lock.
//
// A stream is a thread that carries out operations in order, each after a random delay. Nothing
// else orders two streams, so a program that forgets to wait for an event reads data that is not
// there yet. Memory is host memory between guards. A mistake that no correct program makes (a copy
// outside an allocation, a copy from memory that is not pinned, an overwritten guard) prints a line
// to stderr and aborts, so that no test can overlook it. Where a driver returns a code, the
// stand-in returns that code.
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
  int multiprocessors = 4;  // few, because a grid of one CTA each is quicker to emulate
  size_t memory = size_t{8} << 30;
  size_t allocated = 0;
  unsigned flags = 0;  // of the primary context
  int retained = 0;
  int lost = 0;                      // if not 0, the code that every call returns
  std::shared_ptr<Context> primary;  // while retained
};

struct Event {
  std::shared_ptr<Context> context;
  unsigned flags = 0;
  uint64_t recorded = 0, completed = 0;  // records submitted, and the last one done
  timespec time = {};
  bool captured = false;  // last recorded in a stream that was capturing
};

struct Operation {
  enum Kind { kernel, copy, record, wait } kind;
  std::function<void()> run;     // kernel, copy: called without the lock
  std::shared_ptr<Event> event;  // record, wait
  uint64_t ticket = 0;           // which record
  bool programmatic = false;     // kernel: may start under the end of the kernel before
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
  std::set<std::shared_ptr<Stream>> streams;  // also destroyed ones, until their thread has ended
  // Carries staged copies of pageable memory to the device; made by the first, blocking, and no
  // handle names it.
  std::shared_ptr<Stream> transfers;
};

using Operations = std::vector<Operation>;

struct State {
  std::mutex mutex;                 // guards everything here
  std::condition_variable changed;  // an operation or a thread has ended, or a device is lost
  std::deque<Device> devices;
  std::string name = "SIE stand-in GPU";
  int driver = 13000;
  unsigned delay = 100;  // the longest delay before an operation, in microseconds
  uint64_t streams_made = 0;
  uint64_t launched = 0, launched_programmatic = 0;  // kernels, outside captures
  std::map<const void *, std::shared_ptr<Stream>> streams;
  std::map<const void *, std::shared_ptr<Event>> events;
  std::map<const void *, std::shared_ptr<const Operations>> graphs, execs;
};

// Never destroyed, because threads of streams outlive main.
State &state();

// ---- calls (calls.cc)

enum class Needs { nothing, context };

// One call of a driver function. It holds the lock, counts the call, and knows which code the call
// must return before it does anything: a failure that a test asked for, no context, or the error by
// which the device was lost.
class Call {
 public:
  explicit Call(const char *name, Needs needs = Needs::context);
  int refusal() const { return injected_ != 0 ? injected_ : refusal_; }
  // Functions that free something free it even if a test asked them to fail, so that the test can
  // look for leaks afterwards.
  int refusal_to_free() const { return refusal_; }
  int answer(int code) const { return injected_ != 0 ? injected_ : code; }
  const std::shared_ptr<Context> &context() const { return context_; }
  std::unique_lock<std::mutex> &lock() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
  std::shared_ptr<Context> context_;
  int injected_ = 0, refusal_ = 0;
};

// The code with which an operation of this kind must fail now, or 0; with the lock.
int injected_execution(Operation::Kind kind);
// From now on every call for the device returns the code; with the lock.
void lose(Device *device, int code);
// Runs a command of sie_standin_control; with the lock. False: answer says what is wrong with the
// command.
bool control(const std::string &command, std::string *answer);

// ---- contexts (devices.cc)

// The current context of the calling thread; NULL if it has none.
std::shared_ptr<Context> &current();

// ---- memory (memory.cc); with the lock

// Frees what the context still owns.
void free_all(const Context *context);
// Dies unless [p, p + bytes) lies inside one live allocation of the device's memory.
void check_device_range(const Context *context, DevicePointer p, size_t bytes, const char *what);
// Dies if it is device memory, or if it is not pinned although it must be.
void check_host_range(const Context *context, const void *p, size_t bytes, bool pinned, const char *what);
bool is_pinned(const void *p);
std::string describe_memory();

// ---- streams (streams.cc); with the lock

std::shared_ptr<Stream> stream_of(CUstream handle);
// Makes a stream of the context, with its thread.
std::shared_ptr<Stream> start_stream(const std::shared_ptr<Context> &context, unsigned flags, int priority);
// Appends to the stream, or to what it captures.
int submit(Stream *stream, Operation operation);
// Waits until the streams of the context are empty. blocking_only: only those that the default
// stream waits for.
void drain(std::unique_lock<std::mutex> &lock, const Context *context, bool blocking_only);

// ---- capture (graphs.cc); with the lock

// For calls that are forbidden while a stream captures: invalidates the captures that forbid the
// call, and returns the code to answer; 0 if there are none.
int forbidden_while_capturing(int code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);

}  // namespace standin

#endif  // SIE_CSRC_CUDA_STANDIN_STANDIN_H
