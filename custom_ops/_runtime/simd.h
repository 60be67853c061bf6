// Vec, the native vector of floats of the instruction set that a kernel_cpu.cc is being compiled for, and its
// functions.
//
// dispatch.h shows how a kernel_cpu.cc uses it; everything is in onnxfuse::ONNXFUSE_TARGET_NAMESPACE. A loop over x[n]:
//
//   int64_t i = 0;
//   for (; i + kLanes <= n; i += kLanes) Store(y + i, Exp(Load(x + i)));
//   if (i < n) StorePartial(y + i, Exp(LoadPartial(x + i, int(n - i))), int(n - i));
//
// (or ForEachVec below). T is float, Half or BFloat16 in
//   Load(const T*), LoadPartial(const T*, n)       n in [0, kLanes]: lanes from n on are 0, memory from p + n on is not
//   Store(T*, Vec), StorePartial(T*, Vec, n)       touched; conversions are those of half.h. No alignment is needed.
//   LoadMask(const uint8_t*), LoadMaskPartial      true where a byte is not 0.
//   StoreMask(uint8_t*, Mask), StoreMaskPartial    1 for true, 0 for false.
// Exact or rounded once:
//   + - * / Sqrt       IEEE.
//   Fma(a, b, c)       a * b + c; NegFma is c - a * b. Rounded once on AVX2 and AVX-512, twice where there is no FMA.
//   Min, Max(a, b)     b when either is NaN or both are zeros: Max(x, Set(0)) drops a NaN x, Max(Set(0), x) keeps it.
//   < <= > >= ==       false for NaN; != is true for NaN. & | ! on Mask. AnyOf, AllOf. FirstMask(n): the first n lanes.
//   a | b of Vecs      their bits. AnyBit(x): whether one is set anywhere in x; of 0 none is, of -0 one.
//   Select(mask, if_true, if_false), Abs, unary -, CopySign(magnitude, sign), RoundEven, Floor.
//   ScaleByPowerOfTwo(x, n)   x * 2^n for whole |n| <= 250 and |x| in [0.5, 2), gradual underflow kept.
//   Round(x, (const T*)nullptr)       what Store and Load of T would make of x.
//   Decompose(x, &n)          m in [0.75, 1.5) and a whole n with x = m 2^n, for finite x > 0, denormals too.
//   Fraction(x)        x - floor(x), for x >= -127; below that, and for -inf, what makes ExpTwo 0.
//   ScaleByFloor(x, n)        x * 2^floor(n) for n < 128; 0, or a denormal, below n = -126.
//   First(x)                          lane 0.
//   ReduceSum, ReduceMax, ReduceMin   over the lanes, as a tree. The sum keeps NaN; Max and Min may lose it.
//   Transpose(Vec (&x)[kLanes])       rows become columns, in place.
// Functions, with bounds measured over their whole range by tests/kernels, in ulp of the true value:
//   Inverse   1 / x for x in [1, 2^96]: 1 ulp. Faster than a division where that is slow.
//   Rsqrt     1.5 ulp (a division by a square root; no approximation).
//   Exp       1 ulp, denormal results included. 0 below -104, inf above 88.73.
//   ExpTwo    2^x for x < 128: 3 ulp for results of 2^-126 and more, and then 0 or the denormal. Half of Exp's work.
//   Sigmoid   2.5 ulp, denormal results included.
//   Tanh      1.5 ulp. -0 stays -0. (With AVX-512 1 ulp; so Erf.)
//   Erf       1.5 ulp. -0 stays -0.
// All of them give NaN for NaN and their limits for infinities.
#pragma once

#if !defined(ONNXFUSE_TARGET_NAMESPACE)
#error "simd.h is for kernel_cpu.cc files only, compiled by cmake/kernel_targets.cmake"
#endif

#if ONNXFUSE_ISA_LEVEL == 2
#include "custom_ops/_runtime/simd_avx512.h"
#elif ONNXFUSE_ISA_LEVEL == 1
#include "custom_ops/_runtime/simd_avx2.h"
#else
#include "custom_ops/_runtime/simd_baseline.h"
#endif

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

ONNXFUSE_INLINE Vec Rsqrt(Vec x) { return Set(1.0f) / Sqrt(x); }
ONNXFUSE_INLINE float Rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }  // of one number, a quarter of the time

ONNXFUSE_INLINE float First(Vec x) {
  float lanes[kLanes];
  Store(lanes, x);
  return lanes[0];
}

// Lane i is the sum over the lanes of x[i]. Overwrites x.
ONNXFUSE_INLINE Vec SumEach(Vec (&x)[kLanes]) {
  Transpose(x);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x[i] = x[i] + x[i + width];
  }
  return x[0];
}

// c[0] + c[1] x + ... + c[N-1] x^(N-1).
template <int N>
ONNXFUSE_INLINE Vec Polynomial(Vec x, const float (&c)[N]) {
  Vec sum = Set(c[N - 1]);
  for (int i = N - 2; i >= 0; --i) sum = Fma(sum, x, Set(c[i]));
  return sum;
}

// 2^n * e^r with n whole and |r| <= ln2 / 2: e^r = 1 + r + r^2 q(r), q a minimax fit (0.05 ulp of e^r).
ONNXFUSE_INLINE Vec Exp(Vec x) {
  constexpr float kQ[] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558aep-5f, 0x1.123986p-7f, 0x1.6a4f7p-10f};
  // Bounds past which the result is 0 or inf anyway; x second, so that NaN stays.
  x = Min(Set(89.0f), Max(Set(-105.0f), x));
  const Vec n = RoundEven(x * Set(0x1.715476p+0f));
  // ln2 in two parts; the first has 9 bits, so that n times it is exact even without FMA.
  Vec r = NegFma(n, Set(0.693359375f), x);
  r = NegFma(n, Set(-2.12194440e-4f), r);
  const Vec tail = r * r * Polynomial(r, kQ);
  return ScaleByPowerOfTwo(Set(1.0f) + (r + tail), n);
}

// 2^floor(x) * (1 + f p(f)) with f = x - floor(x); p is a minimax fit (8.3e-8). Whole x give exact powers.
ONNXFUSE_INLINE Vec ExpTwo(Vec x) {
  constexpr float kP[] = {0x1.62e4bap-1f, 0x1.ebdb6ap-3f, 0x1.c91c1p-5f, 0x1.277c1cp-7f, 0x1.e9691p-10f};
  const Vec f = Fraction(x);
  return ScaleByFloor(Fma(f, Polynomial(f, kP), Set(1.0f)), x);
}

// With e = exp(-|x|) <= 1 nothing overflows and the small side keeps its digits.
ONNXFUSE_INLINE Vec Sigmoid(Vec x) {
  const Vec e = Exp(-Abs(x));
  const Vec one = Set(1.0f);
  return Select(x < Zero(), e, one) * Inverse(one + e);
}

#if ONNXFUSE_ISA_LEVEL == 2

// Where looking numbers up costs next to nothing, shorter polynomials: one for each piece of the axis.
ONNXFUSE_INLINE Vec Tanh(Vec x) {
  const Piece piece(kTanhPieces, Min(Set(9.5f), Abs(x)));
  return CopySign(Fma(piece.t, piece.Slope(), piece.Start()), x);
}

ONNXFUSE_INLINE Vec Erf(Vec x) {
  const Vec a = Min(Set(4.0f), Abs(x));
  const Piece piece(kErfPieces, a);
  return CopySign(Fma(piece.t, piece.Slope(), Select(a < Set(0x1p-4f), a, piece.Start())), x);
}

#else

// Near 0: x + x^3 p(x^2). Further out: 1 - 2 / (exp(2|x|) + 1), which loses nothing there.
ONNXFUSE_INLINE Vec Tanh(Vec x) {
  constexpr float kP[] = {-0x1.555532p-2f, 0x1.1106fap-3f, -0x1.b836c8p-5f, 0x1.52041cp-6f, -0x1.754f46p-8f};
  const Vec a = Abs(x);
  const Vec square = a * a;
  const Vec small = Fma(a * square, Polynomial(square, kP), a);
  const Vec bounded = Min(Set(10.0f), a);  // tanh(10) is 1 in float
  const Vec large = NegFma(Set(2.0f), Inverse(Exp(bounded + bounded) + Set(1.0f)), Set(1.0f));
  return CopySign(Select(a < Set(0.625f), small, large), x);
}

// Below 1: x + x p(x^2). From 1 on: 1 - 2^q(x), q a fit of log2(erfc(x)) on [1, 4]; erf(4) is 1 in float.
ONNXFUSE_INLINE Vec Erf(Vec x) {
  constexpr float kP[] = {0x1.06eba8p-3f, -0x1.81273ep-2f,  0x1.ce2ce6p-4f, -0x1.b7f71ap-6f,
                          0x1.53f224p-8f, -0x1.a3515ep-11f, 0x1.4771fep-14f};
  constexpr float kQ[] = {0x1.1d1c4ap-12f, -0x1.a13014p+0f, -0x1.d3bb5p-1f, -0x1.4058dcp-3f,
                          0x1.29f228p-5f,  -0x1.8d968ap-8f, 0x1.4de4fp-11f, -0x1.068a4p-15f};
  const Vec a = Min(Set(4.0f), Abs(x));
  const Vec square = a * a;
  const Vec small = Fma(a, Polynomial(square, kP), a);
  const Vec large = Set(1.0f) - ExpTwo(Polynomial(a, kQ));
  return CopySign(Select(a < Set(1.0f), small, large), x);
}

#endif

// Asks for the cache line at p, in the L1 or, for `Fetch::kFar`, the L2 cache. p need not be memory at all: the end of an
// array may be passed.
enum class Fetch { kNear, kFar };
template <Fetch kWhere = Fetch::kNear>
ONNXFUSE_INLINE void Prefetch(const void* p) {
#if defined(__GNUC__)
  __builtin_prefetch(p, 0, kWhere == Fetch::kNear ? 3 : 2);
#else
  (void)p;
#endif
}

// Calls body(i, lanes) for i = 0, kLanes, ... < n; lanes is kLanes, less for the last. Use LoadN and StoreN inside:
// the compiler drops their partial branch in the main loop.
template <typename Body>
ONNXFUSE_INLINE void ForEachVec(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, static_cast<int>(n - i));
}

template <typename T>
ONNXFUSE_INLINE Vec LoadN(const T* p, int lanes) {
  return lanes == kLanes ? Load(p) : LoadPartial(p, lanes);
}

template <typename T>
ONNXFUSE_INLINE void StoreN(T* p, Vec x, int lanes) {
  if (lanes == kLanes) {
    Store(p, x);
  } else {
    StorePartial(p, x, lanes);
  }
}

// LoadN and StoreN for a loop over memory that lies beyond the caches: they also ask for what comes some turns later. Left to
// itself a core that has work to do between the two fetches too little at once.
template <typename T>
ONNXFUSE_INLINE Vec LoadAhead(const T* p, int lanes) {
  Prefetch(reinterpret_cast<const char*>(p) + 2048);
  return LoadN(p, lanes);
}

template <typename T>
ONNXFUSE_INLINE void StoreAhead(T* p, Vec x, int lanes) {
  Prefetch(reinterpret_cast<const char*>(p) + 1024);
  StoreN(p, x, lanes);
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
