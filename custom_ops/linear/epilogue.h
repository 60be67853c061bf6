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

// Whether all that is done besides adding is to keep y between two bounds, which may be infinite.
template <typename T>
ONNXFUSE_INLINE bool IsClamp(const LinearArgs<T>& args, float* least, float* most) {
  constexpr float kInfinity = __builtin_inff();
  *least = args.activation == Activation::kRelu ? 0.0f : args.activation == Activation::kClip ? args.a : -kInfinity;
  *most = args.activation == Activation::kClip ? args.b : kInfinity;
  if (args.activation == Activation::kNone) return true;
  const bool is_clamp = args.activation == Activation::kRelu || args.activation == Activation::kClip;
  return is_clamp && !(args.is_residual_last && args.residual != nullptr);
}

// Rows [row, row + rows) and columns [col, col + cols) of the result from sums[rows][stride].
template <Activation kActivation, typename T>
void FinishAs(const LinearArgs<T>& args, const float* sums, int64_t stride, int64_t row, int64_t rows, int64_t col,
              int64_t cols) {
  const int64_t first = row * args.cols + col;
  const T* bias = args.bias == nullptr ? nullptr : args.bias + col;
  const T* residual = args.residual == nullptr ? nullptr : args.residual + first;
  T* y = args.y == nullptr ? nullptr : args.y + first;
  float* unrounded = args.unrounded == nullptr ? nullptr : args.unrounded + first;
  const bool is_late = args.is_residual_last;
  const int64_t step = args.cols, below = rows * step;  // what comes next, as a rule: the rows below
  const Vec alpha = Set(args.alpha), a = Set(args.a), b = Set(args.b);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * step;
    ForEachVec(cols, [&](int64_t i, int lanes) {
      if (residual != nullptr) Prefetch<Fetch::kFar>(residual + at + below + i);
      Vec v = LoadN(sums + r * stride + i, lanes) * alpha;
      if (bias != nullptr) v = v + LoadN(bias + i, lanes);
      if (residual != nullptr && !is_late) v = v + LoadN(residual + at + i, lanes);
      v = Activate<kActivation>(v, a, b);
      if (residual != nullptr && is_late) v = v + LoadN(residual + at + i, lanes);
      auto put = [&](auto* to) {
        Prefetch<Fetch::kFar>(to + at + below + i);
        StoreN(to + at + i, v, lanes);
      };
      if (unrounded != nullptr) {
        put(unrounded);
      } else {
        put(y);
      }
    });
  }
}

template <typename T>
using Finisher = void (*)(const LinearArgs<T>& args, const float* sums, int64_t stride, int64_t row, int64_t rows,
                          int64_t col, int64_t cols);

template <typename T>
ONNXFUSE_INLINE Finisher<T> FinisherOf(Activation activation) {
  switch (activation) {
    case Activation::kNone: break;
    case Activation::kRelu: return &FinishAs<Activation::kRelu, T>;
    case Activation::kLeakyRelu: return &FinishAs<Activation::kLeakyRelu, T>;
    case Activation::kClip: return &FinishAs<Activation::kClip, T>;
    case Activation::kGelu: return &FinishAs<Activation::kGelu, T>;
    case Activation::kGeluTanh: return &FinishAs<Activation::kGeluTanh, T>;
    case Activation::kSilu: return &FinishAs<Activation::kSilu, T>;
    case Activation::kSigmoid: return &FinishAs<Activation::kSigmoid, T>;
    case Activation::kTanh: return &FinishAs<Activation::kTanh, T>;
    case Activation::kHardSwish: return &FinishAs<Activation::kHardSwish, T>;
    case Activation::kSquaredRelu: return &FinishAs<Activation::kSquaredRelu, T>;
    case Activation::kHardSigmoid: return &FinishAs<Activation::kHardSigmoid, T>;
  }
  return &FinishAs<Activation::kNone, T>;
}

template <typename T>
ONNXFUSE_INLINE void Finish(const LinearArgs<T>& args, const float* sums, int64_t stride, int64_t row, int64_t rows,
                            int64_t col, int64_t cols) {
  FinisherOf<T>(args.activation)(args, sums, stride, row, rows, col, cols);
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
