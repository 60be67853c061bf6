// What every generated kernel starts with: storage types, vectors, and a function for each primitive of programs.
//
// Plain CUDA C++17 without headers. Where __CUDACC__ is not defined (the tests run kernels on the CPU) the conversions
// of 16-bit floats are those of the compiler. Meanings are those of custom_ops/_runtime/program.h.
#pragma once

namespace onnxfuse::cuda {

inline constexpr const char* kPrelude = R"cuda(
typedef signed char int8;
typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;
struct Half { uint16 bits; };
struct BFloat16 { uint16 bits; };
#define DEVICE static __device__ __forceinline__

// N elements that one instruction loads, or as few as 16 bytes each allow.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vector { T v[N]; };

DEVICE float FloatOf(uint32 bits) { union { uint32 u; float f; } x; x.u = bits; return x.f; }
DEVICE uint32 BitsOf(float value) { union { uint32 u; float f; } x; x.f = value; return x.u; }
DEVICE float Infinity() { return FloatOf(0x7F800000u); }
DEVICE float NotANumber() { return FloatOf(0x7FC00000u); }

#ifdef __CUDACC__
DEVICE float Widen(Half x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
DEVICE Half ToHalf(float x) { Half y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); return y; }
#else
DEVICE float Widen(Half x) { union { uint16 u; _Float16 h; } y; y.u = x.bits; return (float)y.h; }
DEVICE Half ToHalf(float x) { union { uint16 u; _Float16 h; } y; y.h = (_Float16)x; return Half{y.u}; }
#endif
DEVICE float Widen(BFloat16 x) { return FloatOf((uint32)x.bits << 16); }
DEVICE BFloat16 ToBFloat16(float x) {
  const uint32 bits = BitsOf(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return BFloat16{(uint16)((bits >> 16) | 0x40u)};
  return BFloat16{(uint16)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

// Casts. A number that an integer type does not hold goes as x86 takes it: by way of 32 or 64 bits, or their minimum.
DEVICE int64 Whole64(double x) { return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64)x : (int64)(1ull << 63); }
DEVICE int Whole32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int)x : (int)0x80000000u; }
DEVICE uint64 WholeWithoutSign64(double x) {
  if (x >= 9223372036854775808.0) return x < 18446744073709551616.0 ? (uint64)(int64)(x - 9223372036854775808.0) + (1ull << 63) : 0;
  return (uint64)Whole64(x);
}
template <typename To> struct CastTo {
  template <typename From> static __device__ __forceinline__ To Of(From x) { return (To)x; }
};
#define CAST_FROM_REAL(type, expression) \
  template <> struct CastTo<type> { \
    template <typename From> static __device__ __forceinline__ type Of(From x) { return (type)x; } \
    static __device__ __forceinline__ type Of(float x) { return (type)(expression); } \
    static __device__ __forceinline__ type Of(double x) { return (type)(expression); } \
  };
CAST_FROM_REAL(int8, Whole32(x))
CAST_FROM_REAL(uint8, Whole32(x))
CAST_FROM_REAL(short, Whole32(x))
CAST_FROM_REAL(uint16, Whole32(x))
CAST_FROM_REAL(int, Whole32(x))
CAST_FROM_REAL(uint32, Whole64(x))
CAST_FROM_REAL(int64, Whole64(x))
CAST_FROM_REAL(uint64, WholeWithoutSign64(x))
CAST_FROM_REAL(bool, x != 0)

#define REAL_1(name, float_expression, double_expression) \
  DEVICE float name(float x) { return float_expression; } \
  DEVICE double name(double x) { return double_expression; }
REAL_1(Sqrt, sqrtf(x), sqrt(x))
REAL_1(Reciprocal, 1.0f / x, 1.0 / x)
REAL_1(Exp, expf(x), exp(x))
REAL_1(Log, logf(x), log(x))
REAL_1(Sigmoid, x >= 0 ? 1.0f / (1.0f + expf(-x)) : expf(x) / (1.0f + expf(x)), x >= 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x)))
REAL_1(Tanh, tanhf(x), tanh(x))
REAL_1(Erf, erff(x), erf(x))
REAL_1(Sin, sinf(x), sin(x))
REAL_1(Cos, cosf(x), cos(x))
REAL_1(Tan, tanf(x), tan(x))
REAL_1(Asin, asinf(x), asin(x))
REAL_1(Acos, acosf(x), acos(x))
REAL_1(Atan, atanf(x), atan(x))
REAL_1(Sinh, sinhf(x), sinh(x))
REAL_1(Cosh, coshf(x), cosh(x))
REAL_1(Asinh, asinhf(x), asinh(x))
REAL_1(Acosh, acoshf(x), acosh(x))
REAL_1(Atanh, atanhf(x), atanh(x))
REAL_1(Floor, floorf(x), floor(x))
REAL_1(Ceil, ceilf(x), ceil(x))
REAL_1(Round, rintf(x), rint(x))
REAL_1(Softplus, x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x)), x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)))
REAL_1(Softsign, x / (1.0f + fabsf(x)), x / (1.0 + fabs(x)))
REAL_1(Gelu, 0.5f * x * (1.0f + erff(x * 0.707106781f)), 0.5 * x * (1.0 + erf(x * 0.70710678118654752)))
REAL_1(GeluTanh, 0.5f * x * (1.0f + tanhf(0.797884561f * (x + 0.044715f * x * x * x))), 0.5 * x * (1.0 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))))
DEVICE bool IsNaN(float x) { return x != x; }
DEVICE bool IsNaN(double x) { return x != x; }
DEVICE bool IsInf(float x) { return fabsf(x) == Infinity(); }
DEVICE bool IsInf(double x) { return fabs(x) == (double)Infinity(); }

template <typename T> struct IsRealType { static const bool value = false; };
template <> struct IsRealType<float> { static const bool value = true; };
template <> struct IsRealType<double> { static const bool value = true; };
// Whole numbers wrap: their arithmetic is that of 64 bits without sign, cut to the type.
template <typename T> DEVICE T Add(T x, T y) { return (T)((uint64)x + (uint64)y); }
template <typename T> DEVICE T Sub(T x, T y) { return (T)((uint64)x - (uint64)y); }
template <typename T> DEVICE T Mul(T x, T y) { return (T)((uint64)x * (uint64)y); }
template <typename T> DEVICE T Neg(T x) { return (T)(0 - (uint64)x); }
template <typename T> DEVICE T Div(T x, T y) { return y == 0 ? (T)0 : y == (T)-1 && (T)-1 < (T)0 ? Neg(x) : (T)(x / y); }
template <typename T> DEVICE T FMod(T x, T y) { return y == 0 || (y == (T)-1 && (T)-1 < (T)0) ? (T)0 : (T)(x % y); }
template <typename T> DEVICE T Mod(T x, T y) {
  const T rest = FMod(x, y);
  return rest != 0 && ((rest < (T)0) != (y < (T)0)) ? (T)(rest + y) : rest;
}
template <typename T> DEVICE T Abs(T x) { return x < (T)0 ? Neg(x) : x; }
template <typename T> DEVICE T Pow(T x, T y) { return CastTo<T>::Of(pow((double)x, (double)y)); }
#define REAL_2(name, float_expression, double_expression) \
  DEVICE float name(float x, float y) { return float_expression; } \
  DEVICE double name(double x, double y) { return double_expression; }
REAL_2(Add, x + y, x + y)
REAL_2(Sub, x - y, x - y)
REAL_2(Mul, x * y, x * y)
REAL_2(Div, x / y, x / y)
REAL_2(Pow, powf(x, y), pow(x, y))
REAL_2(FMod, fmodf(x, y), fmod(x, y))
REAL_1(Neg, -x, -x)
REAL_1(Abs, fabsf(x), fabs(x))
// NaN where either is.
template <typename T> DEVICE T Max(T x, T y) { return x != x || x > y ? x : y; }
template <typename T> DEVICE T Min(T x, T y) { return x != x || x < y ? x : y; }
// Of NaN NaN, but for 16-bit types 0: as ONNX Runtime has it.
DEVICE float SignOrZero(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }
template <typename T> DEVICE T Sign(T x) { return x > (T)0 ? (T)1 : x < (T)0 ? (T)-1 : x == (T)0 ? (T)0 : x; }
template <typename T> DEVICE T Relu(T x) { return x < (T)0 ? (T)0 : x; }
template <typename T> DEVICE T PRelu(T x, T slope) { return x < (T)0 ? Mul(slope, x) : x; }
template <typename T> DEVICE T Clip(T x, T low, T high) { return Min(Max(x, low), high); }
template <typename T> DEVICE T Identity(T x) { return x; }
template <typename T> DEVICE T Where(bool condition, T x, T y) { return condition ? x : y; }
DEVICE bool Not(bool x) { return !x; }
DEVICE bool And(bool x, bool y) { return x && y; }
DEVICE bool Or(bool x, bool y) { return x || y; }
DEVICE bool Xor(bool x, bool y) { return x != y; }
template <typename T> DEVICE T BitwiseNot(T x) { return (T)~x; }
template <typename T> DEVICE T BitwiseAnd(T x, T y) { return (T)(x & y); }
template <typename T> DEVICE T BitwiseOr(T x, T y) { return (T)(x | y); }
template <typename T> DEVICE T BitwiseXor(T x, T y) { return (T)(x ^ y); }
template <typename T> DEVICE T ShiftLeft(T x, T y) { return y < (T)(8 * sizeof(T)) ? (T)((uint64)x << y) : (T)0; }
template <typename T> DEVICE T ShiftRight(T x, T y) { return y < (T)(8 * sizeof(T)) ? (T)(x >> y) : (T)0; }
template <typename T> DEVICE bool Equal(T x, T y) { return x == y; }
template <typename T> DEVICE bool Less(T x, T y) { return x < y; }
template <typename T> DEVICE bool LessOrEqual(T x, T y) { return x <= y; }
template <typename T> DEVICE bool Greater(T x, T y) { return x > y; }
template <typename T> DEVICE bool GreaterOrEqual(T x, T y) { return x >= y; }

// How the parts of a reduction are put together.
struct Sum { template <typename T> static __device__ __forceinline__ T Of(T x, T y) { return Add(x, y); } };
struct Product { template <typename T> static __device__ __forceinline__ T Of(T x, T y) { return Mul(x, y); } };
struct Greatest { template <typename T> static __device__ __forceinline__ T Of(T x, T y) { return Max(x, y); } };
struct Least { template <typename T> static __device__ __forceinline__ T Of(T x, T y) { return Min(x, y); } };
// The next element of a thread's share: NaN is passed over, but for the first element of a row, which stays.
template <typename T> DEVICE T NextGreatest(bool is_first, T x, T y) { return is_first || y > x ? y : x; }
template <typename T> DEVICE T NextLeast(bool is_first, T x, T y) { return is_first || y < x ? y : x; }

// Over `kThreads` neighbouring threads, a power of two up to 32, or all 256 of a block; all of them get the result.
template <typename Op, int kThreads, typename T>
DEVICE T Together(T x, T* shared) {
#pragma unroll
  for (int apart = (kThreads < 32 ? kThreads : 32) / 2; apart > 0; apart /= 2) x = Op::Of(x, __shfl_xor_sync(0xFFFFFFFFu, x, apart));
  if (kThreads <= 32) return x;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
#pragma unroll
  for (int warp = 1; warp < kThreads / 32; ++warp) x = Op::Of(x, shared[warp]);
  return x;
}
)cuda";

}  // namespace onnxfuse::cuda
