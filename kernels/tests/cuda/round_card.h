// round_card.h — a card on which clocks and microseconds are counted by hand.
#ifndef SIE_KERNELS_TESTS_CUDA_ROUND_CARD_H
#define SIE_KERNELS_TESTS_CUDA_ROUND_CARD_H

#include <math.h>

#include "cuda/cost.h"

namespace sie_cuda {

// Returns a card of round numbers.
inline Card round_card() {
  Card c = {};
  c.name = "round";
  c.sm = 90;
  c.multiprocessors = 4;
  c.ghz = 2;
  c.multiply_adds = 1024;
  c.products_share = 0.5;
  c.warp_products = 0.25;
  c.shared_bytes = 128;
  c.l2_bytes = 64;
  c.exponentials = 16;
  c.lanes = 128;
  c.dram_bytes_s = 1e12;
  c.gap_us = 2;
  c.chain_clocks = 40;
  c.load_clocks = 500;
  return c;
}

inline bool same(double got, double want) { return fabs(got - want) <= 1e-9 * fabs(want); }

}  // namespace sie_cuda

#endif  // SIE_KERNELS_TESTS_CUDA_ROUND_CARD_H
