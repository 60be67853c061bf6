// Matrix products on the AMX unit of x86 processors, which multiplies tiles of bfloat16 and sums in float.
//
// A float of 24 significant bits is the sum of three bfloat16 of 8 (a Half of 11 is one of two), without error: the parts
// that Split makes. x w is then the sum of the products of their parts; those below 2^-24 of it are left out, so float
// takes 6 of 9 products. The unit does 16 times what AVX-512 does, and is still ahead at a sixth of that.
//
// It takes what is below 2^-126 for zero, parts and products, and the parts of an infinity are no numbers. So rows and columns
// whose largest number is from 2^-32 to 2^32 go there, others do not: no sum overflows that does not in float, and each step
// loses at most 2^-93 besides what float rounds.
#pragma once

#include "custom_ops/_runtime/half.h"

namespace onnxfuse {

// Whether kernels of AVX-512 may use the unit: the machine and its system have it, and ONNXFUSE_ISA does not forbid it.
// Not compiled with the kernels but once.
bool AmxIsActive();

}  // namespace onnxfuse

#if ONNXFUSE_ISA_LEVEL == 2 && defined(__AMX_BF16__)
#define ONNXFUSE_AMX 1

#include "custom_ops/_runtime/simd.h"

namespace onnxfuse::avx512 {

inline constexpr int kTileSide = 16;     // rows of a tile, and floats of a row of sums
inline constexpr int kTileDepth = 32;    // bfloat16 of a row: steps of the depth
inline constexpr int kTileBytes = 1024;  // of any tile
inline constexpr int kRowBytes = 64;

// Parts that hold a T without error.
template <typename T>
inline constexpr int kParts = sizeof(T) == sizeof(float) ? 3 : 2;
template <>
inline constexpr int kParts<BFloat16> = 1;

// What was written before is in memory: to the compiler, tiles read none.
ONNXFUSE_INLINE void SettleMemory() { __asm__ volatile("" ::: "memory"); }

// The tile registers, all of 16 rows of 64 bytes, for as long as this lives. Other threads have their own.
class TileRegisters {
 public:
  ONNXFUSE_INLINE TileRegisters() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, unused[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } shape;
    for (int i = 0; i < 8; ++i) {
      shape.bytes[i] = kRowBytes;
      shape.rows[i] = kTileSide;
    }
    __asm__ volatile("" ::"r"(&shape) : "memory");
    _tile_loadconfig(&shape);
  }
  ONNXFUSE_INLINE ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

// Bits of a float whose upper half is a bfloat16.
using Bits = __m512i;

// part[0] + part[1] + ... = x, each rounded to nearest from what the parts before it leave.
template <int kCount>
ONNXFUSE_INLINE void Split(Vec x, Bits (&part)[kCount]) {
#pragma GCC unroll 3
  for (int i = 0; i < kCount; ++i) {
    Bits bits = _mm512_castps_si512(x.v);
    if (i + 1 < kCount) {
      bits = _mm512_and_si512(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), _mm512_set1_epi32(-0x10000));
      x = x - Vec{_mm512_castsi512_ps(bits)};
    }
    part[i] = bits;
  }
}

// A row of a left tile: 16 steps, then the next 16.
ONNXFUSE_INLINE void StoreLeft(void* row, Bits first, Bits second) {
  alignas(64) static constexpr int16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                     33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  _mm512_store_si512(row, _mm512_permutex2var_epi16(first, _mm512_load_si512(kUpper), second));
}

// A row of a right tile: 16 columns of a step, each beside the same column of the next step.
ONNXFUSE_INLINE void StoreRight(void* row, Bits step, Bits next) {
  _mm512_store_si512(row, _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(step, 16), next));
}

// The largest of what was seen, lane by lane.
class Range {
 public:
  ONNXFUSE_INLINE void See(Vec x) {
    const Bits size = _mm512_and_si512(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x7FFFFFFF));
    largest_ = _mm512_max_epu32(largest_, size);
  }
  // Whether parts will do for what one lane saw, or all did as one: its largest is 0, or from 2^-32 to 2^32.
  ONNXFUSE_INLINE bool IsSplittable() const { return AreFit(largest_); }
  ONNXFUSE_INLINE bool IsSplittableAsOne() const {
    return AreFit(_mm512_set1_epi32(_mm512_reduce_max_epi32(largest_)));
  }

 private:
  ONNXFUSE_INLINE static bool AreFit(Bits largest) {
    const Bits least = _mm512_set1_epi32((127 - 32) << 23), most = _mm512_set1_epi32((127 + 32) << 23);
    const __mmask16 is_small = _mm512_test_epi32_mask(largest, largest) & _mm512_cmplt_epu32_mask(largest, least);
    return (is_small | _mm512_cmpgt_epu32_mask(largest, most)) == 0;
  }

  Bits largest_ = _mm512_setzero_si512();
};

}  // namespace onnxfuse::avx512
#endif
