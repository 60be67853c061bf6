#include "custom_ops/_runtime/activation.h"
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/scratch.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/gated_linear/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr int64_t kProductFloats = 1 << 21;  // of both halves, before they are one
inline constexpr int64_t kMostRows = 512, kLeastRows = 128;
inline constexpr double kNanosecondsPerElement = 1.0;  // of the gate

ONNXFUSE_INLINE Vec Activated(Vec v, Gate gate, float alpha) {
  switch (gate) {
    case Gate::kSilu: return Silu(v, Set(alpha));
    case Gate::kGelu: return GeluErf(v);
    case Gate::kGeluTanh: return GeluTanh(v);
    case Gate::kSigmoid: return Sigmoid(v);
    case Gate::kRelu: return Max(Zero(), v);
  }
  return v;
}

// The products of some rows, then the gate, which finds them in a cache.
template <typename T>
void GatedLinearCpu(const GatedLinearArgs<T>& args, const T* packed, const ParallelFor& parallel) {
  if (args.rows == 0 || args.cols == 0) return;
  const int64_t wide = 2 * args.cols, fitting = kProductFloats / wide;
  const int64_t most = fitting < kLeastRows ? kLeastRows : fitting < kMostRows ? fitting : kMostRows;
  const int64_t size = (args.rows < most ? args.rows : most) * wide;
  float* products = static_cast<float*>(Scratch(Slot::kResult, static_cast<size_t>(size) * sizeof(float)));
  LinearArgs<T> both = args.Products();
  both.unrounded = products;
  for (int64_t first = 0; first < args.rows; first += most) {
    both.rows = args.rows - first < most ? args.rows - first : most;
    both.x = args.x + first * args.depth;
    LinearCpu(both, LinearReadsPacked(both.rows, args.depth, args.is_transposed) ? packed : nullptr, parallel);
    parallel(both.rows, kNanosecondsPerElement * static_cast<double>(args.cols), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float *gate = products + row * wide + args.gate_column(), *up = products + row * wide + args.up_column();
        T* y = args.y + (first + row) * args.cols;
        ForEachVec(args.cols, [&](int64_t c, int lanes) {
          StoreN(y + c, Activated(LoadN(gate + c, lanes), args.gate, args.alpha) * LoadN(up + c, lanes), lanes);
        });
      }
    });
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(GatedLinearCpu,
                           (const GatedLinearArgs<T>& args, const T* packed, const ParallelFor& parallel),
                           (args, packed, parallel))
ONNXFUSE_INSTANTIATE(GatedLinearCpu, float)
ONNXFUSE_INSTANTIATE(GatedLinearCpu, Half)
ONNXFUSE_INSTANTIATE(GatedLinearCpu, BFloat16)
