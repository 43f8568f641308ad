// gpu_run.cc — runs a batch on a GPU: its kernels one after another, or as a graph.
#include "cuda/gpu_program.h"
#include "gpu.h"
#include "status.h"

namespace sie {

namespace {

// Where a program's memory lies in the arena. The batch's input comes first for every program.
struct Places {
  char *input, *values, *scratch;
};

Places places_in(const sie_arena *arena, const sie_program *program) {
  char *values = arena->placed + program->gpu->layouts[whole_bucket].bytes;
  return {arena->placed, values, values + program->values_bytes};
}

// Enqueues every operation. `bounds` size the grids: those of the bucket for a graph, else those of
// this batch.
sie_status launch_all(const sie_program *program, const sie_slot *slot, const InputLayout &layout,
                      const InputBounds &bounds, const sie_stream *on, sie_error *err) {
  const sie_arena *arena = slot->arena;
  Places places = places_in(arena, program);
  auto input = [&places](int64_t offset) {
    return offset > 0 ? reinterpret_cast<const int32_t *>(places.input + offset) : nullptr;
  };
  const int32_t *counts = reinterpret_cast<const int32_t *>(places.input);
  Slab slab = {};
  Replay replay = {};
  slab.max_len = bounds.longest;
  slab.max_keys = bounds.longest_keys;
  for (int32_t s = 1; s <= max_spaces; s++) {
    slab.spaces[s] = {0, s != program->seqs ? input(layout.offsets[s]) : nullptr, input(layout.index[s]),
                      nullptr};
    replay.rows[s] = {bounds.rows[s], counts + s};
  }
  for (int32_t i = 1; i <= max_inputs; i++) slab.inputs[i] = input(layout.inputs[i]);
  for (int32_t i = 0; i < max_outputs; i++) {
    slab.items[i] = reinterpret_cast<const sie_out_item *>(input(layout.items[i]));
  }
  replay.program = program;
  replay.slab = &slab;
  replay.lora_pairs = reinterpret_cast<const sie_lora_pair *>(places.input + layout.pairs);
  replay.values = places.values;
  replay.share = {0, 1, places.scratch, program->scratch_bytes, on};
  replay.one_row_each = input(layout.offsets[program->seqs]);
  for (int32_t i = 0; i < program->n_work_lists; i++) replay.work[i] = places.input + layout.work[i];
  for (int32_t i = 0; i < max_outputs; i++) replay.outputs[i] = arena->outputs[i];
  replay.nonfinite = reinterpret_cast<int32_t *>(places.input + layout.nonfinite);
  if (slot->kept != nullptr) {
    replay.state = slot->kept->base();
    replay.state_rows = slot->kept_cap;
  }
  for (int32_t i = 0; i < program->plan.size(); i++) {
    sie_status status = replay_op(replay, i);
    SIE_FAIL_IF(status != SIE_OK, status, err, "operation %d (%s) was not launched, status %d", i,
                op_name(program->plan[i].op.kind), static_cast<int>(status));
  }
  return SIE_OK;
}

InputBounds bounds_of(const sie_program *program, const InputLayout &layout) {
  InputBounds bounds = {};
  bounds.longest = layout.longest;
  bounds.longest_keys = layout.longest_keys;
  for (int32_t s = 1; s <= max_spaces; s++) {
    bounds.rows[s] = s == program->seqs ? layout.seqs : layout.tokens;
  }
  return bounds;
}

void drop(Graph *graph) {
  if (graph->exec != nullptr) (void)cuGraphExecDestroy(graph->exec);
  *graph = {};
}

// Captures what launch_all launches. If the driver refuses, there is no graph, which is no error; the
// device counts it.
sie_status capture(const sie_program *program, const sie_slot *slot, const InputLayout &layout, Graph *graph,
                   sie_error *err) {
  CUstream stream = static_cast<CUstream>(program->device->on.stream);
  graph->impossible = true;
  if (cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS) {
    program->device->graphs_refused++;
    return SIE_OK;
  }
  sie_status status =
      launch_all(program, slot, layout, bounds_of(program, layout), &program->device->captured, err);
  CUgraph recorded = nullptr;
  int ended = cuStreamEndCapture(stream, &recorded);
  if (status == SIE_OK && ended == CUDA_SUCCESS && recorded != nullptr) {
    CUgraphExec exec = nullptr;
    if (cuGraphInstantiateWithFlags(&exec, recorded, 0) == CUDA_SUCCESS) {
      graph->exec = exec;
      graph->impossible = false;
    }
  }
  if (recorded != nullptr) (void)cuGraphDestroy(recorded);
  if (graph->impossible) program->device->graphs_refused++;
  return status == SIE_DEVICE_LOST ? status : SIE_OK;
}

sie_status submit_graph(const sie_program *program, const sie_slot *slot, sie_error *err) {
  const GraphKey key = {slot->arena->number, slot->kept != nullptr ? slot->kept->number : 0, slot->kept_cap};
  Graph *graph = &program->gpu->graphs[slot->gpu->bucket];
  const InputLayout &layout = program->gpu->layouts[slot->gpu->bucket];
  if (!(graph->key == key)) {
    drop(graph);
    graph->key = key;
  }
  // The first run loads the kernels, which is impossible during a capture.
  if (graph->runs++ > 0 && graph->exec == nullptr && !graph->impossible) {
    SIE_TRY(capture(program, slot, layout, graph, err));
  }
  if (graph->exec == nullptr) {
    return launch_all(program, slot, layout, bounds_of(program, layout), &program->device->on, err);
  }
  int result = cuGraphLaunch(graph->exec, static_cast<CUstream>(program->device->on.stream));
  return result == CUDA_SUCCESS ? SIE_OK : driver_failure(result, "graph", err);
}

sie_status submit_batch(const sie_program *program, const sie_slot *slot, sie_error *err) {
  if (slot->gpu->bucket < whole_bucket && program->device->graphs) return submit_graph(program, slot, err);
  return launch_all(program, slot, program->gpu->layouts[slot->gpu->bucket], slot->gpu->sizes,
                    &program->device->on, err);
}

}  // namespace

sie_status gpu_program_end(sie_program *program, sie_error *err) {
  gpu_program_free(program);
  GpuProgram *gpu = new_object<GpuProgram>();
  SIE_FAIL_IF(gpu == nullptr, SIE_OUT_OF_MEMORY, err, "no memory to plan a program");
  for (int32_t i = 0; i <= whole_bucket; i++) lay_out_input(program, i, &gpu->layouts[i]);
  program->gpu = gpu;
  return SIE_OK;
}

void gpu_program_free(sie_program *program) {
  if (program->gpu == nullptr) return;
  for (Graph &graph : program->gpu->graphs) drop(&graph);
  destroy_object(program->gpu);
  program->gpu = nullptr;
}

sie_status gpu_submit(sie_program *program, sie_arena *arena, sie_slot *slot, sie_error *err) {
  int64_t need = gpu_program_input_bytes(program) + lane_bytes(program);
  SIE_FAIL_IF(arena->placed == nullptr, SIE_INVALID_ARGUMENT, err, "the arena is not placed");
  SIE_FAIL_IF(arena->bytes < need, SIE_INVALID_ARGUMENT, err,
              "the arena has %lld bytes; the program needs %lld", static_cast<long long>(arena->bytes),
              static_cast<long long>(need));
  for (int32_t i = 0; i < program->n_outputs; i++) {
    SIE_FAIL_IF(arena->output_bytes[i] < slot->caps.output_bytes[i], SIE_INVALID_ARGUMENT, err,
                "output %d has %lld bytes in the arena; the slot has %lld", i,
                static_cast<long long>(arena->output_bytes[i]),
                static_cast<long long>(slot->caps.output_bytes[i]));
  }
  slot->arena = arena;
  const StateWrite write = write_of(slot);
  begin_write(write);
  SIE_TRY(submit_batch(program, slot, err));
  end_write(write);
  return SIE_OK;
}

int64_t gpu_program_input_bytes(const sie_program *program) {
  return program->gpu->layouts[whole_bucket].bytes;
}

}  // namespace sie
