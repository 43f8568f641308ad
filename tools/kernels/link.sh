#!/usr/bin/env bash
# Links libsie_cuda.a, all of it, into a program with the static CUDA runtime, runs that, and fails
# where it needs a library that a machine without GPU and driver lacks. Usage: link.sh BUILD
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
home=$(sed -n 's/^home //p' "$build/cuda-objects/build.txt")
lib=$home/lib64
[ -e "$lib/libcudart_static.a" ] || lib=$home/lib
program=$build/link_test
"${CXX:-c++}" -std=c++17 -O1 -Wall -Wextra -Werror -fno-exceptions -fno-rtti -isystem "$home/include" \
  -Icsrc/include \
  -Ikernels kernels/tests/cuda/link_test.cc -o "$program" -Wl,--whole-archive "$build/libsie_cuda.a" \
  -Wl,--no-whole-archive "$lib/libcudart_static.a" -ldl -lrt -lpthread -lm
"$program"

# What any glibc system with a C++ compiler's runtime has.
allowed='libstdc++.so.6 libgcc_s.so.1 libm.so.6 libc.so.6 libdl.so.2 librt.so.1 libpthread.so.0 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1'
needed=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || { echo "link: readelf shows no library; is the program static?" >&2; exit 1; }
for library in $needed; do
  case " $allowed " in
    *" $library "*) ;;
    *)
      echo "link: $program needs $library, which a machine without GPU lacks; all of CUDA is to be linked statically or opened by dlopen" >&2
      exit 1
      ;;
  esac
done
echo "links with the static CUDA runtime; needs ${needed//$'\n'/ }"
