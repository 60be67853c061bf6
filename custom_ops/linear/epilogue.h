// What is done to a tile of sums: scale, bias, residual and activation, rounded once to T.
#pragma once

#include "custom_ops/_runtime/activation.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/linear/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// NaN stays NaN in all of them: Max and Min keep their second operand where either is NaN.
template <Activation kActivation>
ONNXFUSE_INLINE Vec Activate(Vec v, Vec a, Vec b) {
  if constexpr (kActivation == Activation::kRelu) return Max(Zero(), v);
  if constexpr (kActivation == Activation::kLeakyRelu) return Select(v < Zero(), a * v, v);
  if constexpr (kActivation == Activation::kClip) return Min(b, Max(a, v));
  if constexpr (kActivation == Activation::kGelu) return GeluErf(v);
  if constexpr (kActivation == Activation::kGeluTanh) return GeluTanh(v);
  if constexpr (kActivation == Activation::kSilu) return Silu(v, a);
  if constexpr (kActivation == Activation::kSigmoid) return Sigmoid(v);
  if constexpr (kActivation == Activation::kTanh) return Tanh(v);
  if constexpr (kActivation == Activation::kHardSigmoid) return Min(Set(1.0f), Max(Zero(), Fma(v, a, b)));
  if constexpr (kActivation == Activation::kHardSwish)
    return v * Activate<Activation::kHardSigmoid>(v, Set(1.0f / 6.0f), Set(0.5f));
  if constexpr (kActivation == Activation::kSquaredRelu) return Max(Zero(), v) * Max(Zero(), v);
  return v;
}

// v = f(v) for [rows, cols] floats, rows `stride` apart.
template <Activation kActivation>
void ActivateAll(float* v, int64_t stride, int64_t rows, int64_t cols, float a, float b) {
  for (int64_t r = 0; r < rows; ++r, v += stride) {
    ForEachVec(cols, [&](int64_t i, int lanes) {
      StoreN(v + i, Activate<kActivation>(LoadN(v + i, lanes), Set(a), Set(b)), lanes);
    });
  }
}

using Activator = void (*)(float* v, int64_t stride, int64_t rows, int64_t cols, float a, float b);

// Null for none.
ONNXFUSE_INLINE Activator ActivatorOf(Activation activation) {
  switch (activation) {
    case Activation::kNone: return nullptr;
    case Activation::kRelu: return &ActivateAll<Activation::kRelu>;
    case Activation::kLeakyRelu: return &ActivateAll<Activation::kLeakyRelu>;
    case Activation::kClip: return &ActivateAll<Activation::kClip>;
    case Activation::kGelu: return &ActivateAll<Activation::kGelu>;
    case Activation::kGeluTanh: return &ActivateAll<Activation::kGeluTanh>;
    case Activation::kSilu: return &ActivateAll<Activation::kSilu>;
    case Activation::kSigmoid: return &ActivateAll<Activation::kSigmoid>;
    case Activation::kTanh: return &ActivateAll<Activation::kTanh>;
    case Activation::kHardSwish: return &ActivateAll<Activation::kHardSwish>;
    case Activation::kSquaredRelu: return &ActivateAll<Activation::kSquaredRelu>;
    case Activation::kHardSigmoid: return &ActivateAll<Activation::kHardSigmoid>;
  }
  return nullptr;
}

// Rows [row, row + rows) and columns [col, col + cols) of the result from sums[rows][stride], which are overwritten.
template <typename T>
void Finish(const LinearArgs<T>& args, float* sums, int64_t stride, int64_t row, int64_t rows, int64_t col,
            int64_t cols) {
  const Activator activate = ActivatorOf(args.activation);
  const T* early = args.is_residual_last ? nullptr : args.residual;
  const T* late = args.is_residual_last ? args.residual : nullptr;
  const Vec alpha = Set(args.alpha);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (row + r) * args.cols + col;
    ForEachVec(cols, [&](int64_t i, int lanes) {
      Vec v = LoadN(sums + r * stride + i, lanes) * alpha;
      if (args.bias != nullptr) v = v + LoadN(args.bias + col + i, lanes);
      if (early != nullptr) v = v + LoadN(early + at + i, lanes);
      StoreN(sums + r * stride + i, v, lanes);
    });
  }
  if (activate != nullptr) activate(sums, stride, rows, cols, args.a, args.b);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (row + r) * args.cols + col;
    ForEachVec(cols, [&](int64_t i, int lanes) {
      Vec v = LoadN(sums + r * stride + i, lanes);
      if (late != nullptr) v = v + LoadN(late + at + i, lanes);
      StoreN(args.y + at + i, v, lanes);
    });
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
