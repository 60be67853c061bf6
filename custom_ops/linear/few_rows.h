// Linear of few rows: each weight is read once, where it is, and nothing is packed.
#pragma once

#include "custom_ops/_runtime/scratch.h"
#include "custom_ops/linear/epilogue.h"
#include "custom_ops/linear/pack.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr int kFewRows = 8;
inline constexpr int kSteps = 8;  // of the depth at a time: so many rows of weights are streamed side by side
inline constexpr int64_t kSumFloats = 8192;  // sums of a range of columns: 32 KB, so that L1 holds them

// x of one call as floats: zeros stand for rows past the last, and for what fills the depth up.
struct FewRows {
  float* x;       // [rows padded][depth padded], or in steps: [depth padded / kSteps][rows padded][kSteps]
  int64_t depth;  // padded
};

// sums[r][c] += x w for kCount steps of the depth and columns [0, cols).
template <int kRows, int kCount, typename T>
ONNXFUSE_INLINE void AddSteps(const float* x, const T* weight, int64_t stride, int64_t cols, float* sums) {
  ForEachVec(cols, [&](int64_t c, int lanes) {
    Vec w[kCount];
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) w[i] = LoadN(weight + i * stride + c, lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      Vec sum = LoadN(sums + r * cols + c, lanes);
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) sum = Fma(Set(x[r * kSteps + i]), w[i], sum);
      StoreN(sums + r * cols + c, sum, lanes);
    }
  });
}

// Columns [col, col + cols) where weights of one step lie side by side.
template <int kRows, typename T>
void SumColumns(const LinearArgs<T>& a, const FewRows& rows, int64_t col, int64_t cols, float* sums) {
  for (int64_t i = 0; i < kRows * cols; ++i) sums[i] = 0;
  const T* weight = a.weight + col;
  int64_t k = 0;
  for (; k + kSteps <= a.depth; k += kSteps)
    AddSteps<kRows, kSteps>(rows.x + k * kRows, weight + k * a.cols, a.cols, cols, sums);
  const float* x = rows.x + k * kRows;  // of the steps that are left over
  for (int64_t i = 0; k + i < a.depth; ++i) AddSteps<kRows, 1>(x + i, weight + (k + i) * a.cols, a.cols, cols, sums);
}

// The same where weights of one column lie side by side, kColumns of them at a time.
template <int kRows, int kColumns, typename T>
ONNXFUSE_INLINE void SumDots(const LinearArgs<T>& a, const FewRows& rows, int64_t col, float* sums, int64_t stride) {
  Vec sum[kRows][kColumns];
  for (auto& row : sum) {
    for (Vec& s : row) s = Zero();
  }
  const T* weight = a.weight + col * a.depth;
  ForEachVec(a.depth, [&](int64_t k, int lanes) {
    Vec w[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) w[c] = LoadN(weight + c * a.depth + k, lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec x = Load(rows.x + r * rows.depth + k);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) sum[r][c] = Fma(x, w[c], sum[r][c]);
    }
  });
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) sums[r * stride + c] = ReduceSum(sum[r][c]);
  }
}

template <int kRows, typename T>
void SumTransposed(const LinearArgs<T>& a, const FewRows& rows, int64_t col, int64_t cols, float* sums) {
  constexpr int kColumns = kRows == 1 ? 4 : kVectorRegisters == 32 ? 2 : 1;
  int64_t c = 0;
  for (; c + kColumns <= cols; c += kColumns) SumDots<kRows, kColumns>(a, rows, col + c, sums + c, cols);
  for (; c < cols; ++c) SumDots<kRows, 1>(a, rows, col + c, sums + c, cols);
}

template <int kRows, typename T>
void RunFewRows(const LinearArgs<T>& a, const FewRows& rows, const ParallelFor& parallel) {
  constexpr int64_t kMostCols = kSumFloats / kRows;
  constexpr int64_t kStep = 4 * kLanes;  // whole cache lines
  const int64_t wanted = CeilDiv(CeilDiv(a.cols, 2 * parallel.threads), kStep) * kStep;
  const int64_t cols = parallel.threads == 1 ? kMostCols : Least(kMostCols, wanted);
  const double cost = static_cast<double>(a.depth * Least(cols, a.cols) * static_cast<int64_t>(sizeof(T))) / 10;
  parallel(CeilDiv(a.cols, cols), cost, [&](int64_t begin, int64_t end) {
    float* sums = static_cast<float*>(Scratch(Slot::kThread, kSumFloats * sizeof(float)));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t col = i * cols, count = Least(cols, a.cols - col);
      if (a.is_transposed) {
        SumTransposed<kRows>(a, rows, col, count, sums);
      } else {
        SumColumns<kRows>(a, rows, col, count, sums);
      }
      Finish(a, sums, count, 0, a.rows, col, count);
    }
  });
}

// x as floats, in the order that the weights need.
template <int kRows, typename T>
void ReadRows(const LinearArgs<T>& a, const FewRows& rows) {
  for (int64_t i = 0; i < kRows * rows.depth; ++i) rows.x[i] = 0;
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* from = a.x + r * a.depth;
    for (int64_t k = 0; k < a.depth; k += kSteps) {
      float* to = rows.x + (a.is_transposed ? r * rows.depth + k : k * kRows + r * kSteps);
      const int64_t count = Least(kSteps, a.depth - k);
      for (int64_t i = 0; i < count; ++i) to[i] = ToFloat(from[k + i]);
    }
  }
}

template <int kRows, typename T>
void FewRowsOf(const LinearArgs<T>& a, const ParallelFor& parallel) {
  constexpr int64_t kStep = kLanes > kSteps ? kLanes : kSteps;
  FewRows rows{nullptr, CeilDiv(a.depth, kStep) * kStep};
  rows.x = static_cast<float*>(Scratch(Slot::kShared, static_cast<size_t>(kRows * rows.depth) * sizeof(float)));
  ReadRows<kRows>(a, rows);
  RunFewRows<kRows>(a, rows, parallel);
}

template <typename T>
void FewRowsLinear(const LinearArgs<T>& a, const ParallelFor& parallel) {
  for (int64_t first = 0; first < a.rows; first += kFewRows) {
    const LinearArgs<T> some = RowsOf(a, first, Least(kFewRows, a.rows - first));
    if (some.rows == 1) {
      FewRowsOf<1>(some, parallel);
    } else if (some.rows <= 4) {
      FewRowsOf<4>(some, parallel);
    } else {
      FewRowsOf<8>(some, parallel);
    }
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
