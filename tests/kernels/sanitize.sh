#!/bin/sh
# The kernel tests under AddressSanitizer and UndefinedBehaviorSanitizer: sh tests/kernels/sanitize.sh [pytest options]
# Any finding ends the run with an error. Needs GCC or Clang with their sanitizer libraries.
set -eu
cd "$(dirname "$0")/../.."
# Without AVX-512, which would take half as long again: its partial loads and stores are masked instructions, which
# AddressSanitizer does not see.
export ONNXFUSE_KERNEL_OPTIONS="-DONNXFUSE_WITHOUT_AVX512;-O0;-g1;-fno-omit-frame-pointer;-fsanitize=address,undefined;-fno-sanitize-recover=all"
# Python itself is not instrumented, so the sanitizer must be there before it, and what throws exceptions with it; what
# Python leaves behind is not ours.
preload="$("${CXX:-c++}" -print-file-name=libasan.so) $("${CXX:-c++}" -print-file-name=libstdc++.so)"
reports="$(mktemp -d)"
trap 'rm -r "$reports"' EXIT
export ASAN_OPTIONS="detect_leaks=0:verify_asan_link_order=0:log_path=$reports/asan" UBSAN_OPTIONS="print_stacktrace=1:log_path=$reports/ubsan"
# onnxruntime loads no kernel of ours; the rest of the folder does.
LD_PRELOAD="$preload" python -m pytest -q -k "not avx512 and not amx" tests/kernels/test_simd.py tests/kernels/test_attention.py tests/kernels/test_linear.py \
  tests/kernels/test_rows.py tests/kernels/test_program.py tests/kernels/test_program_rows.py tests/kernels/test_program_text.py "$@" && exit
# What ended a process, which pytest keeps to itself.
cat "$reports"/* >&2 || true
exit 1
