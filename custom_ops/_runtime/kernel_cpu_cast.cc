// Casts of programs, between any two types. To floating point: rounded to nearest, even on ties. To integers: without
// the fraction (whole.h); between integers: cut or extended. To bool: whether it is not 0; NaN is not.
#include <type_traits>

#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/plain_loops.h"
#include "custom_ops/_runtime/program_kernels.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/_runtime/whole.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {
namespace {

struct Bool {
  uint8_t byte;
};

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// The value as a number that C++ computes with.
template <typename T>
ONNXFUSE_INLINE auto Plain(T x) {
  if constexpr (kIsHalf<T>) {
    return ToFloat(x);
  } else if constexpr (std::is_same_v<T, Bool>) {
    return static_cast<uint8_t>(x.byte != 0);
  } else {
    return x;
  }
}

template <typename From, typename To>
ONNXFUSE_INLINE To CastOf(From from) {
  auto x = Plain(from);
  if constexpr (std::is_same_v<To, Bool>) {
    return {static_cast<uint8_t>(x != 0)};
  } else if constexpr (kIsHalf<To>) {
    return FromFloat<To>(static_cast<float>(x));
  } else if constexpr (std::is_floating_point_v<decltype(x)> && std::is_integral_v<To>) {
    return WholeOf<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// Between float and the 16-bit types.
template <typename From, typename To>
void CastVecs(const KernelArguments& a) {
  const From* x = static_cast<const From*>(a.x[0]);
  To* y = static_cast<To*>(a.y);
  ForEachVec(a.count, [&](int64_t i, int lanes) { StoreN(y + i, LoadN(x + i * a.step[0], lanes), lanes); });
}

template <typename T>
inline constexpr bool kIsVec = kIsHalf<T> || std::is_same_v<T, float>;

template <typename From, typename To>
ProgramKernel CastKernel() {
  if constexpr (kIsVec<From> && kIsVec<To>) {
    return &CastVecs<From, To>;
  } else {
    return &Plain1<From, To, [](From x) { return CastOf<From, To>(x); }>;
  }
}

// Calls body.operator()<T>() with the C++ type of an element type.
template <typename Body>
ONNXFUSE_INLINE ProgramKernel ForType(Type type, Body&& body) {
  switch (type) {
    case Type::kFloat: return body.template operator()<float>();
    case Type::kFloat16: return body.template operator()<Half>();
    case Type::kBFloat16: return body.template operator()<BFloat16>();
    case Type::kDouble: return body.template operator()<double>();
    case Type::kInt8: return body.template operator()<int8_t>();
    case Type::kUInt8: return body.template operator()<uint8_t>();
    case Type::kInt16: return body.template operator()<int16_t>();
    case Type::kUInt16: return body.template operator()<uint16_t>();
    case Type::kInt32: return body.template operator()<int32_t>();
    case Type::kUInt32: return body.template operator()<uint32_t>();
    case Type::kInt64: return body.template operator()<int64_t>();
    case Type::kUInt64: return body.template operator()<uint64_t>();
    case Type::kBool: return body.template operator()<Bool>();
    default: return nullptr;
  }
}

}  // namespace

void FindCastKernel(const KernelKey& key, ProgramKernel* found) {
  *found = ForType(
      key.type, [&]<typename From>() { return ForType(key.to, []<typename To>() { return CastKernel<From, To>(); }); });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH(FindCastKernel, (const KernelKey& key, ProgramKernel* found), (key, found))
