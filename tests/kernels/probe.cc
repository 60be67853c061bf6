// What simd.h offers, as functions over arrays, for every instruction set: y[i] = f(a[i], b[i], c[i]).
//
// The C functions at the end are what tests/kernels loads with ctypes.

#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/parallel.h"
#include "custom_ops/_runtime/simd.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// The names that tests use; keep in step with FUNCTIONS in test_simd.py.
enum Function {
  kCopy,
  kExp,
  kErf,
  kTanh,
  kSigmoid,
  kRsqrt,
  kSqrt,
  kDivide,
  kFma,
  kNegFma,
  kMin,
  kMax,
  kAbs,
  kCopySign,
  kRoundEven,
  kFloor,
  kNegate,
  kLess,
  kLessEqual,
  kEqual,
  kNotEqual,
  kIsNan,
  kExpTwo
};

ONNXFUSE_INLINE Vec Truth(Mask m) { return Select(m, Set(1.0f), Zero()); }

ONNXFUSE_INLINE Vec Apply(int function, Vec a, Vec b, Vec c) {
  switch (function) {
    case kExp: return Exp(a);
    case kErf: return Erf(a);
    case kTanh: return Tanh(a);
    case kSigmoid: return Sigmoid(a);
    case kRsqrt: return Rsqrt(a);
    case kSqrt: return Sqrt(a);
    case kDivide: return a / b;
    case kFma: return Fma(a, b, c);
    case kNegFma: return NegFma(a, b, c);
    case kMin: return Min(a, b);
    case kMax: return Max(a, b);
    case kAbs: return Abs(a);
    case kCopySign: return CopySign(a, b);
    case kRoundEven: return RoundEven(a);
    case kFloor: return Floor(a);
    case kNegate: return -a;
    case kLess: return Truth(a < b);
    case kLessEqual: return Truth(a <= b);
    case kEqual: return Truth(a == b);
    case kNotEqual: return Truth(a != b);
    case kIsNan: return Truth(IsNan(a));
    case kExpTwo: return ExpTwo(a);
    default: return a;
  }
}

template <typename T>
void ProbeMap(const T* a, const T* b, const T* c, T* y, int64_t n, int function) {
  ForEachVec(n, [&](int64_t i, int lanes) {
    StoreN(y + i, Apply(function, LoadN(a + i, lanes), LoadN(b + i, lanes), LoadN(c + i, lanes)), lanes);
  });
}

// out[0..5]: sum, max, min over one vector; any and all of (mask[0:n] != 0); count of true lanes. n <= kLanes.
template <typename T>
void ProbeReduce(const T* a, const uint8_t* mask, float* out, int64_t n) {
  const int lanes = static_cast<int>(n);
  const Vec x = LoadN(a, lanes);
  const Mask m = LoadMaskPartial(mask, lanes);
  const Mask whole = lanes == kLanes ? LoadMask(mask) : m;
  out[0] = ReduceSum(x);
  out[1] = ReduceMax(x);
  out[2] = ReduceMin(x);
  out[3] = AnyOf(m) ? 1.0f : 0.0f;
  out[4] = AllOf(whole | !FirstMask(lanes)) ? 1.0f : 0.0f;
  out[5] = ReduceSum(Truth(m & FirstMask(lanes)));
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(ProbeMap, (const T* a, const T* b, const T* c, T* y, int64_t n, int function),
                           (a, b, c, y, n, function))
ONNXFUSE_INSTANTIATE(ProbeMap, float)
ONNXFUSE_INSTANTIATE(ProbeMap, onnxfuse::Half)
ONNXFUSE_INSTANTIATE(ProbeMap, onnxfuse::BFloat16)
ONNXFUSE_DISPATCH_TEMPLATE(ProbeReduce, (const T* a, const uint8_t* mask, float* out, int64_t n), (a, mask, out, n))
ONNXFUSE_INSTANTIATE(ProbeReduce, float)
ONNXFUSE_INSTANTIATE(ProbeReduce, onnxfuse::Half)
ONNXFUSE_INSTANTIATE(ProbeReduce, onnxfuse::BFloat16)

#if ONNXFUSE_ISA_LEVEL == 0

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using onnxfuse::BFloat16;
using onnxfuse::Half;

template <typename T>
void MapAs(const void* a, const void* b, const void* c, void* y, int64_t n, int function) {
  onnxfuse::ProbeMap<T>(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<const T*>(c),
                        static_cast<T*>(y), n, function);
}

}  // namespace

// type: 0 float, 1 float16, 2 bfloat16.
EXPORT int force_isa(int isa) { return onnxfuse::ForceIsa(static_cast<onnxfuse::Isa>(isa)); }
EXPORT int active_isa() { return static_cast<int>(onnxfuse::ActiveIsa()); }
EXPORT void probe_map(int type, const void* a, const void* b, const void* c, void* y, int64_t n, int function) {
  auto* map = type == 0 ? MapAs<float> : type == 1 ? MapAs<Half> : MapAs<BFloat16>;
  map(a, b, c, y, n, function);
}
EXPORT void probe_reduce(int type, const void* a, const uint8_t* mask, float* out, int64_t n) {
  if (type == 0) onnxfuse::ProbeReduce(static_cast<const float*>(a), mask, out, n);
  if (type == 1) onnxfuse::ProbeReduce(static_cast<const Half*>(a), mask, out, n);
  if (type == 2) onnxfuse::ProbeReduce(static_cast<const BFloat16*>(a), mask, out, n);
}
// One value at a time: 0 float -> half, 1 half -> float, 2 float -> bfloat16, 3 bfloat16 -> float.
EXPORT void probe_scalar(int conversion, const void* x, void* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (conversion == 0) static_cast<Half*>(y)[i] = onnxfuse::FromFloat<Half>(static_cast<const float*>(x)[i]);
    if (conversion == 1) static_cast<float*>(y)[i] = onnxfuse::ToFloat(static_cast<const Half*>(x)[i]);
    if (conversion == 2) static_cast<BFloat16*>(y)[i] = onnxfuse::FromFloat<BFloat16>(static_cast<const float*>(x)[i]);
    if (conversion == 3) static_cast<float*>(y)[i] = onnxfuse::ToFloat(static_cast<const BFloat16*>(x)[i]);
  }
}

#endif
