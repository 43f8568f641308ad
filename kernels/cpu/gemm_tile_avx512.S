# gemm_tile_avx512.S: the tiles of gemm_tile.h for AVX-512:
# void tile_<reach>_<rows>_<vecs>(const TileArgs *).
#
# It is in assembly because the compiler does not guarantee 27 accumulators that never move, no
# address in memory, and the place of the loop. Xeons clock wide vectors by their current, so each
# load and fetch besides the FMAs costs clock (docs/adr/0012). Two rows of b a turn: three are no
# faster, four leave the loop buffer and lose 3 %.
#
#   rdi  args, then step in bytes     rsi  lda in bytes      r9   b             r11  k left
#   rax, rdx, r8  rows 0, 3, 6 of a   rcx  ahead, or next    r10  ldb in bytes
#   rbx  ahead of the second row of b
#   zmm0 …       accumulators, rows · vecs, then vecs of b, then a broadcast
  .intel_syntax noprefix
  .altmacro
  .text

# The offsets of TileArgs, which gemm_tile.h asserts.
  .set ARG_A, 0
  .set ARG_LDA, 8
  .set ARG_B, 16
  .set ARG_LDB, 24
  .set ARG_K, 32
  .set ARG_C, 40
  .set ARG_LDC, 48
  .set ARG_BIAS, 56
  .set ARG_RESIDUAL, 64
  .set ARG_LDR, 72
  .set ARG_AHEAD, 80
  .set ARG_NEXT, 88
  .set ARG_STEP, 96

# Reaches, as enum Reach.
  .set HERE, 0
  .set STREAM, 1
  .set SHARE, 2

.macro LOAD vec, address:vararg
  vmovups zmm\vec, [\address]
.endm
.macro STORE vec, address:vararg
  vmovups [\address], zmm\vec
.endm
.macro SUM vec, other
  vaddps zmm\vec, zmm\vec, zmm\other
.endm
.macro SUM_FROM vec, address:vararg
  vaddps zmm\vec, zmm\vec, [\address]
.endm
.macro CLEAR vec
  vpxord zmm\vec, zmm\vec, zmm\vec
.endm
.macro PRODUCT sum, x, row
  vfmadd231ps zmm\sum, zmm\x, zmm\row
.endm

# zmm\to = column `at` bytes on of row \m of a, in every lane.
.macro BROADCAST to, m, at
  .if \m % 3 == 0
    .if \m == 0
  vbroadcastss zmm\to, dword ptr [rax + \at]
    .elseif \m == 3
  vbroadcastss zmm\to, dword ptr [rdx + \at]
    .else
  vbroadcastss zmm\to, dword ptr [r8 + \at]
    .endif
  .else
    .if \m < 3
  vbroadcastss zmm\to, dword ptr [rax + rsi*(\m % 3) + \at]
    .elseif \m < 6
  vbroadcastss zmm\to, dword ptr [rdx + rsi*(\m % 3) + \at]
    .else
  vbroadcastss zmm\to, dword ptr [r8 + rsi*(\m % 3) + \at]
    .endif
  .endif
.endm

# A row of b, at \second · ldb, against its column of a.
.macro ROW reach, rows, vecs, second
  .set v, 0
  .rept \vecs
    .if \second
    LOAD %(\rows * \vecs + v), r9 + r10 + 64 * v
    .else
    LOAD %(\rows * \vecs + v), r9 + 64 * v
    .endif
    .if \reach == STREAM
      .if \second
  prefetcht0 [r9 + rbx + 64 * v]
      .else
  prefetcht0 [r9 + rcx + 64 * v]
      .endif
    .endif
    .set v, v + 1
  .endr
  .set m, 0
  .rept \rows
    .set x, \rows * \vecs + \vecs + (\rows * \second + m) % 2
    BROADCAST %x, %m, %(4 * \second)
    .set v, 0
    .rept \vecs
      PRODUCT %(m * \vecs + v), %x, %(\rows * \vecs + v)
      .set v, v + 1
    .endr
    .set m, m + 1
  .endr
.endm

# Applies \op to every accumulator and its place: rows `rsi` bytes apart from rax on.
.macro EACH op, rows, vecs
  .set m, 0
  .rept \rows
    .set v, 0
    .rept \vecs
      \op %(m * \vecs + v), rax + 64 * v
      .set v, v + 1
    .endr
  add rax, rsi
    .set m, m + 1
  .endr
.endm

# The tile, and its address at the end of the table.
.macro TILE reach, rows, vecs
  .pushsection .data.rel.ro
  .quad tile_\reach\()_\rows\()_\vecs
  .popsection
  .type tile_\reach\()_\rows\()_\vecs, @function
  .p2align 6
tile_\reach\()_\rows\()_\vecs:
  .cfi_startproc
  push rbx
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset rbx, 0
  push rdi
  .cfi_adjust_cfa_offset 8
  .set m, 0
  .rept \rows * \vecs
    CLEAR %m
    .set m, m + 1
  .endr
  mov rsi, [rdi + ARG_LDA]
  shl rsi, 2
  mov rax, [rdi + ARG_A]
  lea rcx, [rsi + rsi*2]
  lea rdx, [rax + rcx]
  lea r8, [rdx + rcx]
  mov r9, [rdi + ARG_B]
  mov r10, [rdi + ARG_LDB]
  shl r10, 2
  mov r11, [rdi + ARG_K]
  .if \reach == STREAM
  mov rcx, [rdi + ARG_AHEAD]
  shl rcx, 2
  lea rbx, [r10 + rcx]
  .endif
  .if \reach == SHARE
  mov rcx, [rdi + ARG_NEXT]
  mov rdi, [rdi + ARG_STEP]
  shl rdi, 2
  .endif
  sub r11, 2
  jge 1f
  jmp 2f
  # The loop's start within its line is worth 3 %: these are the best places of full tiles on
  # Granite Rapids.
  .p2align 6
  .if \rows == 8
  .skip 44, 0x90
  .else
  .skip 56, 0x90
  .endif
1:
  .if \reach == SHARE
  prefetcht1 [rcx]
  add rcx, rdi
  .endif
  ROW \reach, \rows, \vecs, 0
  ROW \reach, \rows, \vecs, 1
  lea r9, [r9 + r10*2]
  add rax, 8
  .if \rows > 3
  add rdx, 8
  .endif
  .if \rows > 6
  add r8, 8
  .endif
  sub r11, 2
  jge 1b
2:
  cmp r11, -2
  je 3f
  ROW \reach, \rows, \vecs, 0
3:
  pop rdi
  .cfi_adjust_cfa_offset -8
  pop rbx
  .cfi_adjust_cfa_offset -8
  .cfi_restore rbx
  mov rax, [rdi + ARG_BIAS]
  test rax, rax
  je 4f
  .set v, 0
  .rept \vecs
    LOAD %(\rows * \vecs + v), rax + 64 * v
    .set m, 0
    .rept \rows
      SUM %(m * \vecs + v), %(\rows * \vecs + v)
      .set m, m + 1
    .endr
    .set v, v + 1
  .endr
4:
  mov rax, [rdi + ARG_RESIDUAL]
  test rax, rax
  je 5f
  mov rsi, [rdi + ARG_LDR]
  shl rsi, 2
  EACH SUM_FROM, \rows, \vecs
5:
  mov rax, [rdi + ARG_C]
  mov rsi, [rdi + ARG_LDC]
  shl rsi, 2
  EACH STORE, \rows, \vecs
  vzeroupper
  ret
  .cfi_endproc
  .size tile_\reach\()_\rows\()_\vecs, . - tile_\reach\()_\rows\()_\vecs
.endm

  .globl sie_tiles_avx512
  .hidden sie_tiles_avx512
  .type sie_tiles_avx512, @object
  .section .data.rel.ro, "aw"
  .p2align 6
sie_tiles_avx512:
  .text
  .irp reach, HERE, STREAM, SHARE
    .irp rows, 1, 2, 3, 4, 5, 6, 7, 8, 9
      .irp vecs, 1, 2, 3
        TILE \reach, \rows, \vecs
      .endr
    .endr
  .endr
  .section .data.rel.ro
  .size sie_tiles_avx512, . - sie_tiles_avx512

  .section .note.GNU-stack, "", @progbits
