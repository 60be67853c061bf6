// The primitives of simd.h in portable C++: 4 floats, loops that compilers unroll. simd.h states what each does.
#pragma once

#include <cmath>

#include "custom_ops/_runtime/half.h"

namespace onnxfuse::baseline {

inline constexpr int kLanes = 4;
inline constexpr int kVectorRegisters = 16;

struct Vec {
  float v[kLanes];
};
struct Mask {
  bool m[kLanes];
};

// A Vec or Mask whose lane i is f(i).
template <typename F>
ONNXFUSE_INLINE Vec Lanes(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
template <typename F>
ONNXFUSE_INLINE Mask MaskLanes(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

ONNXFUSE_INLINE Vec Set(float x) { return {{x, x, x, x}}; }
ONNXFUSE_INLINE Vec Zero() { return Set(0.0f); }

template <typename T>
ONNXFUSE_INLINE Vec Load(const T* p) {
  return Lanes([=](int i) { return ToFloat(p[i]); });
}
template <typename T>
ONNXFUSE_INLINE Vec LoadPartial(const T* p, int n) {
  return Lanes([=](int i) { return i < n ? ToFloat(p[i]) : 0.0f; });
}
template <typename T>
ONNXFUSE_INLINE void Store(T* p, Vec x) {
  for (int i = 0; i < kLanes; ++i) p[i] = FromFloat<T>(x.v[i]);
}
template <typename T>
ONNXFUSE_INLINE void StorePartial(T* p, Vec x, int n) {
  for (int i = 0; i < kLanes; ++i) {
    if (i < n) p[i] = FromFloat<T>(x.v[i]);
  }
}

ONNXFUSE_INLINE Vec operator+(Vec a, Vec b) {
  return Lanes([&](int i) { return a.v[i] + b.v[i]; });
}
ONNXFUSE_INLINE Vec operator-(Vec a, Vec b) {
  return Lanes([&](int i) { return a.v[i] - b.v[i]; });
}
ONNXFUSE_INLINE Vec operator*(Vec a, Vec b) {
  return Lanes([&](int i) { return a.v[i] * b.v[i]; });
}
ONNXFUSE_INLINE Vec operator/(Vec a, Vec b) {
  return Lanes([&](int i) { return a.v[i] / b.v[i]; });
}
ONNXFUSE_INLINE Vec operator-(Vec a) {
  return Lanes([&](int i) { return -a.v[i]; });
}
#if defined(__FP_FAST_FMAF) || defined(__ARM_FEATURE_FMA)
ONNXFUSE_INLINE Vec Fma(Vec a, Vec b, Vec c) {
  return Lanes([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
#else
ONNXFUSE_INLINE Vec Fma(Vec a, Vec b, Vec c) { return a * b + c; }
#endif
ONNXFUSE_INLINE Vec NegFma(Vec a, Vec b, Vec c) { return Fma(-a, b, c); }
ONNXFUSE_INLINE Vec Min(Vec a, Vec b) {
  return Lanes([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
ONNXFUSE_INLINE Vec Max(Vec a, Vec b) {
  return Lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
ONNXFUSE_INLINE Vec Abs(Vec a) {
  return Lanes([&](int i) { return FloatOf(BitsOf(a.v[i]) & 0x7FFFFFFFu); });
}
ONNXFUSE_INLINE Vec CopySign(Vec a, Vec sign) {
  return Lanes([&](int i) { return FloatOf((BitsOf(a.v[i]) & 0x7FFFFFFFu) | (BitsOf(sign.v[i]) & 0x80000000u)); });
}
ONNXFUSE_INLINE Vec Sqrt(Vec a) {
  return Lanes([&](int i) { return std::sqrt(a.v[i]); });
}
ONNXFUSE_INLINE Vec Inverse(Vec a) { return Set(1.0f) / a; }
// Adding and taking away 1.5 * 2^23 rounds to a whole number; what is larger than 2^22, inf or NaN stays as it is.
ONNXFUSE_INLINE Vec RoundEven(Vec a) {
  return Lanes([&](int i) {
    const float x = a.v[i];
    const float rounded = (x + 12582912.0f) - 12582912.0f;
    const float signed_zero = FloatOf((BitsOf(rounded) & 0x7FFFFFFFu) | (BitsOf(x) & 0x80000000u));
    return x < 4194304.0f && x > -4194304.0f ? signed_zero : std::nearbyint(x);
  });
}
ONNXFUSE_INLINE Vec Floor(Vec a) {
  return Lanes([&](int i) { return std::floor(a.v[i]); });
}
// In two factors, so that results in the denormal range and just under overflow come out rounded once.
ONNXFUSE_INLINE Vec ScaleByPowerOfTwo(Vec a, Vec n) {
  return Lanes([&](int i) {
    if (n.v[i] != n.v[i]) return n.v[i];
    const int whole = static_cast<int>(n.v[i]);
    const int part = whole >> 1;
    return a.v[i] * FloatOf(uint32_t(part + 127) << 23) * FloatOf(uint32_t(whole - part + 127) << 23);
  });
}
ONNXFUSE_INLINE Vec Fraction(Vec a) {
  const Vec bounded = Max(Set(-127.0f), a);
  return bounded - Floor(bounded);
}
ONNXFUSE_INLINE Vec ScaleByFloor(Vec a, Vec n) {
  const Vec whole = Floor(Max(Set(-127.0f), n));
  return Lanes([&](int i) {
    return whole.v[i] == whole.v[i] ? a.v[i] * FloatOf(uint32_t(static_cast<int>(whole.v[i]) + 127) << 23) : whole.v[i];
  });
}

ONNXFUSE_INLINE Mask operator<(Vec a, Vec b) {
  return MaskLanes([&](int i) { return a.v[i] < b.v[i]; });
}
ONNXFUSE_INLINE Mask operator<=(Vec a, Vec b) {
  return MaskLanes([&](int i) { return a.v[i] <= b.v[i]; });
}
ONNXFUSE_INLINE Mask operator>(Vec a, Vec b) { return b < a; }
ONNXFUSE_INLINE Mask operator>=(Vec a, Vec b) { return b <= a; }
ONNXFUSE_INLINE Mask operator==(Vec a, Vec b) {
  return MaskLanes([&](int i) { return a.v[i] == b.v[i]; });
}
ONNXFUSE_INLINE Mask operator!=(Vec a, Vec b) {
  return MaskLanes([&](int i) { return a.v[i] != b.v[i]; });
}
ONNXFUSE_INLINE Mask IsNan(Vec a) { return a != a; }
ONNXFUSE_INLINE Mask operator&(Mask a, Mask b) {
  return MaskLanes([&](int i) { return a.m[i] && b.m[i]; });
}
ONNXFUSE_INLINE Mask operator|(Mask a, Mask b) {
  return MaskLanes([&](int i) { return a.m[i] || b.m[i]; });
}
ONNXFUSE_INLINE Mask operator!(Mask a) {
  return MaskLanes([&](int i) { return !a.m[i]; });
}
ONNXFUSE_INLINE bool AnyOf(Mask a) { return a.m[0] || a.m[1] || a.m[2] || a.m[3]; }
ONNXFUSE_INLINE bool AllOf(Mask a) { return a.m[0] && a.m[1] && a.m[2] && a.m[3]; }
ONNXFUSE_INLINE Vec Select(Mask m, Vec if_true, Vec if_false) {
  return Lanes([&](int i) { return m.m[i] ? if_true.v[i] : if_false.v[i]; });
}
ONNXFUSE_INLINE Mask FirstMask(int n) {
  return MaskLanes([=](int i) { return i < n; });
}
ONNXFUSE_INLINE Vec operator|(Vec a, Vec b) {
  return Lanes([&](int i) { return FloatOf(BitsOf(a.v[i]) | BitsOf(b.v[i])); });
}
ONNXFUSE_INLINE bool AnyBit(Vec a) {
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= BitsOf(a.v[i]);
  return bits != 0;
}
ONNXFUSE_INLINE Mask LoadMask(const uint8_t* p) {
  return MaskLanes([=](int i) { return p[i] != 0; });
}
ONNXFUSE_INLINE Mask LoadMaskPartial(const uint8_t* p, int n) {
  return MaskLanes([=](int i) { return i < n && p[i] != 0; });
}

ONNXFUSE_INLINE void StoreMask(uint8_t* p, Mask m) {
  for (int i = 0; i < kLanes; ++i) p[i] = m.m[i];
}
ONNXFUSE_INLINE void StoreMaskPartial(uint8_t* p, Mask m, int n) {
  for (int i = 0; i < kLanes; ++i) {
    if (i < n) p[i] = m.m[i];
  }
}

template <typename T>
ONNXFUSE_INLINE Vec Round(Vec x, const T*) {
  return Lanes([&](int i) { return ToFloat(FromFloat<T>(x.v[i])); });
}
ONNXFUSE_INLINE Vec Decompose(Vec x, Vec* n) {
  Vec m;
  for (int i = 0; i < kLanes; ++i) {
    const bool is_small = x.v[i] < 0x1p-126f;
    const uint32_t bits = BitsOf(is_small ? x.v[i] * 0x1p+24f : x.v[i]);
    const int32_t whole = static_cast<int32_t>(bits - 0x3F400000u) >> 23;
    n->v[i] = static_cast<float>(whole) - (is_small ? 24.0f : 0.0f);
    m.v[i] = FloatOf(bits - (static_cast<uint32_t>(whole) << 23));
  }
  return m;
}

ONNXFUSE_INLINE float ReduceSum(Vec a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
ONNXFUSE_INLINE float ReduceMax(Vec a) {
  float most = a.v[0];
  for (int i = 1; i < kLanes; ++i) most = most > a.v[i] ? most : a.v[i];
  return most;
}
ONNXFUSE_INLINE float ReduceMin(Vec a) { return -ReduceMax(-a); }

ONNXFUSE_INLINE void Transpose(Vec (&x)[kLanes]) {
  Vec rows[kLanes];
  for (int i = 0; i < kLanes; ++i) rows[i] = x[i];
  for (int i = 0; i < kLanes; ++i) x[i] = Lanes([&](int j) { return rows[j].v[i]; });
}

}  // namespace onnxfuse::baseline
