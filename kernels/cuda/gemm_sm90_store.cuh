// gemm_sm90_store — stores values in registers to rows of y: the second half of the wide form's hot
// epilogues.
//
// A warp's values leave through its two 2 KiB pieces of staging in turn: 16 rows of one 128-byte line. The
// line's 16-byte chunks are swizzled by the row, as TMA expects; this also keeps the warp's accesses free of
// bank conflicts. A piece is stored by one TMA store where its 16 rows all exist, else by guarded 16-byte
// stores. A residual comes by TMA into the piece before, and y is written over it. Only the warp itself ever
// waits for its pieces. The timeline is in gemm_sm90_kernel.cuh.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_STORE_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_STORE_CUH

#include "cuda/gemm_sm90_finish.cuh"
#include "cuda/ptx/opaque.h"

namespace sie_cuda {

// ---- values of one piece, from eighth `first` on → staging

// bf16 or f16.
template <class Tile, class Ending>
SIE_DEVICE void sm90_write_16(float (&z)[Tile::blocks][Tile::sums], int m, int first, unsigned char *piece) {
  constexpr ptx::Operand type = Ending::y == SIE_F16 ? ptx::Operand::f16 : ptx::Operand::bf16;
  const int lane = static_cast<int>(ptx::lane_id());
#pragma unroll
  for (int i = 0; i < Ending::columns / 8; i += Ending::gated ? 1 : 2) {
    const float *v = sm90_eighth<Tile>(z, m, first + i);
    if constexpr (Ending::gated) {
      const int byte = (4 * i + lane % 4) * 2;
      ptx::store_shared(sm90_staged(piece, lane / 4, byte), ptx::to_16<type>(v[0]));
      ptx::store_shared(sm90_staged(piece, lane / 4 + 8, byte), ptx::to_16<type>(v[2]));
    } else {
      const float *w = sm90_eighth<Tile>(z, m, first + i + 1);
      const uint32_t r[4] = {ptx::pack2<type>(v[0], v[1]), ptx::pack2<type>(v[2], v[3]),
                             ptx::pack2<type>(w[0], w[1]), ptx::pack2<type>(w[2], w[3])};
      ptx::stmatrix_x4(sm90_staged(piece, lane % 16, (i + lane / 16) * 16), r);
    }
  }
}

// f32, without a gate.
template <class Tile, class Ending>
SIE_DEVICE void sm90_write_f32(float (&z)[Tile::blocks][Tile::sums], int m, int first, unsigned char *piece) {
  const int lane = static_cast<int>(ptx::lane_id());
#pragma unroll
  for (int i = 0; i < Ending::columns / 8; i++) {
    const float *v = sm90_eighth<Tile>(z, m, first + i);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      ptx::store_shared(sm90_staged(piece, lane / 4 + 8 * half, (8 * i + lane % 4 * 2) * 4),
                        make_float2(v[2 * half], v[2 * half + 1]));
    }
  }
}

// e4m3: the 128 columns of the piece, which begin at `column` of y, share a scale in each row. The four lanes of a
// row hold them all.
template <class Tile, class Ending>
SIE_DEVICE void sm90_write_e4m3(float (&z)[Tile::blocks][Tile::sums], int m, int first, unsigned char *piece,
                                const GemmEpilogue &e, int32_t row, int32_t rows, int32_t column) {
  constexpr int eighths = Ending::columns / 8;
  const int lane = static_cast<int>(ptx::lane_id());
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < eighths; i++) {
      const float *v = sm90_eighth<Tile>(z, m, first + i) + 2 * half;
      largest = fmaxf(largest, fabsf(v[0]));
      if (!Ending::gated) largest = fmaxf(largest, fabsf(v[1]));
    }
    largest = fmaxf(largest, ptx::shuffle_xor(largest, 1));
    largest = fmaxf(largest, ptx::shuffle_xor(largest, 2));
    const float scale = e4m3_scale(largest), inverse = e4m3_inverse(scale);
    const int line = lane / 4 + 8 * half;
    if (lane % 4 == 0 && row + line < rows) {
      e.y_scale[(row + line) * e.y_scale_ld + column / 128] = scale;
    }
#pragma unroll
    for (int i = 0; i < eighths; i++) {
      const float *v = sm90_eighth<Tile>(z, m, first + i) + 2 * half;
      if constexpr (Ending::gated) {
        *sm90_staged(piece, line, 4 * i + lane % 4) = ptx::to_e4m3(__fmul_rn(v[0], inverse));
      } else {
        ptx::store_shared(sm90_staged(piece, line, 8 * i + lane % 4 * 2),
                          ptx::pack_e4m3x2(__fmul_rn(v[0], inverse), __fmul_rn(v[1], inverse)));
      }
    }
  }
}

// Stores a piece by 16-byte accesses to columns [column, column + Ending::line) of y's rows from `row` on, of
// those that exist.
template <class Ending>
SIE_DEVICE void sm90_store_guarded(const GemmEpilogue &e, unsigned char *piece, int32_t row, int32_t rows,
                                   int32_t column) {
#pragma unroll 1
  for (int i = 0; i < 4; i++) {
    const int chunk = static_cast<int>(ptx::lane_id()) + 32 * i, line = chunk / 8, byte = chunk % 8 * 16;
    if (row + line >= rows) continue;
    unsigned char *y =
        static_cast<unsigned char *>(e.y) + ((row + line) * e.y_ld + column) * Ending::element + byte;
    ptx::store_global_whole(y, ptx::load_shared<uint4>(sm90_staged(piece, line, byte)));
  }
}

// Stores a piece that the warp has written, and closes its group of stores.
template <class Ending>
SIE_DEVICE void sm90_send(const GemmEpilogue &e, const ptx::TensorMap *y_map, unsigned char *piece,
                          int32_t row, int32_t rows, int32_t column) {
  ptx::fence_proxy_async();
  ptx::sync_warp();
  if (row + 16 > rows) {
    sm90_store_guarded<Ending>(e, piece, row, rows, column);
  } else if (ptx::lane_id() == 0) {
    ptx::tma_store_2d(y_map, piece, row, column);
  }
  // Commits also where TMA has nothing to do: the waits count pieces.
  if (ptx::lane_id() == 0) ptx::tma_store_commit();
}

// Finishes the tiles of a consumer warp.
template <class Tile, class Ending>
class Sm90Writer {
 public:
  SIE_DEVICE Sm90Writer(const Sm90Shared<Tile> &shared, const Sm90Gemm &g, const ptx::TensorMap *y_map,
                        const ptx::TensorMap *r_map)
      : shared_(shared), g_(g), y_map_(y_map), r_map_(r_map) {}

  // Asks for the first two pieces of the residual.
  SIE_DEVICE void begin(const Sm90Place &place) const {
    if constexpr (Ending::residual != 0) {
      const int across = pieces_across(place.column), down = blocks_down(place.row, *g_.rows);
      if (across * down > 0) ask(sent_, place.row, place.column);
      if (across > 1 && down > 0) {
        ask(sent_ + 1, place.row, place.column + Ending::columns);
      } else if (across * down > 1) {
        ask(sent_ + 1, place.row + 64, place.column);
      }
    }
  }

  // The tile, piece by piece; count: the CTA's number of it.
  SIE_DEVICE void operator()(float (&z)[Tile::blocks][Tile::sums], const Sm90Place &place, int32_t count) {
    constexpr int eighths = Ending::columns / 8;
    // The columns that are finished at once: few enough that their loads fit the registers left.
    constexpr int of_part = Tile::blocks * Tile::sums > 128 ? 4 : (Ending::gated ? 16 : 8);
    constexpr int parts = eighths > of_part ? eighths / of_part : 1;
    const int32_t rows = *g_.rows;
    const int lane = static_cast<int>(ptx::lane_id());
    const int across = pieces_across(place.column), down = blocks_down(place.row, rows);
    const Sm90Vectors<Tile> vectors(count);
    if (Sm90Vectors<Tile>::exist(g_)) ptx::mbarrier_wait(shared_.vectors_full + vectors.at, vectors.parity);
    const float *vector = shared_.vectors + vectors.at * Tile::vector_floats;
#pragma unroll
    for (int m = 0; m < Tile::blocks_m; m++) {
      if (m >= down) break;
      const int32_t top = ptx::opaque(place.row + 64 * m);
#pragma unroll
      for (int p = 0; p < pieces; p++) {
        if (p >= across) break;
        const int first = p * eighths;
        const int32_t column = ptx::opaque(place.column + p * Ending::columns);
        unsigned char *piece = staging(sent_);
        if constexpr (Ending::residual != 0) ptx::mbarrier_wait(residual(sent_), sent_ / 2 % 2);
#pragma unroll
        for (int part = 0; part < parts; part++) {
          sm90_finish<Tile, Ending, eighths / parts>(z, m, first + part * (eighths / parts), first, g_,
                                                     {top + lane / 4, rows, lane % 4}, vector, piece);
        }
        // What lay there has been read: by the store before, or by the other lanes.
        if (Ending::residual == 0 && lane == 0) ptx::tma_store_wait_read<1>();
        ptx::sync_warp();
        const int32_t y_column = Ending::gated ? column / 2 : column;
        if constexpr (Ending::y == SIE_F32) {
          sm90_write_f32<Tile, Ending>(z, m, first, piece);
        } else if constexpr (Ending::y == SIE_F8E4M3) {
          sm90_write_e4m3<Tile, Ending>(z, m, first, piece, g_.epilogue, top, rows, y_column);
        } else {
          sm90_write_16<Tile, Ending>(z, m, first, piece);
        }
        sm90_send<Ending>(g_.epilogue, y_map_, piece, top, rows, y_column);
        sent_++;
        if constexpr (Ending::residual != 0) ask_next(place, m, p, across, down);
      }
    }
    if (Sm90Vectors<Tile>::exist(g_)) {
      ptx::sync_warp();
      if (lane == 0) ptx::mbarrier_arrive(shared_.vectors_empty + vectors.at);
    }
  }

 private:
  static constexpr int pieces = Tile::columns / Ending::columns;

  // How many pieces of the tile exist, side by side and in 64-row blocks of the warp.
  SIE_DEVICE int pieces_across(int32_t column) const {
    return min(pieces, (g_.epilogue.n - column) / Ending::columns);
  }
  SIE_DEVICE int blocks_down(int32_t row, int32_t rows) const {
    return row < rows ? min(Tile::blocks_m, (rows - row + 63) / 64) : 0;
  }

  // The memory of the warp's piece number `count` since the start, and the barrier of its residual.
  SIE_DEVICE unsigned char *staging(uint32_t count) const {
    return shared_.staging + (ptx::thread_index() / 32 * 2 + static_cast<int>(count % 2)) * sm90_staging;
  }
  SIE_DEVICE uint64_t *residual(uint32_t count) const {
    return shared_.residual + ptx::thread_index() / 32 * 2 + count % 2;
  }

  // Asks for the residual of piece `count`, when the warp is done with what was in its memory.
  SIE_DEVICE void ask(uint32_t count, int32_t row, int32_t column) const {
    ptx::sync_warp();
    if (ptx::lane_id() != 0) return;
    ptx::tma_store_wait_read<0>();
    ptx::mbarrier_arrive_expect(residual(count), sm90_staging);
    ptx::tma_load_2d(staging(count), r_map_, row, column, residual(count));
  }

  // The same for the piece two behind the one that was sent last, which was number p of block m.
  SIE_DEVICE void ask_next(const Sm90Place &place, int m, int p, int across, int down) const {
    m += (p + 2) / across;
    p = (p + 2) % across;
    if (m < down) ask(sent_ + 1, place.row + 64 * m, place.column + p * Ending::columns);
  }

  const Sm90Shared<Tile> &shared_;
  const Sm90Gemm &g_;
  const ptx::TensorMap *y_map_, *r_map_;
  uint32_t sent_ = 0;  // pieces
};

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_STORE_CUH
