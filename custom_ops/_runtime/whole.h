// Integers: quotients that never trap, and conversions from floating point. For kernel_cpu*.cc files.
#pragma once

#include <cstdint>

#include "custom_ops/_runtime/half.h"
#include "custom_ops/_runtime/op.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// Bytes of an element of a type that is computed as it is stored.
ONNXFUSE_INLINE int SizeOfPlain(Type type) {
  switch (type) {
    case Type::kInt8:
    case Type::kUInt8:
    case Type::kBool: return 1;
    case Type::kInt16:
    case Type::kUInt16:
    case Type::kFloat16:
    case Type::kBFloat16: return 2;
    case Type::kFloat:
    case Type::kInt32:
    case Type::kUInt32: return 4;
    default: return 8;
  }
}

template <typename T>
ONNXFUSE_INLINE constexpr bool IsSignedType() {
  return static_cast<T>(-1) < static_cast<T>(0);
}

// x / y for y other than 0, towards 0. The least value by -1 wraps.
template <typename T>
ONNXFUSE_INLINE T Quotient(T x, T y) {
  if (IsSignedType<T>() && y == static_cast<T>(-1)) return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
  return static_cast<T>(x / y);
}

// What Quotient leaves, with the sign of x.
template <typename T>
ONNXFUSE_INLINE T Remainder(T x, T y) {
  if (IsSignedType<T>() && y == static_cast<T>(-1)) return 0;
  return static_cast<T>(x % y);
}

// The remainder with the sign of y.
template <typename T>
ONNXFUSE_INLINE T Modulo(T x, T y) {
  const T remainder = Remainder(x, y);
  return remainder != 0 && (remainder < 0) != (y < 0) ? static_cast<T>(remainder + y) : remainder;
}

// x without its fraction. What does not fit: as the processor's conversions have it (the least of 32 bits, or of 64
// for the 64-bit types, cut to the type); of NaN too.
template <typename T, typename F>
ONNXFUSE_INLINE T WholeOf(F x) {
  constexpr bool kIsNarrow = sizeof(T) < 4 || (sizeof(T) == 4 && IsSignedType<T>());
  constexpr F kTwo31 = F(2147483648.0), kTwo63 = F(9223372036854775808.0);
  if (kIsNarrow) {
    const int32_t whole = x > F(-2147483649.0) && x < kTwo31 ? static_cast<int32_t>(x) : INT32_MIN;
    return static_cast<T>(whole);
  }
  const bool fits = x >= -kTwo63 && x < kTwo63;
  if (!IsSignedType<T>() && sizeof(T) == 8 && x >= kTwo63) {
    return x < 2 * kTwo63 ? static_cast<T>(static_cast<uint64_t>(x - kTwo63) + (uint64_t{1} << 63)) : T{0};
  }
  return static_cast<T>(fits ? static_cast<int64_t>(x) : INT64_MIN);
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
