#!/usr/bin/env bash
# Everything about our kernels that only a GPU can show, in at most eight minutes: sh benchmarks/gpu_check.sh [FOLDER]
#
# Builds the kernels of Attention, Linear and GatedLinear for the GPU that is here, checks them against float64, looks for races and wrong
# addresses, and times them. Needs this tree, Python with torch and triton, and NVIDIA's driver; no network, nothing installed. What is
# missing is named, and its step left out. FOLDER (gpu_check_results) gets kernels, one JSON file a step, and table.md.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
folder=${1:-gpu_check_results}
python=${PYTHON:-python3}
export PYTHONPATH="$PWD:$PWD/benchmarks${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$folder" || exit 1

# step NAME SECONDS COMMAND...: runs it, and goes on whatever comes of it.
step() {
  local name=$1 limit=$2 began=$SECONDS
  shift 2
  printf '\n== %s\n' "$name"
  timeout --kill-after=5 "$limit" "$@"
  local code=$?
  case $code in
    0) printf '   %s: done in %d s\n' "$name" "$((SECONDS - began))" ;;
    3) printf '   %s: left out, for the reason above\n' "$name" ;;
    124 | 137) printf '   %s: stopped after %d s\n' "$name" "$limit" ;;
    *) printf '   %s: FAILED with %d\n' "$name" "$code"; failed="${failed:-}${failed:+, }$name" ;;
  esac
  return "$code"
}


if ! command -v "$python" > /dev/null; then
  echo "no $python here: nothing is checked. Set PYTHON to one with torch and triton"
  exit 0
fi
step "machine" 20 "$python" benchmarks/gpu_check.py machine "$folder"
if [ $? -eq 3 ]; then
  echo "nothing is checked: that takes an NVIDIA GPU, torch and triton"
  exit 0
fi
step "kernels" 110 "$python" benchmarks/gpu_check.py kernels "$folder"
step "numbers" 70 "$python" benchmarks/gpu_check.py numbers "$folder"
if sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2> /dev/null | head -1) && [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck; do
    step "$tool" 50 "$sanitizer" --tool "$tool" --error-exitcode 1 "$python" benchmarks/gpu_check.py sanitized "$folder"
  done
else
  printf '\n== memcheck, racecheck\n   left out: no compute-sanitizer here, which the CUDA toolkit brings\n'
fi
step "times" 110 "$python" benchmarks/gpu_check.py times "$folder"
step "sessions" 60 "$python" benchmarks/gpu_check.py sessions "$folder"
step "table" 10 "$python" benchmarks/gpu_check.py table "$folder"
if [ -n "${failed:-}" ]; then
  printf '\nfailed: %s\n' "$failed"
  exit 1
fi
