#include "custom_ops/_runtime/activation.h"
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/normalize.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/group_norm/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <bool kSilu, typename T>
ONNXFUSE_INLINE void NormalizeGroup(const T* x, const T* scale, const T* bias, T* y, int64_t channels, int64_t places,
                                    float epsilon) {
  const RowStatistics group =
      Statistics<true>(channels * places, epsilon, [&](int64_t i, int lanes) { return LoadN(x + i, lanes); });
  for (int64_t channel = 0; channel < channels; ++channel) {
    const Vec factor = Set(scale == nullptr ? 1.0f : ToFloat(scale[channel]));
    const Vec shift = Set(bias == nullptr ? 0.0f : ToFloat(bias[channel]));
    const int64_t at = channel * places;
    ForEachVec(places, [&](int64_t i, int lanes) {
      const Vec v = Fma(group.Normal(LoadN(x + at + i, lanes)), factor, shift);
      StoreAhead(y + at + i, kSilu ? Silu(v, Set(1.0f)) : v, lanes);
      Prefetch<Fetch::kFar>(x + channels * places + at + i);  // the next group: memory would rest here
    });
  }
}

template <bool kSilu, typename T>
ONNXFUSE_INLINE void NormalizeGroups(const T* x, const T* scale, const T* bias, T* y, const GroupNormShape& shape,
                                     float epsilon, const ParallelFor& parallel) {
  constexpr double kNanosecondsPerElement = kSilu ? 1.2 : 0.5;
  const int64_t size = shape.channels * shape.places;
  parallel(shape.batch * shape.groups, static_cast<double>(size) * kNanosecondsPerElement,
           [&](int64_t begin, int64_t end) {
             for (int64_t group = begin; group < end; ++group) {
               const int64_t channel = group % shape.groups * shape.channels;
               NormalizeGroup<kSilu>(x + group * size, scale == nullptr ? nullptr : scale + channel,
                                     bias == nullptr ? nullptr : bias + channel, y + group * size, shape.channels,
                                     shape.places, epsilon);
             }
           });
}

template <typename T>
void GroupNormCpu(const T* x, const T* scale, const T* bias, T* y, const GroupNormShape& shape, float epsilon,
                  bool is_silu, const ParallelFor& parallel) {
  if (is_silu) {
    NormalizeGroups<true>(x, scale, bias, y, shape, epsilon, parallel);
  } else {
    NormalizeGroups<false>(x, scale, bias, y, shape, epsilon, parallel);
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(GroupNormCpu,
                           (const T* x, const T* scale, const T* bias, T* y, const GroupNormShape& shape, float epsilon,
                            bool is_silu, const ParallelFor& parallel),
                           (x, scale, bias, y, shape, epsilon, is_silu, parallel))
ONNXFUSE_INSTANTIATE(GroupNormCpu, float)
ONNXFUSE_INSTANTIATE(GroupNormCpu, Half)
ONNXFUSE_INSTANTIATE(GroupNormCpu, BFloat16)
