// main.cc — what bench/scale.py asks of the engine: the times of operations on one core, the
// bandwidth of reading, the throughput of threads, and how long a text alone takes them. Random
// weights; one JSON object a run, on standard output.
//
//   scale_bench record CLASS LAYERS HEADS DIM FFN TOKENS PASSES    each operation on a slab of TOKENS
//   scale_bench read THREADS MIB                                   threads that read memory of their own
//   scale_bench run CLASS LAYERS HEADS DIM FFN BATCH THREADS MODE SECONDS    batches of texts of 128 tokens
//   scale_bench alone CLASS LAYERS HEADS DIM FFN TOKENS THREADS SECONDS      one text after the other
//
// MODE: off, interleave or copy, as in --numa.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "model.h"
#include "replay.h"
#include "run_parts.h"

namespace {

constexpr int text_tokens = 128;

double read_clock(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
double now() { return read_clock(CLOCK_MONOTONIC); }
// Of this thread on a CPU: what other processes take does not count.
double own_time() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

[[noreturn]] void stop(const char *why) {
  fprintf(stderr, "scale_bench: %s\n", why);
  exit(2);
}

double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

uint32_t class_of(const char *name) {
  for (auto [text, compute] :
       {std::pair{"fp32", SIE_COMPUTE_F32}, {"bf16", SIE_COMPUTE_BF16}, {"int8", SIE_COMPUTE_INT8}}) {
    if (strcmp(name, text) == 0) return compute;
  }
  stop("the class must be fp32, bf16 or int8");
}

model::Shape shape_of(char **numbers) {
  model::Shape shape;
  shape.layers = atoi(numbers[0]);
  shape.heads = atoi(numbers[1]);
  shape.head_dim = atoi(numbers[2]);
  shape.ffn = atoi(numbers[3]);
  shape.tokens = false;
  return shape;
}

model::Batch batch_of(const model::Shape &shape, int tokens) {
  model::Batch batch;
  for (int at = 0, i = 0; at < tokens; at += text_tokens, i++) {
    batch.add(shape, i, std::min(text_tokens, tokens - at));
  }
  return batch;
}

void open(model::Model *m, const char *compute, int threads, const model::Shape &shape, int64_t tokens) {
  m->max_tokens = std::max<int64_t>(tokens, 1024);
  m->max_len = 512;
  if (m->open(SIE_DEVICE_CPU, SIE_ISA_BEST, threads, class_of(compute), shape) != SIE_OK)
    stop(m->err.message);
}

int record_ops(char **given) {
  const model::Shape shape = shape_of(given + 1);
  const int tokens = atoi(given[5]), passes = atoi(given[6]);
  if (tokens < 1 || tokens > 512 || passes < 1) stop("a slab has 1 to 512 tokens");
  model::Model m;
  open(&m, given[0], 1, shape, tokens);
  const model::Batch batch = batch_of(shape, tokens);
  if (model::submit(&m, 0, batch) != SIE_OK || sie_slot_wait(m.slots[0], &m.err) != SIE_OK)
    stop(m.err.message);
  // The slab is computed here, operation by operation; its executor sleeps.
  sie_slot *slot = m.slots[0];
  if (slot->n_slabs != 1) stop("more than one slab");
  sie::Replay replay = sie::make_replay(slot, 0, 0, 0);
  replay.values = m.arena->memory.at(m.program->scratch_bytes);
  const auto &plan = m.program->plan;
  std::vector<std::vector<double>> cold(static_cast<size_t>(plan.size())), hot(cold.size());
  for (int pass = 0; pass <= passes; pass++) {
    for (int64_t i = 0; i < plan.size(); i++) {
      const double begin = own_time();
      if (sie::replay_op(replay, static_cast<int32_t>(i)) != SIE_OK) stop("an operation failed");
      const double between = own_time();
      sie::replay_op(replay, static_cast<int32_t>(i));
      const double end = own_time();
      if (pass == 0) continue;
      cold[static_cast<size_t>(i)].push_back(between - begin);
      hot[static_cast<size_t>(i)].push_back(end - between);
    }
  }
  printf("{\"tokens\": %d, \"ops\": [", tokens);
  for (int64_t i = 0; i < plan.size(); i++) {
    const sie::Op &op = plan[i].op;
    // Of tables only single rows are read.
    const sie_weight *w =
        op.weights[0] != nullptr && op.weights[0]->kind == SIE_WEIGHT_LINEAR ? op.weights[0] : nullptr;
    printf("%s{\"op\": \"%s\", \"weight_bytes\": %lld, \"cold\": %.9f, \"hot\": %.9f}", i > 0 ? ", " : "",
           sie::op_name(op.kind), w != nullptr ? static_cast<long long>(w->data.bytes) : 0,
           median(cold[static_cast<size_t>(i)]), median(hot[static_cast<size_t>(i)]));
  }
  printf("]}\n");
  return 0;
}

struct Reader {
  pthread_t id;
  size_t bytes;
  double rate;
  uint64_t sum;
};

// Reads memory of its own, which it has touched first, from beginning to end for half a second.
void *read_memory(void *argument) {
  Reader *r = static_cast<Reader *>(argument);
  std::vector<uint64_t> memory(r->bytes / 8, 1);
  const double begin = now();
  double end;
  size_t read = 0;
  do {
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i + 8 <= memory.size(); i += 8) {  // each line once
      a += memory[i] + memory[i + 4];
      b += memory[i + 1] + memory[i + 5];
      c += memory[i + 2] + memory[i + 6];
      d += memory[i + 3] + memory[i + 7];
    }
    r->sum += a + b + c + d;
    read += r->bytes;
    end = now();
  } while (end - begin < 0.5);
  r->rate = static_cast<double>(read) / (end - begin);
  return nullptr;
}

int read_rates(char **given) {
  const int threads = atoi(given[0]);
  if (threads < 1 || threads > 1024) stop("1 to 1,024 threads");
  std::vector<Reader> readers(static_cast<size_t>(threads));
  for (Reader &r : readers) {
    r.bytes = static_cast<size_t>(atoi(given[1])) << 20;
    if (pthread_create(&r.id, nullptr, read_memory, &r) != 0) stop("no thread");
  }
  double all = 0;
  for (Reader &r : readers) {
    pthread_join(r.id, nullptr);
    all += r.rate;
  }
  printf("{\"threads\": %d, \"bytes_per_s\": %.0f}\n", threads, all);
  return 0;
}

int run_threads(char **given) {
  const model::Shape shape = shape_of(given + 1);
  const int tokens = atoi(given[5]), threads = atoi(given[6]);
  const std::string mode = given[7];
  if (mode != "off" && mode != "interleave" && mode != "copy")
    stop("the mode must be off, interleave or copy");
  model::Model m;
  m.one_node = mode == "off";
  m.placement = mode == "copy" ? SIE_PLACE_COPIED : SIE_PLACE_INTERLEAVED;
  open(&m, given[0], threads, shape, tokens);
  const model::Batch batch = batch_of(shape, tokens);
  const double seconds = atof(given[8]);
  long batches = 0;
  double begin = 0, end = 0, used = 0;
  // Two batches in flight, as the server has; the clock starts when the first two are done.
  for (int i = 0; i < 2; i++) {
    if (model::submit(&m, i, batch) != SIE_OK) stop(m.err.message);
  }
  for (int i = 0;; i++) {
    if (sie_slot_wait(m.slots[i % 2], &m.err) != SIE_OK) stop(m.err.message);
    end = now();
    if (i == 1) {
      begin = end;
      used = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    }
    if (i > 1) batches++;
    if (i > 2 && end - begin >= seconds) break;
    if (model::submit(&m, i % 2, batch) != SIE_OK) stop(m.err.message);
  }
  used = read_clock(CLOCK_PROCESS_CPUTIME_ID) - used;
  sie_slot_wait(m.slots[0], nullptr);
  sie_slot_wait(m.slots[1], nullptr);
  sie_device_info info = {};
  info.struct_size = sizeof info;
  sie_device_query(m.device, &info, nullptr);
  const double done = static_cast<double>(batches) * tokens;
  printf(
      "{\"threads\": %d, \"numa\": \"%s\", \"batch_tokens\": %d, \"tokens_per_s\": %.1f, "
      "\"tokens_per_cpu_s\": %.1f, \"nodes\": %d, \"nodes_used\": %d, \"cores\": %d, \"caches\": %d, "
      "\"weight_bytes\": %lld}\n",
      info.threads, mode.c_str(), tokens, done / (end - begin), done / used, info.nodes, info.nodes_used,
      info.cores, info.caches, static_cast<long long>(info.memory_weights));
  return 0;
}

// A text after the other, of which a team of executors computes each: from submit to the end of wait.
int time_alone(char **given) {
  const model::Shape shape = shape_of(given + 1);
  const int tokens = atoi(given[5]), threads = atoi(given[6]);
  if (tokens < 1 || tokens > 512) stop("a text has 1 to 512 tokens");
  model::Model m;
  open(&m, given[0], threads, shape, tokens);
  model::Batch batch;
  batch.add(shape, 0, tokens);
  std::vector<double> took;
  for (double begin = now(), end = begin; took.size() < 4 || end - begin < atof(given[7]);) {
    const double before = now();
    if (model::submit(&m, 0, batch) != SIE_OK || sie_slot_wait(m.slots[0], &m.err) != SIE_OK)
      stop(m.err.message);
    end = now();
    took.push_back(end - before);
  }
  took.erase(took.begin());  // its weights were cold
  const int32_t members = sie::shares_of(m.slots[0])[0].members;
  printf(
      "{\"threads\": %d, \"tokens\": %d, \"members\": %d, \"texts\": %zu, \"seconds\": %.9f, \"least\": "
      "%.9f}\n",
      threads, tokens, members, took.size(), median(took), *std::min_element(took.begin(), took.end()));
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "record" && argc == 9) return record_ops(argv + 2);
  if (what == "read" && argc == 4) return read_rates(argv + 2);
  if (what == "run" && argc == 11) return run_threads(argv + 2);
  if (what == "alone" && argc == 10) return time_alone(argv + 2);
  stop("see the head of bench/scale/main.cc");
}
