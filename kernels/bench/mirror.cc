// mirror.cc — blocks, their twins, and the table that translates.
#include "bench/mirror.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <vector>

#include "tests/memory.h"

namespace mirror {

namespace {

struct Block {
  size_t bytes;
  uint8_t *twin;  // NULL: none yet
  size_t stride;  // between replicas
  bool named;     // by the call under way or the last one
};

std::map<uint8_t *, Block> blocks;
int64_t replicas = 0;  // 0: copying
int64_t selected = 0;
bool hidden = false;
sie_ops outer = {};
const sie_ops *first_inner = nullptr, *inner = nullptr;

void *allocate(size_t bytes) {
  void *p = nullptr;
  if (posix_memalign(&p, 64, bytes > 0 ? bytes : 1) != 0) abort();
  blocks[static_cast<uint8_t *>(p)] = {bytes, nullptr, 0, false};
  return p;
}

void drop_twin(Block *block) {
  if (block->twin != nullptr) device::release(block->twin);
  block->twin = nullptr;
}

void release(void *p) {
  auto found = blocks.find(static_cast<uint8_t *>(p));
  if (found == blocks.end()) return;  // NULL
  drop_twin(&found->second);
  blocks.erase(found);
  free(p);
}

// The block that p points into, or one past.
std::pair<uint8_t *const, Block> *block_of(const void *p) {
  uint8_t *at = static_cast<uint8_t *>(const_cast<void *>(p));
  auto next = blocks.upper_bound(at);
  if (next == blocks.begin()) return nullptr;
  --next;
  return at <= next->first + next->second.bytes ? &*next : nullptr;
}

// Resident twins are filled when they are made; all replicas get the same contents.
bool make_twin(uint8_t *base, Block *block) {
  const size_t count = replicas > 0 ? static_cast<size_t>(replicas) : 1;
  block->stride = count > 1 ? (block->bytes + 511) / 256 * 256 : block->bytes;
  block->twin = static_cast<uint8_t *>(device::allocate(block->stride * (count - 1) + block->bytes));
  if (block->twin == nullptr) return false;
  if (replicas == 0) return true;
  bool copied = device::copy_in(block->twin, base, block->bytes);
  for (size_t i = 1; i < count; i++)
    copied = copied && device::copy_within(block->twin + i * block->stride, block->twin, block->bytes);
  return copied;
}

class Call {
 public:
  Call() {
    for (auto &entry : blocks) entry.second.named = false;
  }

  template <typename T>
  void pointer(T **p) {
    if (*p == nullptr) return;
    auto *found = block_of(*p);
    if (found == nullptr) {
      fprintf(stderr, "mirror: a pointer that harness::memory did not give\n");
      status_ = SIE_INTERNAL;
      return;
    }
    Block *block = &found->second;
    block->named = true;
    if (block->twin == nullptr && !make_twin(found->first, block)) status_ = SIE_OUT_OF_MEMORY;
    uint8_t *twin = block->twin + static_cast<size_t>(selected) * block->stride;
    *p = reinterpret_cast<T *>(
        twin + (reinterpret_cast<uint8_t *>(const_cast<std::remove_const_t<T> *>(*p)) - found->first));
  }
  void pointer(void **p) { any(p); }
  void pointer(const void **p) { any(const_cast<void **>(p)); }
  void rows(sie_rows *rows) { pointer(&rows->n); }
  void tensor(sie_tensor *t) {
    pointer(&t->p);
    pointer(&t->scale);
    pointer(&t->zero);
    pointer(&t->outlier);
  }
  void weight(const sie_packed **w) {
    if (*w == nullptr) return;
    sie_packed *packed = packed_ + weights_++;
    *packed = **w;
    pointer(&packed->data);
    *w = packed;
  }

  // Adapters lie in memory that itself holds addresses: the device gets a list of its own, one a
  // replica.
  void adapters(const sie_lora_pair **pairs, int32_t count) {
    if (*pairs == nullptr || count == 0) return;
    std::vector<sie_lora_pair> all(*pairs, *pairs + count);
    for (sie_lora_pair &pair : all) pointer(&pair.a), pointer(&pair.b);
    static std::map<int64_t, std::vector<sie_lora_pair, harness::Allocator<sie_lora_pair>>> lists;
    auto &list = lists[selected];
    const size_t bytes = all.size() * sizeof all[0];
    if (list.size() != all.size() || memcmp(list.data(), all.data(), bytes) != 0) {
      list.assign(all.begin(), all.end());
      drop_twin(&block_of(list.data())->second);
    }
    *pairs = list.data();
    pointer(pairs);
  }

  sie_status status() const { return status_; }

  bool copy_in() {
    for (auto &[base, block] : blocks) {
      if (block.named && !device::copy_in(block.twin, base, block.bytes)) return false;
    }
    if (hidden) hide_blocks();
    return true;
  }
  bool copy_out() {
    for (auto &[base, memory] : saved_) memcpy(base, memory.data(), memory.size());
    for (auto &[base, block] : blocks) {
      if (block.named && !device::copy_out(base, block.twin, block.bytes)) return false;
    }
    return true;
  }

 private:
  void any(void **p) {
    uint8_t *bytes = static_cast<uint8_t *>(*p);
    pointer(&bytes);
    *p = bytes;
  }
  void hide_blocks() {
    for (auto &[base, block] : blocks) {
      if (!block.named) saved_[base].assign(base, base + block.bytes);
      memset(base, 0x5a, block.bytes);
    }
  }

  sie_status status_ = SIE_OK;
  sie_packed packed_[2] = {};  // of a call's weights
  int weights_ = 0;
  std::map<uint8_t *, std::vector<uint8_t>> saved_;
};

void translate(Call *c, sie_embed_layernorm_args *a) {
  c->rows(&a->tokens), c->rows(&a->seqs);
  c->pointer(&a->ids), c->pointer(&a->type_ids), c->pointer(&a->cu_seqlens);
  c->tensor(&a->word), c->tensor(&a->position), c->tensor(&a->type);
  c->pointer(&a->gamma), c->pointer(&a->beta);
  c->tensor(&a->y), c->tensor(&a->yq);
}

void translate(Call *c, sie_layernorm_args *a) {
  c->rows(&a->rows);
  c->pointer(&a->gamma), c->pointer(&a->beta), c->pointer(&a->bias);
  for (sie_tensor *t : {&a->x, &a->y, &a->yq, &a->residual, &a->sum}) c->tensor(t);
}

void translate(Call *c, sie_linear_args *a) {
  c->rows(&a->rows);
  c->weight(&a->w);
  c->pointer(&a->bias);
  for (sie_tensor *t : {&a->x, &a->addend, &a->residual, &a->y}) c->tensor(t);
}

void translate(Call *c, sie_linear_norm_args *a) { translate(c, &a->linear), translate(c, &a->norm); }

void translate(Call *c, sie_quantise_rows_args *a) {
  c->rows(&a->rows);
  c->tensor(&a->x), c->tensor(&a->y);
}

void translate(Call *c, sie_attention_args *a) {
  c->rows(&a->q_rows), c->rows(&a->seqs);
  c->pointer(&a->cu_q), c->pointer(&a->cu_kv), c->pointer(&a->alibi_slopes), c->pointer(&a->work),
      c->pointer(&a->bias), c->pointer(&a->prefix_first), c->pointer(&a->prefix_keys),
      c->pointer(&a->buckets);
  for (sie_tensor *t : {&a->q, &a->k, &a->v, &a->y, &a->prefix_k, &a->prefix_v, &a->pos_key, &a->pos_query}) {
    c->tensor(t);
  }
}

void translate(Call *c, sie_gather_rows_args *a) {
  c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens);
  c->tensor(&a->x), c->tensor(&a->y);
}

void translate(Call *c, sie_pool_args *a) {
  c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens), c->pointer(&a->w), c->pointer(&a->index), c->pointer(&a->cu_whole);
  c->tensor(&a->x), c->tensor(&a->y);
}

void translate(Call *c, sie_output_rows_args *a) {
  c->rows(&a->seqs);
  c->tensor(&a->x);
  c->pointer(&a->items), c->pointer(&a->out);
}

void translate(Call *c, sie_qk_norm_rope_args *a) {
  c->rows(&a->tokens), c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens), c->pointer(&a->q_gamma), c->pointer(&a->k_gamma);
  c->pointer(&a->cos), c->pointer(&a->sin), c->pointer(&a->first_position), c->pointer(&a->turns);
  c->tensor(&a->q), c->tensor(&a->k);
}

void translate(Call *c, sie_pool_output_args *a) {
  c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens), c->pointer(&a->w), c->pointer(&a->index), c->pointer(&a->cu_whole);
  c->tensor(&a->x);
  c->pointer(&a->items), c->pointer(&a->out);
}

void translate(Call *c, sie_muvera_args *a) {
  c->rows(&a->tokens), c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens);
  c->tensor(&a->x);
  c->pointer(&a->center), c->pointer(&a->simhash), c->pointer(&a->ams), c->pointer(&a->sketch);
  c->pointer(&a->sketch_output), c->pointer(&a->sketch_source);
  c->pointer(&a->items), c->pointer(&a->out);
}

void translate(Call *c, sie_mark_nonfinite_args *a) {
  c->rows(&a->rows), c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens), c->pointer(&a->place), c->pointer(&a->flags);
  c->tensor(&a->x);
}

void translate(Call *c, sie_join_columns_args *a) {
  c->rows(&a->rows);
  for (sie_tensor &x : a->x) c->tensor(&x);
  c->tensor(&a->y);
}

void translate(Call *c, sie_take_rows_args *a) {
  c->rows(&a->rows), c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens), c->pointer(&a->cu_x), c->pointer(&a->first), c->pointer(&a->last);
  c->tensor(&a->x), c->tensor(&a->y);
}

void translate(Call *c, sie_product_args *a) {
  c->rows(&a->rows);
  c->tensor(&a->a), c->tensor(&a->b), c->tensor(&a->y);
}

void translate(Call *c, sie_dots_args *a) {
  c->rows(&a->rows);
  c->tensor(&a->a), c->tensor(&a->b), c->tensor(&a->y);
}

void translate(Call *c, sie_softmax_args *a) {
  c->rows(&a->rows), c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens);
  c->tensor(&a->x), c->tensor(&a->y);
}

void translate(Call *c, sie_spans_args *a) {
  c->rows(&a->words), c->rows(&a->seqs);
  c->pointer(&a->cu_words), c->pointer(&a->cu_labels), c->pointer(&a->label_group);
  c->tensor(&a->starts), c->tensor(&a->ends), c->tensor(&a->labels), c->tensor(&a->bias);
  c->pointer(&a->found), c->pointer(&a->items), c->pointer(&a->out);
}

void translate(Call *c, sie_pairs_args *a) {
  c->rows(&a->words), c->rows(&a->seqs);
  c->weight(&a->w);
  c->pointer(&a->cu_words), c->pointer(&a->cu_labels), c->pointer(&a->label_group);
  c->pointer(&a->head), c->pointer(&a->head_bias);
  c->tensor(&a->words_x), c->tensor(&a->words_u), c->tensor(&a->labels_x), c->tensor(&a->labels_u);
  c->pointer(&a->found), c->pointer(&a->items), c->pointer(&a->out);
}

void translate(Call *c, sie_lstm_args *a) {
  c->rows(&a->rows), c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens);
  c->weight(&a->w), c->weight(&a->w_reverse);
  c->tensor(&a->gates), c->tensor(&a->y);
}

void translate(Call *c, sie_keep_rows_args *a) {
  c->rows(&a->kept);
  c->pointer(&a->index);
  c->tensor(&a->x), c->tensor(&a->y);
}

void translate(Call *c, sie_splade_args *a) {
  c->rows(&a->tokens), c->rows(&a->seqs);
  c->weight(&a->w);
  c->pointer(&a->cu_seqlens), c->pointer(&a->bias);
  c->tensor(&a->x), c->tensor(&a->y);
}

void translate(Call *c, sie_smve_args *a) {
  c->rows(&a->rows), c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens), c->pointer(&a->anchors);
  c->tensor(&a->x);
  c->pointer(&a->items), c->pointer(&a->out);
}

void translate(Call *c, sie_output_sparse_args *a) {
  c->rows(&a->seqs);
  c->tensor(&a->x);
  c->pointer(&a->items), c->pointer(&a->out);
}

void translate(Call *c, sie_maxsim_args *a) {
  c->rows(&a->rows), c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens), c->pointer(&a->queries), c->pointer(&a->cu_queries), c->pointer(&a->partner);
  c->tensor(&a->x), c->tensor(&a->y);
}

void translate(Call *c, sie_lora_args *a) {
  c->rows(&a->rows), c->rows(&a->seqs);
  c->pointer(&a->cu_seqlens), c->pointer(&a->adapter);
  c->adapters(&a->adapters, a->n_adapters);
  c->tensor(&a->x), c->tensor(&a->y);
}

template <auto Entry, typename Args>
sie_status forward(const Args *args, const sie_share *share) {
  Call call;
  Args a = *args;
  sie_share s = *share;
  translate(&call, &a);
  call.pointer(&s.scratch);
  if (call.status() != SIE_OK || inner->*Entry == nullptr)
    return call.status() != SIE_OK ? call.status() : SIE_UNSUPPORTED;
  if (replicas > 0) return (inner->*Entry)(&a, &s);
  if (!call.copy_in()) return SIE_DEVICE_LOST;
  const sie_status status = (inner->*Entry)(&a, &s), finished = device::finish();
  if (finished != SIE_OK) fprintf(stderr, "mirror: %s\n", device::message().c_str());
  if (!call.copy_out()) return SIE_DEVICE_LOST;
  return status != SIE_OK ? status : finished;
}

sie_status nothing_to_wait_for(const sie_stream *) { return SIE_OK; }

void drop_twins() {
  for (auto &entry : blocks) drop_twin(&entry.second);
}

}  // namespace

void install() { harness::memory = {allocate, release, nothing_to_wait_for}; }

const sie_ops *table(const sie_ops *of) {
  // A new entry of the table belongs here, and its pointers in a translate().
  static_assert(sizeof(sie_ops) == 24 + 33 * sizeof(void *), "an entry is not forwarded");
  first_inner = inner = of;
  outer = *of;
#define SIE_FORWARD(entry) \
  if (of->entry != nullptr) outer.entry = forward<&sie_ops::entry>
  SIE_FORWARD(embed_layernorm);
  SIE_FORWARD(layernorm);
  SIE_FORWARD(linear);
  SIE_FORWARD(quantise_rows);
  SIE_FORWARD(attention);
  SIE_FORWARD(gather_rows);
  SIE_FORWARD(pool);
  SIE_FORWARD(output_rows);
  SIE_FORWARD(qk_norm_rope);
  SIE_FORWARD(pool_output);
  SIE_FORWARD(muvera);
  SIE_FORWARD(keep_rows);
  SIE_FORWARD(splade);
  SIE_FORWARD(output_sparse);
  SIE_FORWARD(smve);
  SIE_FORWARD(maxsim);
  SIE_FORWARD(lora);
  SIE_FORWARD(mark_nonfinite);
  SIE_FORWARD(join_columns);
  SIE_FORWARD(take_rows);
  SIE_FORWARD(product);
  SIE_FORWARD(dots);
  SIE_FORWARD(lstm);
  SIE_FORWARD(spans);
  SIE_FORWARD(pairs);
  SIE_FORWARD(softmax);
  SIE_FORWARD(linear_norm);
#undef SIE_FORWARD
  return &outer;
}

void use(const sie_ops *of) { inner = of != nullptr ? of : first_inner; }

int64_t footprint() {
  int64_t sum = 0;
  for (const auto &entry : blocks) sum += entry.second.named ? static_cast<int64_t>(entry.second.bytes) : 0;
  return sum;
}

bool resident(int64_t count) {
  drop_twins();
  replicas = count;
  selected = 0;
  for (auto &[base, block] : blocks) {
    if (block.named && !make_twin(base, &block)) return false;
  }
  return true;
}

void select(int64_t replica) { selected = replica; }

void copying() {
  drop_twins();
  replicas = 0;
  selected = 0;
}

void hide(bool on) { hidden = on; }

}  // namespace mirror
