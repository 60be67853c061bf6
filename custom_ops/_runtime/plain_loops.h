// Loops over plain numbers of any type, which the compiler makes vectors of. For kernel_cpu*.cc files.
//
// kSplat elements at a time, so that an argument that steps and one that does not are the same code; what is left
// over goes one by one.
#pragma once

#include "custom_ops/_runtime/program_kernels.h"

// y may be the very memory of an argument (element for element), which is no hindrance to vectors.
#if defined(__clang__)
#define ONNXFUSE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define ONNXFUSE_INDEPENDENT _Pragma("GCC ivdep")
#elif defined(_MSC_VER)
#define ONNXFUSE_INDEPENDENT __pragma(loop(ivdep))
#else
#define ONNXFUSE_INDEPENDENT
#endif

// A lambda whose code must be part of the loop around it.
#if defined(_MSC_VER) && !defined(__clang__)
#define ONNXFUSE_INLINE_LAMBDA [[msvc::forceinline]]
#else
#define ONNXFUSE_INLINE_LAMBDA __attribute__((always_inline))
#endif

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// Calls body(i, n): n elements from i on, n at most kSplat and a constant in all but the last call.
template <typename Body>
ONNXFUSE_INLINE void ForEachSplat(int64_t count, Body&& body) {
  int64_t i = 0;
  for (; i + kSplat <= count; i += kSplat) body(i, kSplat);
  if (i < count) body(i, count - i);
}

// R y = f(T x)
template <typename T, typename R, auto kFunction>
void Plain1(const KernelArguments& a) {
  ForEachSplat(a.count, [&](int64_t i, int64_t n) ONNXFUSE_INLINE_LAMBDA {
    const T* x = static_cast<const T*>(a.x[0]) + i * a.step[0];
    R* y = static_cast<R*>(a.y) + i;
    ONNXFUSE_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) y[j] = kFunction(x[j]);
  });
}

// R y = f(T x0, T x1)
template <typename T, typename R, auto kFunction>
void Plain2(const KernelArguments& a) {
  ForEachSplat(a.count, [&](int64_t i, int64_t n) ONNXFUSE_INLINE_LAMBDA {
    const T* x0 = static_cast<const T*>(a.x[0]) + i * a.step[0];
    const T* x1 = static_cast<const T*>(a.x[1]) + i * a.step[1];
    R* y = static_cast<R*>(a.y) + i;
    ONNXFUSE_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) y[j] = kFunction(x0[j], x1[j]);
  });
}

// T y = f(S x0, T x1, T x2)
template <typename S, typename T, auto kFunction>
void Plain3(const KernelArguments& a) {
  ForEachSplat(a.count, [&](int64_t i, int64_t n) ONNXFUSE_INLINE_LAMBDA {
    const S* x0 = static_cast<const S*>(a.x[0]) + i * a.step[0];
    const T* x1 = static_cast<const T*>(a.x[1]) + i * a.step[1];
    const T* x2 = static_cast<const T*>(a.x[2]) + i * a.step[2];
    T* y = static_cast<T*>(a.y) + i;
    ONNXFUSE_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) y[j] = kFunction(x0[j], x1[j], x2[j]);
  });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
