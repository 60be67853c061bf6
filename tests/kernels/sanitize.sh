#!/bin/sh
# The kernel tests under AddressSanitizer and UndefinedBehaviorSanitizer: sh tests/kernels/sanitize.sh [pytest options]
# In one process: two would configure the build in the same folder at once.
# Any finding ends the run with an error. Needs GCC or Clang with their sanitizer libraries.
set -eu
cd "$(dirname "$0")/../.."
export ONNXFUSE_KERNEL_OPTIONS="-O0;-g1;-fno-omit-frame-pointer;-fsanitize=address,undefined;-fno-sanitize-recover=all"
# Python itself is not instrumented, so the sanitizer must be there before it, and what throws exceptions with it; what
# Python leaves behind is not ours.
export LD_PRELOAD="$("${CXX:-c++}" -print-file-name=libasan.so) $("${CXX:-c++}" -print-file-name=libstdc++.so)"
export ASAN_OPTIONS="detect_leaks=0:verify_asan_link_order=0" UBSAN_OPTIONS="print_stacktrace=1"
# onnxruntime loads no kernel of ours; the rest of the folder does.
exec python -m pytest -q tests/kernels/test_simd.py tests/kernels/test_attention.py tests/kernels/test_linear.py tests/kernels/test_rows.py tests/kernels/test_program.py \
  tests/kernels/test_program_rows.py tests/kernels/test_program_text.py "$@"
