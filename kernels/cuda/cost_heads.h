// cost_heads.h — what heads, extraction, adapters and disentangled attention cost, by the model of
// cost.h.
//
// Instructions are those that a warp issues on the way that models take, counted in the machine
// code that nvcc 13.0 makes for sm_90a. An access to shared memory takes as many passes through its
// port as the formulas say: one for each 128 distinct bytes, and of 16 bytes a lane never fewer
// than two.
#ifndef SIE_KERNELS_CUDA_COST_HEADS_H
#define SIE_KERNELS_CUDA_COST_HEADS_H

#include "cuda/cost.h"

namespace sie_cuda {

// linear_f32.cuh: tiles of 16 × 32 outputs, K in lines of 32 through six stages.
Prediction predict_linear_f32(const Card &card, int64_t rows, int64_t n, int64_t k);

// lora.cuh: adapters of one rank; x in 16 bits, y in f32.
struct LoraShape {
  int32_t n, k, rank;
};

// `adapted` of the rows have an adapter; the others' zeros are stored.
Prediction predict_lora(const Card &card, const LoraShape &shape, int64_t rows, int64_t adapted);

// lstm.cuh in clusters of eight CTAs, so to 320 units; gates and y in 16 bits.
struct LstmShape {
  int32_t units, directions;
};

Prediction predict_lstm(const Card &card, const LstmShape &shape, const int32_t *lengths, int64_t seqs);

// The first pass of spans.cuh, operands in 16 bits; `labels` of each sequence.
struct SpansShape {
  int32_t k, widest, labels;
};

Prediction predict_spans(const Card &card, const SpansShape &shape, const int32_t *lengths, int64_t seqs);

// The first pass of pairs.cuh, all in 16 bits; `labels` of each sequence.
struct PairsShape {
  int32_t n, k, labels;
};

Prediction predict_pairs(const Card &card, const PairsShape &shape, const int32_t *lengths, int64_t seqs);

// smve.cuh with normalised rows in 16 bits, without a limit.
struct SmveShape {
  int32_t columns, repetitions, width, top;
};

Prediction predict_smve(const Card &card, const SmveShape &shape, const int32_t *lengths, int64_t seqs);

// attention_disentangled.cuh with both tables.
struct DisentangledShape {
  int32_t heads, dim;
};

Prediction predict_disentangled(const Card &card, const DisentangledShape &shape, const int32_t *lengths,
                                int64_t seqs);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_COST_HEADS_H
