#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/rows.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/masked_softmax/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr int64_t kKept = 8192;  // scores of a row that are kept in float on the stack

struct NoMask {};

// The scores of one row. M is NoMask, uint8_t for a choice, or the type of what is added.
template <typename T, typename M>
struct Scores {
  const T* x;
  const M* mask;
  int64_t column;
  Vec scale;
  Vec mask_value;

  template <bool kIsFirst>
  ONNXFUSE_INLINE Vec At(int64_t i, int lanes) const {
    const Vec s = scale * (kIsFirst ? LoadAhead(x + i, lanes) : LoadN(x + i, lanes));
    if constexpr (sizeof(M) == sizeof(uint8_t) && !__is_same(M, NoMask)) {
      const uint8_t* at = mask + i * column;
      if (column == 0) return *at != 0 ? s : mask_value;
      return Select(lanes == kLanes ? LoadMask(at) : LoadMaskPartial(at, lanes), s, mask_value);
    } else if constexpr (!__is_same(M, NoMask)) {
      return s + (column == 0 ? Set(ToFloat(*mask)) : LoadN(mask + i, lanes));
    } else {
      return s;
    }
  }
};

// Where the mask of a row begins.
ONNXFUSE_INLINE int64_t MaskOfRow(const MaskedSoftmaxArgs& args, int64_t row) {
  int64_t at = 0;
  for (int axis = args.axes - 1; axis >= 0; --axis) {
    at += row % args.sizes[axis] * args.mask_steps[axis];
    row /= args.sizes[axis];
  }
  return at;
}

// exp(s - most) / sum. `kept` is room for a row of floats, or null: then the exponentials are worked out twice.
template <typename T, typename M>
ONNXFUSE_INLINE void SoftmaxRow(const Scores<T, M>& score, T* y, int64_t cols, float* kept, bool zero_masked_rows) {
  const Vec lowest = Set(-__builtin_inff());
  const Vec most = Set(RowMax(cols, [&](int64_t i, int lanes) {
    const Vec s = score.template At<true>(i, lanes);
    if (kept != nullptr) StoreN(kept + i, s, lanes);
    return lanes == kLanes ? s : Select(FirstMask(lanes), s, lowest);
  }));
  // ExpTwo knows nothing above 0; what is NaN there, or inf less inf, makes the sum NaN.
  auto power = [&](int64_t i, int lanes) {
    const Vec s = kept != nullptr ? LoadN(kept + i, lanes) : score.template At<false>(i, lanes);
    return ExpTwo((s - most) * Set(kLog2E));
  };
  const float sum = RowSum(cols, [&](int64_t i, int lanes) {
    const Vec e = power(i, lanes);
    if (kept != nullptr) StoreN(kept + i, e, lanes);
    return lanes == kLanes ? e : Select(FirstMask(lanes), e, Zero());
  });
  const bool is_zero = zero_masked_rows && sum != sum;
  const Vec factor = Set(1.0f / sum);
  ForEachVec(cols, [&](int64_t i, int lanes) {
    const Vec e = kept != nullptr ? LoadN(kept + i, lanes) : power(i, lanes);
    StoreAhead(y + i, is_zero ? Zero() : e * factor, lanes);
  });
}

template <typename T, typename M>
ONNXFUSE_INLINE void SoftmaxRows(const T* x, T* y, const MaskedSoftmaxArgs& args, const ParallelFor& parallel) {
  constexpr double kNanosecondsPerElement = 1.0;
  const M* mask = static_cast<const M*>(args.mask);
  parallel(args.rows, static_cast<double>(args.cols) * kNanosecondsPerElement, [&](int64_t begin, int64_t end) {
    float kept[kKept];
    for (int64_t row = begin; row < end; ++row) {
      const Scores<T, M> score{x + row * args.cols, mask + MaskOfRow(args, row), args.mask_column, Set(args.scale),
                               Set(args.mask_value)};
      SoftmaxRow(score, y + row * args.cols, args.cols, args.cols <= kKept ? kept : nullptr, args.zero_masked_rows);
    }
  });
}

template <typename T>
void MaskedSoftmaxCpu(const T* x, T* y, const MaskedSoftmaxArgs& args, const ParallelFor& parallel) {
  switch (args.mask_kind) {
    case SoftmaxMask::kNone: return SoftmaxRows<T, NoMask>(x, y, args, parallel);
    case SoftmaxMask::kBool: return SoftmaxRows<T, uint8_t>(x, y, args, parallel);
    case SoftmaxMask::kFloat: return SoftmaxRows<T, float>(x, y, args, parallel);
    case SoftmaxMask::kHalf: return SoftmaxRows<T, Half>(x, y, args, parallel);
    case SoftmaxMask::kBFloat16: return SoftmaxRows<T, BFloat16>(x, y, args, parallel);
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(MaskedSoftmaxCpu,
                           (const T* x, T* y, const MaskedSoftmaxArgs& args, const ParallelFor& parallel),
                           (x, y, args, parallel))
ONNXFUSE_INSTANTIATE(MaskedSoftmaxCpu, float)
ONNXFUSE_INSTANTIATE(MaskedSoftmaxCpu, Half)
ONNXFUSE_INSTANTIATE(MaskedSoftmaxCpu, BFloat16)
