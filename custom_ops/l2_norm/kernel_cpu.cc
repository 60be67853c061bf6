#include "custom_ops/_runtime/columns.h"
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/rows.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/l2_norm/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// A NaN in the squares stays one.
ONNXFUSE_INLINE Vec Factor(Vec squares, float epsilon) { return Set(1.0f) / Max(Set(epsilon), Sqrt(squares)); }

template <typename T>
ONNXFUSE_INLINE void NormalizeRow(const T* x, const T* scale, T* y, int64_t channels, float epsilon) {
  const float squares = RowSum(channels, [&](int64_t i, int lanes) {
    const Vec v = LoadAhead(x + i, lanes);
    return v * v;
  });
  const Vec factor = Factor(Set(squares), epsilon);
  ForEachVec(channels, [&](int64_t i, int lanes) {
    const Vec v = LoadN(x + i, lanes) * factor;
    StoreAhead(y + i, scale == nullptr ? v : v * LoadN(scale + i, lanes), lanes);
  });
}

template <int kWide, typename T>
ONNXFUSE_INLINE void NormalizeColumns(const T* x, const T* scale, T* y, int64_t channels, int64_t places, float epsilon,
                                      int lanes) {
  auto first = [&](int64_t channel, int w) { return LoadColumn<kWide>(x + channel * places + w * kLanes, lanes); };
  auto again = [&](int64_t channel, int w) { return LoadN(x + channel * places + w * kLanes, lanes); };
  Vec squares[1][kWide];
  SumOverChannels(channels, squares, [&](int64_t channel, auto& part) {
    for (int w = 0; w < kWide; ++w) {
      const Vec v = first(channel, w);
      part[0][w] = Fma(v, v, part[0][w]);
    }
  });
  for (int w = 0; w < kWide; ++w) squares[0][w] = Factor(squares[0][w], epsilon);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const Vec weight = Set(scale == nullptr ? 1.0f : ToFloat(scale[channel]));
    for (int w = 0; w < kWide; ++w) {
      StoreColumn<kWide>(y + channel * places + w * kLanes, again(channel, w) * squares[0][w] * weight, lanes);
    }
  }
}

template <typename T>
void L2NormCpu(const T* x, const T* scale, T* y, int64_t matrices, int64_t channels, int64_t places, float epsilon,
               const ParallelFor& parallel) {
  constexpr double kNanosecondsPerElement = 0.3;
  const double cost = static_cast<double>(channels) * kNanosecondsPerElement;
  if (places == 1) {
    parallel(matrices, cost, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        NormalizeRow(x + row * channels, scale, y + row * channels, channels, epsilon);
    });
    return;
  }
  ForEachColumn(matrices, places, cost, parallel,
                [&]<int kWide>(Vecs<kWide>, int64_t matrix, int64_t place, int lanes) {
                  const int64_t at = matrix * channels * places + place;
                  NormalizeColumns<kWide>(x + at, scale, y + at, channels, places, epsilon, lanes);
                });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(L2NormCpu,
                           (const T* x, const T* scale, T* y, int64_t matrices, int64_t channels, int64_t places,
                            float epsilon, const ParallelFor& parallel),
                           (x, scale, y, matrices, channels, places, epsilon, parallel))
ONNXFUSE_INSTANTIATE(L2NormCpu, float)
ONNXFUSE_INSTANTIATE(L2NormCpu, Half)
ONNXFUSE_INSTANTIATE(L2NormCpu, BFloat16)
