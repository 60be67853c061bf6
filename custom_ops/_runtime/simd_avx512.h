// The primitives of simd.h for AVX-512 F, BW, DQ, VL: 16 floats. simd.h states what each does.
#pragma once

#include <immintrin.h>

#include "custom_ops/_runtime/half.h"
#include "custom_ops/_runtime/simd_pieces.h"

namespace onnxfuse::avx512 {

inline constexpr int kLanes = 16;
inline constexpr int kVectorRegisters = 32;

struct Vec {
  __m512 v;
};
struct Mask {
  __mmask16 m;
};

ONNXFUSE_INLINE __mmask16 FirstLanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

ONNXFUSE_INLINE Vec Zero() { return {_mm512_setzero_ps()}; }
ONNXFUSE_INLINE Vec Set(float x) { return {_mm512_set1_ps(x)}; }

ONNXFUSE_INLINE Vec FromBFloatBits(__m256i bits) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
ONNXFUSE_INLINE __m256i BFloatBits(Vec x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
}
ONNXFUSE_INLINE __m256i HalfBits(Vec x) { return _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

ONNXFUSE_INLINE Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
ONNXFUSE_INLINE Vec Load(const Half* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
ONNXFUSE_INLINE Vec Load(const BFloat16* p) {
  return FromBFloatBits(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
ONNXFUSE_INLINE Vec LoadPartial(const float* p, int n) { return {_mm512_maskz_loadu_ps(FirstLanes(n), p)}; }
ONNXFUSE_INLINE Vec LoadPartial(const Half* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(n), p))};
}
ONNXFUSE_INLINE Vec LoadPartial(const BFloat16* p, int n) {
  return FromBFloatBits(_mm256_maskz_loadu_epi16(FirstLanes(n), p));
}

ONNXFUSE_INLINE void Store(float* p, Vec x) { _mm512_storeu_ps(p, x.v); }
ONNXFUSE_INLINE void Store(Half* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), HalfBits(x)); }
ONNXFUSE_INLINE void Store(BFloat16* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), BFloatBits(x)); }
ONNXFUSE_INLINE void StorePartial(float* p, Vec x, int n) { _mm512_mask_storeu_ps(p, FirstLanes(n), x.v); }
ONNXFUSE_INLINE void StorePartial(Half* p, Vec x, int n) { _mm256_mask_storeu_epi16(p, FirstLanes(n), HalfBits(x)); }
ONNXFUSE_INLINE void StorePartial(BFloat16* p, Vec x, int n) {
  _mm256_mask_storeu_epi16(p, FirstLanes(n), BFloatBits(x));
}

ONNXFUSE_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec operator-(Vec a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
ONNXFUSE_INLINE Vec Fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
ONNXFUSE_INLINE Vec NegFma(Vec a, Vec b, Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
ONNXFUSE_INLINE Vec Min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
ONNXFUSE_INLINE Vec Abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
ONNXFUSE_INLINE Vec CopySign(Vec a, Vec sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, a.v), _mm512_and_ps(bit, sign.v))};
}
ONNXFUSE_INLINE Vec Sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
ONNXFUSE_INLINE Vec Inverse(Vec a) {
  const Vec rough = {_mm512_rcp14_ps(a.v)};
  return Fma(rough, NegFma(a, rough, Set(1.0f)), rough);
}
ONNXFUSE_INLINE Vec RoundEven(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
ONNXFUSE_INLINE Vec Floor(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
ONNXFUSE_INLINE Vec ScaleByPowerOfTwo(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
ONNXFUSE_INLINE Vec Fraction(Vec a) { return {_mm512_reduce_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
ONNXFUSE_INLINE Vec ScaleByFloor(Vec a, Vec n) { return ScaleByPowerOfTwo(a, n); }  // scalef floors by itself

ONNXFUSE_INLINE Mask operator<(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
ONNXFUSE_INLINE Mask operator<=(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
ONNXFUSE_INLINE Mask operator>(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
ONNXFUSE_INLINE Mask operator>=(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)}; }
ONNXFUSE_INLINE Mask operator==(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
ONNXFUSE_INLINE Mask operator!=(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NEQ_UQ)}; }
ONNXFUSE_INLINE Mask IsNan(Vec a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
ONNXFUSE_INLINE Mask operator&(Mask a, Mask b) { return {static_cast<__mmask16>(a.m & b.m)}; }
ONNXFUSE_INLINE Mask operator|(Mask a, Mask b) { return {static_cast<__mmask16>(a.m | b.m)}; }
ONNXFUSE_INLINE Mask operator!(Mask a) { return {static_cast<__mmask16>(~a.m)}; }
ONNXFUSE_INLINE bool AnyOf(Mask a) { return a.m != 0; }
ONNXFUSE_INLINE bool AllOf(Mask a) { return a.m == 0xFFFF; }
ONNXFUSE_INLINE Vec Select(Mask m, Vec if_true, Vec if_false) {
  return {_mm512_mask_blend_ps(m.m, if_false.v, if_true.v)};
}
ONNXFUSE_INLINE Mask FirstMask(int n) { return {FirstLanes(n)}; }
ONNXFUSE_INLINE Vec operator|(Vec a, Vec b) { return {_mm512_or_ps(a.v, b.v)}; }
ONNXFUSE_INLINE bool AnyBit(Vec a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  return _mm512_test_epi32_mask(bits, bits) != 0;
}
ONNXFUSE_INLINE Mask LoadMask(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm_test_epi8_mask(bytes, bytes)};
}
ONNXFUSE_INLINE Mask LoadMaskPartial(const uint8_t* p, int n) {
  const __m128i bytes = _mm_maskz_loadu_epi8(FirstLanes(n), p);
  return {_mm_test_epi8_mask(bytes, bytes)};
}

ONNXFUSE_INLINE void StoreMask(uint8_t* p, Mask m) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_maskz_set1_epi8(m.m, 1));
}
ONNXFUSE_INLINE void StoreMaskPartial(uint8_t* p, Mask m, int n) {
  _mm_mask_storeu_epi8(p, FirstLanes(n), _mm_maskz_set1_epi8(m.m, 1));
}

ONNXFUSE_INLINE Vec Round(Vec x, const float*) { return x; }
ONNXFUSE_INLINE Vec Round(Vec x, const Half*) { return {_mm512_cvtph_ps(HalfBits(x))}; }
ONNXFUSE_INLINE Vec Round(Vec x, const BFloat16*) { return FromBFloatBits(BFloatBits(x)); }
ONNXFUSE_INLINE Vec Decompose(Vec x, Vec* n) {
  const Vec m = {_mm512_getmant_ps(x.v, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src)};
  *n = Select(m < Set(1.0f), Set(1.0f), Zero()) + Vec{_mm512_getexp_ps(x.v)};
  return m;
}

ONNXFUSE_INLINE __m256 UpperHalf(Vec a) { return _mm512_extractf32x8_ps(a.v, 1); }
ONNXFUSE_INLINE float ReduceSum(Vec a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), UpperHalf(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
ONNXFUSE_INLINE float ReduceMax(Vec a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), UpperHalf(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
ONNXFUSE_INLINE float ReduceMin(Vec a) { return -ReduceMax(-a); }

ONNXFUSE_INLINE __m512 PairsLow(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
ONNXFUSE_INLINE __m512 PairsHigh(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
// Rows become columns. Pairs, then quads of floats inside 128-bit parts, then the parts themselves.
ONNXFUSE_INLINE void Transpose(Vec (&x)[kLanes]) {
  __m512 a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(x[i].v, x[i + 1].v);
    a[i + 1] = _mm512_unpackhi_ps(x[i].v, x[i + 1].v);
  }
  for (int i = 0; i < 16; i += 4) {
    b[i] = PairsLow(a[i], a[i + 2]);
    b[i + 1] = PairsHigh(a[i], a[i + 2]);
    b[i + 2] = PairsLow(a[i + 1], a[i + 3]);
    b[i + 3] = PairsHigh(a[i + 1], a[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    a[i] = _mm512_shuffle_f32x4(b[i], b[i + 4], 0x88);
    a[i + 4] = _mm512_shuffle_f32x4(b[i], b[i + 4], 0xDD);
    a[i + 8] = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0x88);
    a[i + 12] = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0xDD);
  }
  for (int i = 0; i < 4; ++i) {
    x[i].v = _mm512_shuffle_f32x4(a[i], a[i + 8], 0x88);
    x[i + 4].v = _mm512_shuffle_f32x4(a[i + 4], a[i + 12], 0x88);
    x[i + 8].v = _mm512_shuffle_f32x4(a[i], a[i + 8], 0xDD);
    x[i + 12].v = _mm512_shuffle_f32x4(a[i + 4], a[i + 12], 0xDD);
  }
}

// The piece of `all` that each lane of a lies in; a in [0, 16), or NaN.
class Piece {
 public:
  ONNXFUSE_INLINE Piece(const Pieces& all, Vec a) : all_(all), index_(IndexOf(a)), t(a - Pick(all.center)) {}
  ONNXFUSE_INLINE Vec Start() const { return Pick(all_.c[0]); }
  // (f(a) - c0) / t
  ONNXFUSE_INLINE Vec Slope() const {
    Vec sum = Pick(all_.c[5]);
    for (int i = 4; i > 0; --i) sum = Fma(sum, t, Pick(all_.c[i]));
    return sum;
  }

 private:
  // Exponent and two bits more, counted from those of 1/16.
  ONNXFUSE_INLINE static __m512i IndexOf(Vec a) {
    const __m512i quarter = _mm512_sub_epi32(_mm512_srli_epi32(_mm512_castps_si512(a.v), 21), _mm512_set1_epi32(491));
    return _mm512_max_epi32(quarter, _mm512_setzero_si512());
  }
  ONNXFUSE_INLINE Vec Pick(const float (&row)[32]) const {
    return {_mm512_permutex2var_ps(_mm512_load_ps(row), index_, _mm512_load_ps(row + 16))};
  }

  const Pieces& all_;
  const __m512i index_;

 public:
  const Vec t;  // a from the center of its piece
};

}  // namespace onnxfuse::avx512
