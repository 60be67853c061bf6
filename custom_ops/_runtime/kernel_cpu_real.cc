// Programs on float, float16 and bfloat16: Vecs of floats, rounded to the type when stored.
#include "custom_ops/_runtime/activation.h"
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/program_kernels.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/_runtime/simd_functions.h"
#include "custom_ops/_runtime/vec_loops.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {
namespace {

ONNXFUSE_INLINE void StoreMaskN(uint8_t* p, Mask m, int lanes) {
  if (lanes == kLanes) {
    StoreMask(p, m);
  } else {
    StoreMaskPartial(p, m, lanes);
  }
}

template <typename T, auto kFunction>
void Test1(const KernelArguments& a) {
  const Argument<T> x(a, 0);
  uint8_t* y = static_cast<uint8_t*>(a.y);
  ForEachVec(a.count, [&](int64_t i, int lanes) { StoreMaskN(y + i, kFunction(x.At(i, lanes)), lanes); });
}

template <typename T, auto kFunction>
void Test2(const KernelArguments& a) {
  const Argument<T> x0(a, 0), x1(a, 1);
  uint8_t* y = static_cast<uint8_t*>(a.y);
  ForEachVec(a.count,
             [&](int64_t i, int lanes) { StoreMaskN(y + i, kFunction(x0.At(i, lanes), x1.At(i, lanes)), lanes); });
}

template <typename T>
void Choose(const KernelArguments& a) {
  const uint8_t* condition = static_cast<const uint8_t*>(a.x[0]);
  const Argument<T> x1(a, 1), x2(a, 2);
  T* y = static_cast<T*>(a.y);
  ForEachVec(a.count, [&](int64_t i, int lanes) {
    const uint8_t* at = condition + i * a.step[0];
    const Mask mask = lanes == kLanes ? LoadMask(at) : LoadMaskPartial(at, lanes);
    StoreN(y + i, Select(mask, x1.At(i, lanes), x2.At(i, lanes)), lanes);
  });
}

// Of NaN: NaN for float, 0 for the 16-bit types, as ONNX Runtime has it.
template <typename T>
ONNXFUSE_INLINE Vec SignOf(Vec x) {
  const Vec sign = Select(x < Zero(), Set(-1.0f), Select(x > Zero(), Set(1.0f), Zero()));
  return sizeof(T) == sizeof(float) ? Select(IsNan(x), x, sign) : sign;
}

ONNXFUSE_INLINE Vec TruncateToWhole(Vec x) { return CopySign(Floor(Abs(x)), x); }

// ONNX Runtime squares and cubes where the exponent is one number, 2 or 3.
template <typename T>
void PowBlock(const KernelArguments& a) {
  const float exponent = a.step[1] == 0 ? ToFloat(*static_cast<const T*>(a.x[1])) : 0.0f;
  if (exponent == 2.0f) return Map1<T, [](Vec x) { return x * x; }>(a);
  if (exponent == 3.0f) return Map1<T, [](Vec x) { return x * x * x; }>(a);
  Map2<T, [](Vec x, Vec y) { return PerLane(x, y, [](float b, float e) { return ::powf(b, e); }); }>(a);
}

#define MAP1(name, expression) \
  case Primitive::k##name: return &Map1<T, [](Vec x) { return (expression); }>
#define LIBM(name, function) MAP1(name, PerLane(x, [](float lane) { return ::function(lane); }))
#define MAP2(name, expression) \
  case Primitive::k##name: return &Map2<T, [](Vec x, Vec y) { return (expression); }>
#define CHEAP1(name, expression) \
  case Primitive::k##name: return &Map1<T, [](Vec x) { return (expression); }, kCheap>
#define CHEAP2(name, expression) \
  case Primitive::k##name: return &Map2<T, [](Vec x, Vec y) { return (expression); }, kCheap>
#define TEST2(name, expression) \
  case Primitive::k##name: return &Test2<T, [](Vec x, Vec y) { return (expression); }>

template <typename T>
ProgramKernel OneArgument(Primitive primitive) {
  switch (primitive) {
    CHEAP1(Identity, x);
    MAP1(Sqrt, Sqrt(x));
    MAP1(Reciprocal, Set(1.0f) / x);
    MAP1(Exp, Exp(x));
    MAP1(Log, Log(x));
    MAP1(Sigmoid, Sigmoid(x));
    MAP1(Tanh, Tanh(x));
    MAP1(Erf, Erf(x));
    MAP1(Sin, Sin(x));
    MAP1(Cos, Cos(x));
    LIBM(Tan, tanf);
    LIBM(Asin, asinf);
    LIBM(Acos, acosf);
    LIBM(Atan, atanf);
    LIBM(Sinh, sinhf);
    LIBM(Cosh, coshf);
    LIBM(Asinh, asinhf);
    LIBM(Acosh, acoshf);
    LIBM(Atanh, atanhf);
    MAP1(Floor, Floor(x));
    MAP1(Ceil, -Floor(-x));
    MAP1(Round, RoundEven(x));
    MAP1(Softplus, Softplus(x));
    MAP1(Softsign, x / (Set(1.0f) + Abs(x)));
    MAP1(Gelu, GeluErf(x));
    MAP1(GeluTanh, GeluTanh(x));
    CHEAP1(Neg, -x);
    CHEAP1(Abs, Abs(x));
    MAP1(Sign, SignOf<T>(x));
    CHEAP1(Relu, Max(Zero(), x));
    case Primitive::kIsNaN: return &Test1<T, [](Vec x) { return IsNan(x); }>;
    case Primitive::kIsInf: return &Test1<T, [](Vec x) { return Abs(x) == Set(__builtin_inff()); }>;
    default: return nullptr;
  }
}

template <typename T>
ProgramKernel MoreArguments(Primitive primitive) {
  switch (primitive) {
    CHEAP2(Add, x + y);
    CHEAP2(Sub, x - y);
    CHEAP2(Mul, x * y);
    MAP2(Div, x / y);
    CHEAP2(Max, MaxOf(x, y));
    CHEAP2(Min, MinOf(x, y));
    MAP2(FMod, PerLane(x, y, [](float a, float b) { return ::fmodf(a, b); }));
    MAP2(PRelu, Select(x < Zero(), x * y, x));
    TEST2(Equal, x == y);
    TEST2(Less, x < y);
    TEST2(LessOrEqual, x <= y);
    TEST2(Greater, x > y);
    TEST2(GreaterOrEqual, x >= y);
    case Primitive::kPow: return &PowBlock<T>;
    case Primitive::kWhere: return &Choose<T>;
    case Primitive::kClip: return &Map3<T, [](Vec x, Vec low, Vec high) { return MinOf(MaxOf(x, low), high); }>;
    default: return nullptr;
  }
}

template <typename T>
ProgramKernel RealKernel(const KernelKey& key) {
  const ProgramKernel found = OneArgument<T>(key.primitive);
  return found != nullptr ? found : MoreArguments<T>(key.primitive);
}

}  // namespace

void FindRealKernel(const KernelKey& key, ProgramKernel* found) {
  switch (key.type) {
    case Type::kFloat: *found = RealKernel<float>(key); break;
    case Type::kFloat16: *found = RealKernel<Half>(key); break;
    case Type::kBFloat16: *found = RealKernel<BFloat16>(key); break;
    default: *found = nullptr;
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH(FindRealKernel, (const KernelKey& key, ProgramKernel* found), (key, found))
