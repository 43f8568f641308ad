// wgmma.h — D = A·B + D on Hopper's tensor cores, one warpgroup (sm_90a): A [64, K], B [N, K], D
// [64, N] in f32.
//
//   bf16, f16  K = 16      e4m3  K = 32      both operands K-major: rows of K contiguous elements;
//   wgmma_by_rows takes B as [K, N] in 16-bit types: rows of N contiguous elements (MN-major)
//   N = 8, 16, 24, 32, 64, 96, 128, 192, 256
//
// The four warps of a warpgroup (warps 4i … 4i+3 of the CTA) call together. D lies in N/2 registers
// a thread: lane l of warp w, g = l/4, t = l%4:
//   d[4j + 0], d[4j + 1]   row 16w + g,     columns 8j + 2t, +1
//   d[4j + 2], d[4j + 3]   row 16w + g + 8, same columns
// The instruction is asynchronous. Order in a warpgroup:
//   wgmma_fence()            after the registers of d (or of a fragment) were written, before the
//                            first wgmma
//   wgmma(...) …             products on the same d follow each other without a wait
//   wgmma_commit()           closes a group
//   wgmma_wait<N>()          returns when at most the N youngest groups are under way; before it
//                            neither d may be touched nor the shared memory of the operands
//                            overwritten
// Shared operands written by threads (not by TMA) need fence_proxy_async before the barrier
// (fence.h). The emulator reads the operands at a random moment before the wait, poisons d until
// then, and aborts where d was touched or the fence is missing. Source: PTX ISA 9.0,
// wgmma.mma_async and its matrix descriptor.
#ifndef SIE_KERNELS_CUDA_PTX_WGMMA_H
#define SIE_KERNELS_CUDA_PTX_WGMMA_H

#include "cuda/ptx/device.h"
#include "cuda/ptx/tma.h"

namespace ptx {

// Descriptor of a K-major operand in shared memory, as TMA writes it with the same swizzle: rows of
// swizzle_row_bytes, eight rows an atom, atoms of the next eight rows `row_group_bytes` further
// (for a dense tile 8·swizzle_row_bytes). The tile starts at a multiple of the atom's size;
// `shared` may lie a multiple of the instruction's K bytes (32) inside the first row, to step along
// K. Without swizzle an atom is 8 rows of 16 bytes; the next 16 bytes of K are `k_group_bytes`
// further.
SIE_DEVICE uint64_t wgmma_descriptor(uint32_t shared, Swizzle swizzle, uint32_t row_group_bytes,
                                     uint32_t k_group_bytes = 16) {
  uint64_t layout = swizzle == Swizzle::none ? 0u : 4u - static_cast<uint32_t>(swizzle);
  return static_cast<uint64_t>((shared & 0x3ffffu) >> 4) |
         static_cast<uint64_t>((k_group_bytes & 0x3ffffu) >> 4) << 16 |
         static_cast<uint64_t>((row_group_bytes & 0x3ffffu) >> 4) << 32 | layout << 62;
}

SIE_DEVICE uint64_t wgmma_descriptor(const void *shared, Swizzle swizzle, uint32_t row_group_bytes,
                                     uint32_t k_group_bytes = 16) {
  return wgmma_descriptor(shared_address(shared), swizzle, row_group_bytes, k_group_bytes);
}

// Descriptor of B for wgmma_by_rows, as TMA writes boxes of swizzle_row_bytes: a row is one k,
// eight rows an atom, the next eight rows `row_group_bytes` further (for a dense box
// 8·swizzle_row_bytes). Columns beyond one row of the swizzle lie `column_group_bytes` further,
// where the next box begins. `shared` is the start of an atom; the next 16 rows of K are
// 2·row_group_bytes further. There is always a swizzle.
SIE_DEVICE uint64_t wgmma_descriptor_by_rows(uint32_t shared, Swizzle swizzle, uint32_t row_group_bytes,
                                             uint32_t column_group_bytes) {
  return wgmma_descriptor(shared, swizzle, row_group_bytes, column_group_bytes);
}

// The descriptor `bytes` further in shared memory, a multiple of 16: for the next K step or stage.
SIE_DEVICE uint64_t wgmma_advance(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }

SIE_DEVICE void wgmma_fence() {
#ifndef __CUDACC__
  simt::wgmma_fence();
#elif SIE_PTX_SM90A
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  unsupported();
#endif
}

SIE_DEVICE void wgmma_commit() {
#ifndef __CUDACC__
  simt::wgmma_commit();
#elif SIE_PTX_SM90A
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  unsupported();
#endif
}

template <int N>
SIE_DEVICE void wgmma_wait() {
  static_assert(N >= 0 && N <= 7, "at most seven groups");
#ifndef __CUDACC__
  simt::wgmma_wait(N);
#elif SIE_PTX_SM90A
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#else
  unsupported();
#endif
}

// Tells the compiler that the accumulators change here. Used around a wait, so that no read of them
// moves before it.
template <int Registers>
SIE_DEVICE void wgmma_keep(float (&d)[Registers]) {
#ifdef __CUDACC__
#pragma unroll
  for (int i = 0; i < Registers; i++) asm volatile("" : "+f"(d[i])::"memory");
#else
  simt::wgmma_keep(d);
#endif
}

// Tells the compiler that fragments of A are read up to here: after the wait, before they change.
template <int Steps>
SIE_DEVICE void wgmma_keep(uint32_t (&a)[Steps][4]) {
#ifdef __CUDACC__
#pragma unroll
  for (int i = 0; i < Steps; i++) {
#pragma unroll
    for (int e = 0; e < 4; e++) asm volatile("" : "+r"(a[i][e])::"memory");
  }
#else
  (void)a;
#endif
}

// Holds a wait back until `sum`, which is never below zero, is computed. ptxas moves arithmetic
// that a wait does not need behind it, and then nothing of it runs under the products; a pause that
// depends on the number, and never comes, stays before the wait. (Lost: an empty asm, which ptxas
// does not see; a trap, which is a branch and takes the registers of D = 128.)
SIE_DEVICE void wgmma_hold(float sum) {
#ifdef __CUDACC__
  asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p nanosleep.u32 1;\n}\n" ::"f"(sum)
               : "memory");
#else
  (void)sum;
#endif
}

// One instruction: wgmma<T, N>(d, a, b, accumulate). With accumulate = 0 what d holds is ignored.
template <Operand T, int N>
struct Wgmma;

template <Operand T, int N>
SIE_DEVICE void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
#ifndef __CUDACC__
  simt::wgmma(static_cast<simt::Element>(T), N, d, nullptr, a, b, accumulate != 0, false);
#else
  Wgmma<T, N>::shared_a(d, a, b, accumulate);
#endif
}

// The same with A in registers: lane l of warp w holds rows 16w … 16w + 15 as a fragment of mma.h.
template <Operand T, int N>
SIE_DEVICE void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int accumulate) {
#ifndef __CUDACC__
  simt::wgmma(static_cast<simt::Element>(T), N, d, a, 0, b, accumulate != 0, false);
#else
  Wgmma<T, N>::register_a(d, a, b, accumulate);
#endif
}

// The same with B as rows of N: [16, N] by wgmma_descriptor_by_rows. N = 64 or 128.
template <Operand T, int N>
struct WgmmaByRows;

template <Operand T, int N>
SIE_DEVICE void wgmma_by_rows(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int accumulate) {
  static_assert(T != Operand::e4m3 && (N == 64 || N == 128), "16-bit types, one or two rows of a swizzle");
#ifndef __CUDACC__
  simt::wgmma(static_cast<simt::Element>(T), N, d, a, 0, b, accumulate != 0, true);
#else
  WgmmaByRows<T, N>::register_a(d, a, b, accumulate);
#endif
}

#ifdef __CUDACC__
#if SIE_PTX_SM90A

// Names of the accumulator registers in the instruction, and the operands behind the names.
#define SIE_PTX_NAMES_4 "%0, %1, %2, %3"
#define SIE_PTX_NAMES_8 SIE_PTX_NAMES_4 ", %4, %5, %6, %7"
#define SIE_PTX_NAMES_12 SIE_PTX_NAMES_8 ", %8, %9, %10, %11"
#define SIE_PTX_NAMES_16 SIE_PTX_NAMES_12 ", %12, %13, %14, %15"
#define SIE_PTX_NAMES_32 \
  SIE_PTX_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SIE_PTX_NAMES_48 \
  SIE_PTX_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SIE_PTX_NAMES_64 \
  SIE_PTX_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SIE_PTX_NAMES_96                                                                    \
  SIE_PTX_NAMES_64                                                                          \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SIE_PTX_NAMES_128                                                                      \
  SIE_PTX_NAMES_96                                                                             \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "   \
  "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
  "%126, %127"
#define SIE_PTX_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIE_PTX_D16(i) SIE_PTX_D4(i), SIE_PTX_D4(i + 4), SIE_PTX_D4(i + 8), SIE_PTX_D4(i + 12)
#define SIE_PTX_D_4 SIE_PTX_D4(0)
#define SIE_PTX_D_8 SIE_PTX_D4(0), SIE_PTX_D4(4)
#define SIE_PTX_D_12 SIE_PTX_D4(0), SIE_PTX_D4(4), SIE_PTX_D4(8)
#define SIE_PTX_D_16 SIE_PTX_D16(0)
#define SIE_PTX_D_32 SIE_PTX_D16(0), SIE_PTX_D16(16)
#define SIE_PTX_D_48 SIE_PTX_D_32, SIE_PTX_D16(32)
#define SIE_PTX_D_64 SIE_PTX_D_48, SIE_PTX_D16(48)
#define SIE_PTX_D_96 SIE_PTX_D_64, SIE_PTX_D16(64), SIE_PTX_D16(80)
#define SIE_PTX_D_128 SIE_PTX_D_96, SIE_PTX_D16(96), SIE_PTX_D16(112)

// P0 … P5: the numbers behind the accumulators' (descriptors, fragment, predicate).
#define SIE_PTX_WGMMA(T, SHAPE, TYPES, FLAGS_SHARED, FLAGS_REGISTER, N, R, P0, P1, P2, P3, P4, P5)         \
  template <>                                                                                              \
  struct Wgmma<Operand::T, N> {                                                                            \
    static SIE_DEVICE void shared_a(float (&d)[R], uint64_t a, uint64_t b, int accumulate) {               \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" P2                                                 \
                   ", 0;\n"                                                                                \
                   "wgmma.mma_async.sync.aligned.m64n" #N SHAPE ".f32." TYPES " {" SIE_PTX_NAMES_##R       \
                   "}, %" P0 ", %" P1 ", p, 1, 1" FLAGS_SHARED ";\n}\n"                                    \
                   : SIE_PTX_D_##R                                                                         \
                   : "l"(a), "l"(b), "r"(accumulate));                                                     \
    }                                                                                                      \
    static SIE_DEVICE void register_a(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int accumulate) { \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" P5                                                 \
                   ", 0;\n"                                                                                \
                   "wgmma.mma_async.sync.aligned.m64n" #N SHAPE ".f32." TYPES " {" SIE_PTX_NAMES_##R       \
                   "}, {%" P0 ", %" P1 ", %" P2 ", %" P3 "}, %" P4 ", p, 1, 1" FLAGS_REGISTER ";\n}\n"     \
                   : SIE_PTX_D_##R                                                                         \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                 \
    }                                                                                                      \
  };
#define SIE_PTX_WGMMA_TYPE(T, SHAPE, TYPES, FLAGS_SHARED, FLAGS_REGISTER)                                   \
  SIE_PTX_WGMMA(T, SHAPE, TYPES, FLAGS_SHARED, FLAGS_REGISTER, 8, 4, "4", "5", "6", "7", "8", "9")          \
  SIE_PTX_WGMMA(T, SHAPE, TYPES, FLAGS_SHARED, FLAGS_REGISTER, 16, 8, "8", "9", "10", "11", "12", "13")     \
  SIE_PTX_WGMMA(T, SHAPE, TYPES, FLAGS_SHARED, FLAGS_REGISTER, 24, 12, "12", "13", "14", "15", "16", "17")  \
  SIE_PTX_WGMMA(T, SHAPE, TYPES, FLAGS_SHARED, FLAGS_REGISTER, 32, 16, "16", "17", "18", "19", "20", "21")  \
  SIE_PTX_WGMMA(T, SHAPE, TYPES, FLAGS_SHARED, FLAGS_REGISTER, 64, 32, "32", "33", "34", "35", "36", "37")  \
  SIE_PTX_WGMMA(T, SHAPE, TYPES, FLAGS_SHARED, FLAGS_REGISTER, 96, 48, "48", "49", "50", "51", "52", "53")  \
  SIE_PTX_WGMMA(T, SHAPE, TYPES, FLAGS_SHARED, FLAGS_REGISTER, 128, 64, "64", "65", "66", "67", "68", "69") \
  SIE_PTX_WGMMA(T, SHAPE, TYPES, FLAGS_SHARED, FLAGS_REGISTER, 192, 96, "96", "97", "98", "99", "100",      \
                "101")                                                                                      \
  SIE_PTX_WGMMA(T, SHAPE, TYPES, FLAGS_SHARED, FLAGS_REGISTER, 256, 128, "128", "129", "130", "131", "132", \
                "133")

// The trailing zeros say that neither operand is transposed; e4m3 has no such choice.
SIE_PTX_WGMMA_TYPE(bf16, "k16", "bf16.bf16", ", 0, 0", ", 0")
SIE_PTX_WGMMA_TYPE(f16, "k16", "f16.f16", ", 0, 0", ", 0")
SIE_PTX_WGMMA_TYPE(e4m3, "k32", "e4m3.e4m3", "", "")

// The last flag says that B is transposed.
#define SIE_PTX_WGMMA_BY_ROWS(T, TYPES, N, R, P0, P1, P2, P3, P4, P5)                                      \
  template <>                                                                                              \
  struct WgmmaByRows<Operand::T, N> {                                                                      \
    static SIE_DEVICE void register_a(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int accumulate) { \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" P5                                                 \
                   ", 0;\n"                                                                                \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPES " {" SIE_PTX_NAMES_##R          \
                   "}, {%" P0 ", %" P1 ", %" P2 ", %" P3 "}, %" P4 ", p, 1, 1, 1;\n}\n"                    \
                   : SIE_PTX_D_##R                                                                         \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                 \
    }                                                                                                      \
  };
#define SIE_PTX_WGMMA_BY_ROWS_TYPE(T, TYPES)                                  \
  SIE_PTX_WGMMA_BY_ROWS(T, TYPES, 64, 32, "32", "33", "34", "35", "36", "37") \
  SIE_PTX_WGMMA_BY_ROWS(T, TYPES, 128, 64, "64", "65", "66", "67", "68", "69")

SIE_PTX_WGMMA_BY_ROWS_TYPE(bf16, "bf16.bf16")
SIE_PTX_WGMMA_BY_ROWS_TYPE(f16, "f16.f16")

#undef SIE_PTX_WGMMA_BY_ROWS_TYPE
#undef SIE_PTX_WGMMA_BY_ROWS
#undef SIE_PTX_WGMMA_TYPE
#undef SIE_PTX_WGMMA
#undef SIE_PTX_D_128
#undef SIE_PTX_D_96
#undef SIE_PTX_D_64
#undef SIE_PTX_D_48
#undef SIE_PTX_D_32
#undef SIE_PTX_D_16
#undef SIE_PTX_D_12
#undef SIE_PTX_D_8
#undef SIE_PTX_D_4
#undef SIE_PTX_D16
#undef SIE_PTX_D4
#undef SIE_PTX_NAMES_128
#undef SIE_PTX_NAMES_96
#undef SIE_PTX_NAMES_64
#undef SIE_PTX_NAMES_48
#undef SIE_PTX_NAMES_32
#undef SIE_PTX_NAMES_16
#undef SIE_PTX_NAMES_12
#undef SIE_PTX_NAMES_8
#undef SIE_PTX_NAMES_4

#else  // another target: a call is a bug of the launcher

template <Operand T, int N>
struct Wgmma {
  static SIE_DEVICE void shared_a(float (&)[N / 2], uint64_t, uint64_t, int) { unsupported(); }
  static SIE_DEVICE void register_a(float (&)[N / 2], const uint32_t (&)[4], uint64_t, int) { unsupported(); }
};

template <Operand T, int N>
struct WgmmaByRows {
  static SIE_DEVICE void register_a(float (&)[N / 2], const uint32_t (&)[4], uint64_t, int) { unsupported(); }
};

#endif
#endif

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_WGMMA_H
