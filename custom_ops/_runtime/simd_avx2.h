// The primitives of simd.h for AVX2, FMA, F16C: 8 floats. simd.h states what each does.
#pragma once

#include <immintrin.h>

#include "custom_ops/_runtime/half.h"

namespace onnxfuse::avx2 {

inline constexpr int kLanes = 8;
inline constexpr int kVectorRegisters = 16;

struct Vec {
  __m256 v;
};
struct Mask {
  __m256 m;  // all bits of a lane set, or none
};

// n ones and then zeros, for 0 <= n <= 8, start at kMaskTable + 8 - n.
alignas(32) inline constexpr int32_t kMaskTable[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

ONNXFUSE_INLINE __m256i FirstLanes(int n) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMaskTable + 8 - n));
}

ONNXFUSE_INLINE Vec Zero() { return {_mm256_setzero_ps()}; }
ONNXFUSE_INLINE Vec Set(float x) { return {_mm256_set1_ps(x)}; }

ONNXFUSE_INLINE __m128i LoadBits(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
ONNXFUSE_INLINE __m128i LoadBitsPartial(const void* p, int bytes) {
  __m128i bits = _mm_setzero_si128();
  std::memcpy(&bits, p, static_cast<size_t>(bytes));
  return bits;
}
ONNXFUSE_INLINE Vec FromBFloatBits(__m128i bits) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}
ONNXFUSE_INLINE __m128i BFloatBits(Vec x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  const __m256i wide = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}
ONNXFUSE_INLINE __m128i HalfBits(Vec x) { return _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

ONNXFUSE_INLINE Vec Load(const float* p) { return {_mm256_loadu_ps(p)}; }
ONNXFUSE_INLINE Vec Load(const Half* p) { return {_mm256_cvtph_ps(LoadBits(p))}; }
ONNXFUSE_INLINE Vec Load(const BFloat16* p) { return FromBFloatBits(LoadBits(p)); }
ONNXFUSE_INLINE Vec LoadPartial(const float* p, int n) { return {_mm256_maskload_ps(p, FirstLanes(n))}; }
ONNXFUSE_INLINE Vec LoadPartial(const Half* p, int n) { return {_mm256_cvtph_ps(LoadBitsPartial(p, 2 * n))}; }
ONNXFUSE_INLINE Vec LoadPartial(const BFloat16* p, int n) { return FromBFloatBits(LoadBitsPartial(p, 2 * n)); }

ONNXFUSE_INLINE void StoreBits(void* p, __m128i bits) { _mm_storeu_si128(static_cast<__m128i*>(p), bits); }
ONNXFUSE_INLINE void Store(float* p, Vec x) { _mm256_storeu_ps(p, x.v); }
ONNXFUSE_INLINE void Store(Half* p, Vec x) { StoreBits(p, HalfBits(x)); }
ONNXFUSE_INLINE void Store(BFloat16* p, Vec x) { StoreBits(p, BFloatBits(x)); }
ONNXFUSE_INLINE void StorePartial(float* p, Vec x, int n) { _mm256_maskstore_ps(p, FirstLanes(n), x.v); }
ONNXFUSE_INLINE void StorePartial(Half* p, Vec x, int n) {
  const __m128i bits = HalfBits(x);
  std::memcpy(static_cast<void*>(p), &bits, static_cast<size_t>(2 * n));
}
ONNXFUSE_INLINE void StorePartial(BFloat16* p, Vec x, int n) {
  const __m128i bits = BFloatBits(x);
  std::memcpy(static_cast<void*>(p), &bits, static_cast<size_t>(2 * n));
}

ONNXFUSE_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec operator-(Vec a) { return {_mm256_xor_ps(a.v, _mm256_set1_ps(-0.0f))}; }
ONNXFUSE_INLINE Vec Fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
ONNXFUSE_INLINE Vec NegFma(Vec a, Vec b, Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
ONNXFUSE_INLINE Vec Min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec Abs(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
ONNXFUSE_INLINE Vec CopySign(Vec a, Vec sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, a.v), _mm256_and_ps(bit, sign.v))};
}
ONNXFUSE_INLINE Vec Sqrt(Vec a) { return {_mm256_sqrt_ps(a.v)}; }
ONNXFUSE_INLINE Vec Inverse(Vec a) { return Set(1.0f) / a; }
ONNXFUSE_INLINE Vec RoundEven(Vec a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
ONNXFUSE_INLINE Vec Floor(Vec a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
ONNXFUSE_INLINE Vec PowerOfTwo(__m256i n) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23))};
}
// In two factors, so that results in the denormal range and just under overflow come out rounded once.
ONNXFUSE_INLINE Vec ScaleByPowerOfTwo(Vec a, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n.v);
  const __m256i part = _mm256_srai_epi32(whole, 1);
  return a * PowerOfTwo(part) * PowerOfTwo(_mm256_sub_epi32(whole, part));
}
ONNXFUSE_INLINE Vec Fraction(Vec a) {
  const Vec bounded = Max(Set(-127.0f), a);
  return bounded - Floor(bounded);
}
ONNXFUSE_INLINE Vec ScaleByFloor(Vec a, Vec n) {
  return a * PowerOfTwo(_mm256_cvtps_epi32(Floor(Max(Set(-127.0f), n)).v));
}

ONNXFUSE_INLINE Mask operator<(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
ONNXFUSE_INLINE Mask operator<=(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
ONNXFUSE_INLINE Mask operator>(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)}; }
ONNXFUSE_INLINE Mask operator>=(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)}; }
ONNXFUSE_INLINE Mask operator==(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
ONNXFUSE_INLINE Mask operator!=(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_NEQ_UQ)}; }
ONNXFUSE_INLINE Mask IsNan(Vec a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
ONNXFUSE_INLINE Mask operator&(Mask a, Mask b) { return {_mm256_and_ps(a.m, b.m)}; }
ONNXFUSE_INLINE Mask operator|(Mask a, Mask b) { return {_mm256_or_ps(a.m, b.m)}; }
ONNXFUSE_INLINE Mask operator!(Mask a) { return {_mm256_xor_ps(a.m, _mm256_castsi256_ps(_mm256_set1_epi32(-1)))}; }
ONNXFUSE_INLINE bool AnyOf(Mask a) { return _mm256_movemask_ps(a.m) != 0; }
ONNXFUSE_INLINE bool AllOf(Mask a) { return _mm256_movemask_ps(a.m) == 0xFF; }
ONNXFUSE_INLINE Vec Select(Mask m, Vec if_true, Vec if_false) { return {_mm256_blendv_ps(if_false.v, if_true.v, m.m)}; }
ONNXFUSE_INLINE Mask FirstMask(int n) { return {_mm256_castsi256_ps(FirstLanes(n))}; }
ONNXFUSE_INLINE Vec operator|(Vec a, Vec b) { return {_mm256_or_ps(a.v, b.v)}; }
ONNXFUSE_INLINE bool AnyBit(Vec a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  return _mm256_testz_si256(bits, bits) == 0;
}
ONNXFUSE_INLINE Mask MaskOfBytes(__m128i bytes) {
  const __m256i wide = _mm256_cvtepu8_epi32(bytes);
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(wide, _mm256_setzero_si256()))};
}
ONNXFUSE_INLINE Mask LoadMask(const uint8_t* p) {
  return MaskOfBytes(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
ONNXFUSE_INLINE Mask LoadMaskPartial(const uint8_t* p, int n) { return MaskOfBytes(LoadBitsPartial(p, n)); }

// 0 or 1 in each of 8 bytes.
ONNXFUSE_INLINE __m128i BytesOf(Mask m) {
  const __m256i bits = _mm256_castps_si256(m.m);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  return _mm_and_si128(_mm_packs_epi16(words, words), _mm_set1_epi8(1));
}
ONNXFUSE_INLINE void StoreMask(uint8_t* p, Mask m) { _mm_storel_epi64(reinterpret_cast<__m128i*>(p), BytesOf(m)); }
ONNXFUSE_INLINE void StoreMaskPartial(uint8_t* p, Mask m, int n) {
  const __m128i bytes = BytesOf(m);
  std::memcpy(p, &bytes, static_cast<size_t>(n));
}

ONNXFUSE_INLINE Vec Round(Vec x, const float*) { return x; }
ONNXFUSE_INLINE Vec Round(Vec x, const Half*) { return {_mm256_cvtph_ps(HalfBits(x))}; }
ONNXFUSE_INLINE Vec Round(Vec x, const BFloat16*) { return FromBFloatBits(BFloatBits(x)); }
ONNXFUSE_INLINE Vec Decompose(Vec x, Vec* n) {
  const Mask is_small = x < Set(0x1p-126f);
  const __m256i bits = _mm256_castps_si256(Select(is_small, x * Set(0x1p+24f), x).v);
  const __m256i whole = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3F400000)), 23);
  *n = Vec{_mm256_cvtepi32_ps(whole)} + Select(is_small, Set(-24.0f), Zero());
  return {_mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(whole, 23)))};
}

ONNXFUSE_INLINE float ReduceSum(Vec a) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
ONNXFUSE_INLINE float ReduceMax(Vec a) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
ONNXFUSE_INLINE float ReduceMin(Vec a) { return -ReduceMax(-a); }

// Rows become columns: quads of floats inside 128-bit parts, then the parts.
ONNXFUSE_INLINE void Transpose(Vec (&x)[kLanes]) {
  __m256 a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(x[i].v, x[i + 1].v);
    a[i + 1] = _mm256_unpackhi_ps(x[i].v, x[i + 1].v);
  }
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xEE);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    x[i].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    x[i + 4].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}

}  // namespace onnxfuse::avx2
