#include "custom_ops/_runtime/columns.h"
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/normalize.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/channel_layer_norm/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// What a place needs to be normalised, as RowStatistics in normalize.h: ((v - mean) - rest) * factor.
template <int kWide>
struct ColumnStatistics {
  Vec mean[kWide];
  Vec rest[kWide];
  Vec factor[kWide];
};

// first(channel, w) gives each element when it is first read, again(channel, w) later. As for rows in normalize.h: the
// variance from differences, what the rounded mean leaves over taken off them, and both once more where it is too much.
template <int kWide, typename First, typename Again>
ONNXFUSE_INLINE ColumnStatistics<kWide> StatisticsOfColumns(int64_t channels, float epsilon, First&& first,
                                                            Again&& again) {
  const Vec count = Set(static_cast<float>(channels));
  Vec sum[1][kWide], sums[2][kWide];
  SumOverChannels(channels, sum, [&](int64_t channel, auto& part) {
    for (int w = 0; w < kWide; ++w) part[0][w] = part[0][w] + first(channel, w);
  });
  ColumnStatistics<kWide> result;
  for (int w = 0; w < kWide; ++w) result.mean[w] = sum[0][w] / count;
  for (bool is_first = true;; is_first = false) {
    SumOverChannels(channels, sums, [&](int64_t channel, auto& part) {
      for (int w = 0; w < kWide; ++w) {
        const Vec difference = again(channel, w) - result.mean[w];
        part[0][w] = part[0][w] + difference;
        part[1][w] = Fma(difference, difference, part[1][w]);
      }
    });
    bool takes_digits = false;
    for (int w = 0; w < kWide; ++w) {
      const Vec rest = sums[0][w] / count, too_much = rest * rest, squares = sums[1][w] / count;
      result.rest[w] = rest;
      result.factor[w] = Rsqrt(Max(Zero(), squares - too_much) + Set(epsilon));
      takes_digits = takes_digits || AnyOf(TakesDigits(too_much, squares));
    }
    if (!is_first || !takes_digits) return result;
    for (int w = 0; w < kWide; ++w) result.mean[w] = result.mean[w] + result.rest[w];
  }
}

template <int kWide, typename T>
ONNXFUSE_INLINE void NormalizeColumns(const T* x, const T* scale, const T* bias, T* y, const ColumnShape& shape,
                                      float epsilon, int lanes) {
  const int64_t places = shape.places;
  auto first = [&](int64_t channel, int w) { return LoadColumn<kWide>(x + channel * places + w * kLanes, lanes); };
  auto again = [&](int64_t channel, int w) { return LoadN(x + channel * places + w * kLanes, lanes); };
  const ColumnStatistics<kWide> column = StatisticsOfColumns<kWide>(shape.channels, epsilon, first, again);
  for (int64_t channel = 0; channel < shape.channels; ++channel) {
    const Vec factor = Set(scale == nullptr ? 1.0f : ToFloat(scale[channel]));
    const Vec shift = Set(bias == nullptr ? 0.0f : ToFloat(bias[channel]));
    for (int w = 0; w < kWide; ++w) {
      const Vec normal = ((again(channel, w) - column.mean[w]) - column.rest[w]) * column.factor[w];
      StoreColumn<kWide>(y + channel * places + w * kLanes, Fma(normal, factor, shift), lanes);
    }
  }
}

template <typename T>
void ChannelLayerNormCpu(const T* x, const T* scale, const T* bias, T* y, const ColumnShape& shape, float epsilon,
                         const ParallelFor& parallel) {
  constexpr double kNanosecondsPerElement = 0.5;
  const double cost = static_cast<double>(shape.channels) * kNanosecondsPerElement;
  ForEachColumn(shape.matrices, shape.places, cost, parallel,
                [&]<int kWide>(Vecs<kWide>, int64_t matrix, int64_t place, int lanes) {
                  const int64_t at = matrix * shape.channels * shape.places + place;
                  NormalizeColumns<kWide>(x + at, scale, bias, y + at, shape, epsilon, lanes);
                });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(ChannelLayerNormCpu,
                           (const T* x, const T* scale, const T* bias, T* y, const ColumnShape& shape, float epsilon,
                            const ParallelFor& parallel),
                           (x, scale, bias, y, shape, epsilon, parallel))
ONNXFUSE_INSTANTIATE(ChannelLayerNormCpu, float)
ONNXFUSE_INSTANTIATE(ChannelLayerNormCpu, Half)
ONNXFUSE_INSTANTIATE(ChannelLayerNormCpu, BFloat16)
