// Programs on double, integers and bool.
//
// Integers wrap. A quotient by 0 is 0 and is reported; the least value by -1 wraps. Mod has the sign of the divisor,
// FMod that of the dividend. A shift by the width or more gives 0. A bool is true where its byte is not 0.
#include <math.h>
#include <string.h>

#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/plain_loops.h"
#include "custom_ops/_runtime/program_kernels.h"
#include "custom_ops/_runtime/whole.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {
namespace {

double SoftplusOf(double x) { return x > 0 ? x + ::log1p(::exp(-x)) : ::log1p(::exp(x)); }
double SigmoidOf(double x) {
  const double e = ::exp(-::fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
double GeluOf(double x) { return 0.5 * x * (1.0 + ::erf(x * 0.70710678118654752440)); }
double GeluTanhOf(double x) { return 0.5 * x * (1.0 + ::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); }

// NaN if either is; the second where both are equal.
template <typename T>
ONNXFUSE_INLINE T MaxOf(T a, T b) {
  return a != a || a > b ? a : b;
}
template <typename T>
ONNXFUSE_INLINE T MinOf(T a, T b) {
  return a != a || a < b ? a : b;
}

#define REAL1(name, expression) \
  case Primitive::k##name: return &Plain1<double, double, [](double x) { return (expression); }>
#define T1(name, expression) \
  case Primitive::k##name: return &Plain1<T, T, [](T x) -> T { return static_cast<T>(expression); }>
#define T2(name, expression) \
  case Primitive::k##name: return &Plain2<T, T, [](T x, T y) -> T { return static_cast<T>(expression); }>
#define TEST2(name, expression) \
  case Primitive::k##name: return &Plain2<T, uint8_t, [](T x, T y) -> uint8_t { return (expression); }>

template <typename T>
ProgramKernel CompareKernel(Primitive primitive) {
  switch (primitive) {
    TEST2(Equal, x == y);
    TEST2(Less, x < y);
    TEST2(LessOrEqual, x <= y);
    TEST2(Greater, x > y);
    TEST2(GreaterOrEqual, x >= y);
    T2(Max, MaxOf(x, y));
    T2(Min, MinOf(x, y));
    case Primitive::kClip: return &Plain3<T, T, [](T x, T low, T high) { return MinOf(MaxOf(x, low), high); }>;
    default: return nullptr;
  }
}

void PowDouble(const KernelArguments& a) {
  const double exponent = a.step[1] == 0 ? *static_cast<const double*>(a.x[1]) : 0.0;
  if (exponent == 2) return Plain1<double, double, [](double x) { return x * x; }>(a);
  if (exponent == 3) return Plain1<double, double, [](double x) { return x * x * x; }>(a);
  Plain2<double, double, [](double x, double y) { return ::pow(x, y); }>(a);
}

ProgramKernel DoubleFunction(Primitive primitive) {
  switch (primitive) {
    REAL1(Sqrt, ::sqrt(x));
    REAL1(Reciprocal, 1.0 / x);
    REAL1(Exp, ::exp(x));
    REAL1(Log, ::log(x));
    REAL1(Sigmoid, SigmoidOf(x));
    REAL1(Tanh, ::tanh(x));
    REAL1(Erf, ::erf(x));
    REAL1(Sin, ::sin(x));
    REAL1(Cos, ::cos(x));
    REAL1(Tan, ::tan(x));
    REAL1(Asin, ::asin(x));
    REAL1(Acos, ::acos(x));
    REAL1(Atan, ::atan(x));
    REAL1(Sinh, ::sinh(x));
    REAL1(Cosh, ::cosh(x));
    REAL1(Asinh, ::asinh(x));
    REAL1(Acosh, ::acosh(x));
    REAL1(Atanh, ::atanh(x));
    REAL1(Floor, ::floor(x));
    REAL1(Ceil, ::ceil(x));
    REAL1(Round, ::rint(x));
    REAL1(Softplus, SoftplusOf(x));
    REAL1(Softsign, x / (1.0 + ::fabs(x)));
    REAL1(Gelu, GeluOf(x));
    REAL1(GeluTanh, GeluTanhOf(x));
    default: return nullptr;
  }
}

ProgramKernel DoubleKernel(Primitive primitive) {
  using T = double;
  switch (primitive) {
    T1(Neg, -x);
    T1(Abs, ::fabs(x));
    T1(Sign, x > 0 ? 1.0 : x < 0 ? -1.0 : x == 0 ? 0.0 : x);
    T1(Relu, x < 0 ? 0.0 : x);
    T2(Add, x + y);
    T2(Sub, x - y);
    T2(Mul, x * y);
    T2(Div, x / y);
    T2(FMod, ::fmod(x, y));
    T2(PRelu, x < 0 ? x * y : x);
    case Primitive::kPow: return &PowDouble;
    case Primitive::kIsNaN: return &Plain1<T, uint8_t, [](T x) -> uint8_t { return x != x; }>;
    case Primitive::kIsInf: return &Plain1<T, uint8_t, [](T x) -> uint8_t { return ::fabs(x) == __builtin_inf(); }>;
    default: break;
  }
  const ProgramKernel found = DoubleFunction(primitive);
  return found != nullptr ? found : CompareKernel<T>(primitive);
}

// y = f(x0, x1) where x1 is not 0.
template <typename T, auto kFunction>
void Divide(const KernelArguments& a) {
  bool found_zero = false;
  for (int64_t i = 0; i < a.count; ++i) {
    const int64_t in_splat = i % kSplat;
    const T x = static_cast<const T*>(a.x[0])[a.step[0] != 0 ? i : in_splat];
    const T y = static_cast<const T*>(a.x[1])[a.step[1] != 0 ? i : in_splat];
    found_zero = found_zero || y == 0;
    static_cast<T*>(a.y)[i] = y == 0 ? T{0} : kFunction(x, y);
  }
  if (found_zero && a.divides_by_zero != nullptr) *a.divides_by_zero = true;
}

template <typename T>
ProgramKernel QuotientKernel(Primitive primitive) {
  switch (primitive) {
    case Primitive::kDiv: return &Divide<T, [](T x, T y) { return Quotient(x, y); }>;
    case Primitive::kFMod: return &Divide<T, [](T x, T y) { return Remainder(x, y); }>;
    case Primitive::kMod: return &Divide<T, [](T x, T y) { return Modulo(x, y); }>;
    default: return nullptr;
  }
}

// U is T without a sign: arithmetic that wraps.
template <typename T, typename U>
ProgramKernel WholeKernel(Primitive primitive) {
  constexpr int kWidth = 8 * sizeof(T);
  switch (primitive) {
    T1(Neg, U{0} - U(x));
    T1(Abs, x < 0 ? U{0} - U(x) : U(x));
    T1(Sign, x > 0 ? 1 : x < 0 ? -1 : 0);
    T1(Relu, x < 0 ? T{0} : x);
    T1(BitwiseNot, ~x);
    T2(Add, U(x) + U(y));
    T2(Sub, U(x) - U(y));
    T2(Mul, uint64_t(x) * uint64_t(y));
    T2(PRelu, x < 0 ? uint64_t(x) * uint64_t(y) : uint64_t(x));
    T2(BitwiseAnd, x & y);
    T2(BitwiseOr, x | y);
    T2(BitwiseXor, x ^ y);
    T2(ShiftLeft, y < kWidth ? uint64_t(x) << y : 0);
    T2(ShiftRight, y < kWidth ? x >> y : 0);
    T2(Pow, WholeOf<T>(::pow(static_cast<double>(x), static_cast<double>(y))));
    default: break;
  }
  const ProgramKernel found = QuotientKernel<T>(primitive);
  return found != nullptr ? found : CompareKernel<T>(primitive);
}

ProgramKernel BoolKernel(Primitive primitive) {
  using T = uint8_t;
  switch (primitive) {
    T1(Not, x == 0);
    T2(And, (x != 0) & (y != 0));
    T2(Or, (x | y) != 0);
    T2(Xor, (x != 0) != (y != 0));
    T2(Equal, (x != 0) == (y != 0));
    default: return nullptr;
  }
}

template <typename U>
void Copy(const KernelArguments& a) {
  const U* x = static_cast<const U*>(a.x[0]);
  U* y = static_cast<U*>(a.y);
  if (a.step[0] != 0) {
    ::memmove(y, x, static_cast<size_t>(a.count) * sizeof(U));
  } else {
    const U value = a.count > 0 ? *x : U{};
    for (int64_t i = 0; i < a.count; ++i) y[i] = value;
  }
}

// What minds the size only. U: an unsigned integer of that size.
template <typename U>
ProgramKernel MoveKernel(Primitive primitive) {
  switch (primitive) {
    case Primitive::kIdentity: return &Copy<U>;
    case Primitive::kWhere: return &Plain3<uint8_t, U, [](uint8_t c, U x, U y) { return c != 0 ? x : y; }>;
    default: return nullptr;
  }
}

ProgramKernel MoveKernelOf(const KernelKey& key) {
  switch (SizeOfPlain(key.type)) {
    case 1: return MoveKernel<uint8_t>(key.primitive);
    case 2: return MoveKernel<uint16_t>(key.primitive);
    case 4: return MoveKernel<uint32_t>(key.primitive);
    default: return MoveKernel<uint64_t>(key.primitive);
  }
}

ProgramKernel ComputeKernelOf(const KernelKey& key) {
  switch (key.type) {
    case Type::kDouble: return DoubleKernel(key.primitive);
    case Type::kInt8: return WholeKernel<int8_t, uint8_t>(key.primitive);
    case Type::kUInt8: return WholeKernel<uint8_t, uint8_t>(key.primitive);
    case Type::kInt16: return WholeKernel<int16_t, uint16_t>(key.primitive);
    case Type::kUInt16: return WholeKernel<uint16_t, uint16_t>(key.primitive);
    case Type::kInt32: return WholeKernel<int32_t, uint32_t>(key.primitive);
    case Type::kUInt32: return WholeKernel<uint32_t, uint32_t>(key.primitive);
    case Type::kInt64: return WholeKernel<int64_t, uint64_t>(key.primitive);
    case Type::kUInt64: return WholeKernel<uint64_t, uint64_t>(key.primitive);
    default: return BoolKernel(key.primitive);
  }
}

}  // namespace

void FindPlainKernel(const KernelKey& key, ProgramKernel* found) {
  *found = MoveKernelOf(key);
  if (*found == nullptr) *found = ComputeKernelOf(key);
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH(FindPlainKernel, (const KernelKey& key, ProgramKernel* found), (key, found))
