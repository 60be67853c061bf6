#include "custom_ops/_runtime/activation.h"
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/gated_linear/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr int kBlockRows = 4;        // that share a weight once it is loaded
inline constexpr int64_t kBlockCols = 256;  // of either half: their sums stay in the nearest cache
inline constexpr int kSteps = 4;            // of the depth at a time

using Sums = float[kBlockRows * kBlockCols];  // rows are kBlockCols apart

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

// sums += kCount steps of the depth, from k on, for columns [column, column + cols) of weights of which one step lies side
// by side.
template <int kCount, typename T>
ONNXFUSE_INLINE void AddSteps(const GatedLinearArgs<T>& a, const T* x, int rows, int64_t k, int64_t column,
                              int64_t cols, float* sums) {
  const T* weight = a.weight + k * 2 * a.cols + column;
  ForEachVec(cols, [&](int64_t c, int lanes) {
    Vec w[kCount];
    for (int i = 0; i < kCount; ++i) w[i] = LoadN(weight + i * 2 * a.cols + c, lanes);
    for (int r = 0; r < rows; ++r) {
      Vec sum = LoadN(sums + r * kBlockCols + c, lanes);
      for (int i = 0; i < kCount; ++i) sum = Fma(Set(ToFloat(x[r * a.depth + k + i])), w[i], sum);
      StoreN(sums + r * kBlockCols + c, sum, lanes);
    }
  });
}

template <typename T>
void SumColumns(const GatedLinearArgs<T>& a, const T* x, int rows, int64_t column, int64_t cols, float* sums) {
  int64_t k = 0;
  for (; k + kSteps <= a.depth; k += kSteps) AddSteps<kSteps>(a, x, rows, k, column, cols, sums);
  for (; k < a.depth; ++k) AddSteps<1>(a, x, rows, k, column, cols, sums);
}

// The same where the weights of one column lie side by side.
template <typename T>
void SumDots(const GatedLinearArgs<T>& a, const T* x, int rows, int64_t column, int64_t cols, float* sums) {
  for (int64_t c = 0; c < cols; ++c) {
    const T* weight = a.weight + (column + c) * a.depth;
    Vec sum[kBlockRows];
    for (Vec& one : sum) one = Zero();
    ForEachVec(a.depth, [&](int64_t k, int lanes) {
      const Vec w = LoadN(weight + k, lanes);
      for (int r = 0; r < rows; ++r) sum[r] = Fma(LoadN(x + r * a.depth + k, lanes), w, sum[r]);
    });
    for (int r = 0; r < rows; ++r) sums[r * kBlockCols + c] = ReduceSum(sum[r]);
  }
}

// Sums of `rows` rows and of columns [column, column + cols) of the weights.
template <typename T>
void SumHalf(const GatedLinearArgs<T>& a, const T* x, int rows, int64_t column, int64_t cols, Sums& sums) {
  for (float& sum : sums) sum = 0;
  if (a.is_transposed) {
    SumDots(a, x, rows, column, cols, sums);
  } else {
    SumColumns(a, x, rows, column, cols, sums);
  }
}

// `rows` rows of y from `row` on, columns [col, col + cols).
template <typename T>
void Block(const GatedLinearArgs<T>& a, int64_t row, int rows, int64_t col, int64_t cols) {
  Sums gate, up;
  SumHalf(a, a.x + row * a.depth, rows, a.gate_column() + col, cols, gate);
  SumHalf(a, a.x + row * a.depth, rows, a.up_column() + col, cols, up);
  for (int r = 0; r < rows; ++r) {
    ForEachVec(cols, [&](int64_t c, int lanes) {
      Vec g = LoadN(gate + r * kBlockCols + c, lanes), u = LoadN(up + r * kBlockCols + c, lanes);
      if (a.bias != nullptr) {
        g = g + LoadN(a.bias + a.gate_column() + col + c, lanes);
        u = u + LoadN(a.bias + a.up_column() + col + c, lanes);
      }
      StoreN(a.y + (row + r) * a.cols + col + c, Activated(g, a.gate, a.alpha) * u, lanes);
    });
  }
}

template <typename T>
void GatedLinearCpu(const GatedLinearArgs<T>& args, const ParallelFor& parallel) {
  const double cost = 0.1 * static_cast<double>(args.rows * (args.depth + 8));  // nanoseconds of a column
  parallel(args.cols, cost, [&](int64_t begin, int64_t end) {
    for (int64_t col = begin; col < end; col += kBlockCols) {
      const int64_t cols = end - col < kBlockCols ? end - col : kBlockCols;
      for (int64_t row = 0; row < args.rows; row += kBlockRows) {
        const int rows = static_cast<int>(args.rows - row < kBlockRows ? args.rows - row : kBlockRows);
        Block(args, row, rows, col, cols);
      }
    }
  });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(GatedLinearCpu, (const GatedLinearArgs<T>& args, const ParallelFor& parallel),
                           (args, parallel))
ONNXFUSE_INSTANTIATE(GatedLinearCpu, float)
ONNXFUSE_INSTANTIATE(GatedLinearCpu, Half)
ONNXFUSE_INSTANTIATE(GatedLinearCpu, BFloat16)
