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

// Rows [row, row + rows) and columns [col, col + cols) of the result from sums[rows][stride].
template <typename T, Activation kActivation>
void FinishAs(const LinearArgs<T>& args, const float* sums, int64_t stride, int64_t row, int64_t rows, int64_t col,
              int64_t cols) {
  const Vec alpha = Set(args.alpha), a = Set(args.a), b = Set(args.b);
  for (int64_t r = 0; r < rows; ++r, sums += stride) {
    const int64_t at = (row + r) * args.cols + col;
    ForEachVec(cols, [&](int64_t i, int lanes) {
      Vec v = LoadN(sums + i, lanes) * alpha;
      if (args.bias != nullptr) v = v + LoadN(args.bias + col + i, lanes);
      const Vec residual = args.residual != nullptr ? LoadN(args.residual + at + i, lanes) : Zero();
      if (!args.is_residual_last) v = v + residual;
      v = Activate<kActivation>(v, a, b);
      StoreN(args.y + at + i, args.is_residual_last ? v + residual : v, lanes);
    });
  }
}

template <typename T>
using Finisher = void (*)(const LinearArgs<T>&, const float*, int64_t, int64_t, int64_t, int64_t, int64_t);

template <typename T>
Finisher<T> FinisherOf(Activation activation) {
  switch (activation) {
    case Activation::kNone: return &FinishAs<T, Activation::kNone>;
    case Activation::kRelu: return &FinishAs<T, Activation::kRelu>;
    case Activation::kLeakyRelu: return &FinishAs<T, Activation::kLeakyRelu>;
    case Activation::kClip: return &FinishAs<T, Activation::kClip>;
    case Activation::kGelu: return &FinishAs<T, Activation::kGelu>;
    case Activation::kGeluTanh: return &FinishAs<T, Activation::kGeluTanh>;
    case Activation::kSilu: return &FinishAs<T, Activation::kSilu>;
    case Activation::kSigmoid: return &FinishAs<T, Activation::kSigmoid>;
    case Activation::kTanh: return &FinishAs<T, Activation::kTanh>;
    case Activation::kHardSwish: return &FinishAs<T, Activation::kHardSwish>;
    case Activation::kSquaredRelu: return &FinishAs<T, Activation::kSquaredRelu>;
    case Activation::kHardSigmoid: return &FinishAs<T, Activation::kHardSigmoid>;
  }
  return nullptr;
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
