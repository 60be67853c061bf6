// Loops of programs over float, float16 and bfloat16, as Vecs of floats. For kernel_cpu*.cc files.
#pragma once

#include "custom_ops/_runtime/program_kernels.h"
#include "custom_ops/_runtime/simd.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// An argument as a Vec at element i of the block; a splat is the same Vec everywhere.
template <typename T>
struct Argument {
  Argument(const KernelArguments& a, int which) : p(static_cast<const T*>(a.x[which])), step(a.step[which]) {}
  ONNXFUSE_INLINE Vec At(int64_t i, int lanes) const { return LoadN(p + i * step, lanes); }
  const T* p;
  int64_t step;
};

// As ForEachVec, kTimes Vecs at a time: what the loop itself takes is much of a cheap primitive's time.
template <int kTimes, typename Body>
ONNXFUSE_INLINE void ForEachVecs(int64_t n, Body&& body) {
  int64_t begin = 0;
  for (; kTimes > 1 && begin + kTimes * kLanes <= n; begin += kTimes * kLanes) {
    for (int i = 0; i < kTimes; ++i) body(begin + i * kLanes, kLanes);
  }
  ForEachVec(n - begin, [&](int64_t i, int lanes) { body(begin + i, lanes); });
}

inline constexpr int kCheap = 4;  // Vecs at a time for primitives of an instruction or a few

template <typename T, auto kFunction, int kTimes = 1>
void Map1(const KernelArguments& a) {
  const Argument<T> x(a, 0);
  T* y = static_cast<T*>(a.y);
  ForEachVecs<kTimes>(a.count, [&](int64_t i, int lanes) { StoreN(y + i, kFunction(x.At(i, lanes)), lanes); });
}

template <typename T, auto kFunction, int kTimes = 1>
void Map2(const KernelArguments& a) {
  const Argument<T> x0(a, 0), x1(a, 1);
  T* y = static_cast<T*>(a.y);
  ForEachVecs<kTimes>(a.count,
                      [&](int64_t i, int lanes) { StoreN(y + i, kFunction(x0.At(i, lanes), x1.At(i, lanes)), lanes); });
}

template <typename T, auto kFunction, int kTimes = 1>
void Map3(const KernelArguments& a) {
  const Argument<T> x0(a, 0), x1(a, 1), x2(a, 2);
  T* y = static_cast<T*>(a.y);
  ForEachVecs<kTimes>(a.count, [&](int64_t i, int lanes) {
    StoreN(y + i, kFunction(x0.At(i, lanes), x1.At(i, lanes), x2.At(i, lanes)), lanes);
  });
}

// NaN if either is; the second where both are zeros.
ONNXFUSE_INLINE Vec MaxOf(Vec a, Vec b) { return Select(IsNan(a), a, Max(a, b)); }
ONNXFUSE_INLINE Vec MinOf(Vec a, Vec b) { return Select(IsNan(a), a, Min(a, b)); }

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
