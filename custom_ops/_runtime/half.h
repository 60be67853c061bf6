// Half (IEEE binary16) and BFloat16: 16-bit storage types, and conversions of one value.
//
// Conversions to 16 bits round to nearest, ties to even, over the whole range: denormals are kept, what is too
// large becomes inf, NaN stays NaN (its payload is cut, the quiet bit is set). Conversions to float are exact.
// Integer arithmetic only, so the result does not depend on the rounding mode or on flush-to-zero.
#pragma once

#include <cstdint>
#include <cstring>

// Every function in a header that a kernel_cpu.cc includes must be ONNXFUSE_INLINE: a plain inline function would be
// emitted once per instruction set under one name, and the linker could keep the copy that this machine cannot run.
#if defined(_MSC_VER) && !defined(__clang__)
#define ONNXFUSE_INLINE __forceinline
#else
#define ONNXFUSE_INLINE inline __attribute__((always_inline))
#endif

namespace onnxfuse {

struct Half {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

ONNXFUSE_INLINE uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

ONNXFUSE_INLINE float FloatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

ONNXFUSE_INLINE float ToFloat(float x) { return x; }

ONNXFUSE_INLINE float ToFloat(BFloat16 x) { return FloatOf(uint32_t{x.bits} << 16); }

ONNXFUSE_INLINE float ToFloat(Half x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  uint32_t exponent = (x.bits >> 10) & 0x1Fu;
  uint32_t fraction = x.bits & 0x3FFu;
  if (exponent == 31) return FloatOf(sign | 0x7F800000u | (fraction << 13) | (fraction != 0 ? 0x400000u : 0u));
  if (exponent == 0) {
    if (fraction == 0) return FloatOf(sign);
    // A denormal: shift until the leading one is the implied one of a float.
    exponent = 1;
    for (; (fraction & 0x400u) == 0; fraction <<= 1) --exponent;
    fraction &= 0x3FFu;
  }
  return FloatOf(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

template <typename T>
T FromFloat(float x);

template <>
ONNXFUSE_INLINE float FromFloat<float>(float x) {
  return x;
}

template <>
ONNXFUSE_INLINE BFloat16 FromFloat<BFloat16>(float x) {
  const uint32_t bits = BitsOf(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

template <>
ONNXFUSE_INLINE Half FromFloat<Half>(float x) {
  const uint32_t bits = BitsOf(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu))};
  if (magnitude >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00u)};  // 65520 and more round to inf
  if (magnitude < 0x33000000u) return {static_cast<uint16_t>(sign)};             // below half the least denormal
  const uint32_t exponent = magnitude >> 23;
  // Drop 13 bits of a normal result, more of a denormal one; a carry out of the fraction raises the exponent, as it
  // must.
  const uint32_t dropped = exponent < 113 ? 126 - exponent : 13;
  const uint32_t value = exponent < 113 ? (magnitude & 0x7FFFFFu) | 0x800000u : magnitude - (112u << 23);
  const uint32_t half_ulp = (1u << (dropped - 1)) - 1u + ((value >> dropped) & 1u);
  return {static_cast<uint16_t>(sign | ((value + half_ulp) >> dropped))};
}

}  // namespace onnxfuse
