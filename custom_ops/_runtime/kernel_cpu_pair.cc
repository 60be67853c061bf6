// Two primitives of a program in one kernel, on float, float16 and bfloat16.
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/vec_loops.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {
namespace {

// Two primitives in one pass: x is the first's result, rounded to T as it would be in memory.
#define PAIR(expression)                                               \
  &Map3<T, [](Vec a, Vec b, Vec y) {                                   \
    const Vec x = Round(kFirst(a, b), static_cast<const T*>(nullptr)); \
    return (expression);                                               \
  }, kTimes>

// Each pair is code for every type and instruction set: gates and 16-bit types have the most usual ones only.
template <typename T, int kTimes>
inline constexpr bool kHasAllPairs = kTimes > 1 && sizeof(T) == sizeof(float);

template <typename T, auto kFirst, int kTimes = kCheap>
ProgramKernel SecondOf(Primitive second, bool is_swapped) {
  switch (second) {
    case Primitive::kAdd: return PAIR(x + y);
    case Primitive::kMul: return PAIR(x * y);
    case Primitive::kSub: return is_swapped ? PAIR(y - x) : PAIR(x - y);
    default: break;
  }
  if constexpr (kHasAllPairs<T, kTimes>) {
    if (second == Primitive::kMax) return is_swapped ? PAIR(MaxOf(y, x)) : PAIR(MaxOf(x, y));
    if (second == Primitive::kMin) return is_swapped ? PAIR(MinOf(y, x)) : PAIR(MinOf(x, y));
  }
  return nullptr;
}

// One argument first (the second is not looked at), then another.
#define FIRST1(name, expression, times) \
  case Primitive::k##name: return SecondOf<T, [](Vec x, Vec) { return (expression); }, times>(key.second, key.is_swapped)
#define FIRST2(name, expression) \
  case Primitive::k##name: return SecondOf<T, [](Vec x, Vec y) { return (expression); }>(key.second, key.is_swapped)

template <typename T>
ProgramKernel Pair(const KernelKey& key) {
  switch (key.primitive) {
    FIRST2(Add, x + y);
    FIRST2(Sub, x - y);
    FIRST2(Mul, x * y);
    FIRST1(Sigmoid, Sigmoid(x), 1);
    FIRST1(Tanh, Tanh(x), 1);
    FIRST1(Exp, Exp(x), 1);
    default: break;
  }
  if constexpr (kHasAllPairs<T, kCheap>) {
    switch (key.primitive) {
      FIRST2(Max, MaxOf(x, y));
      FIRST2(Min, MinOf(x, y));
      FIRST1(Neg, -x, kCheap);
      FIRST1(Abs, Abs(x), kCheap);
      default: break;
    }
  }
  return nullptr;
}

}  // namespace

void FindPairKernel(const KernelKey& key, ProgramKernel* found) {
  switch (key.type) {
    case Type::kFloat: *found = Pair<float>(key); break;
    case Type::kFloat16: *found = Pair<Half>(key); break;
    case Type::kBFloat16: *found = Pair<BFloat16>(key); break;
    default: *found = nullptr;
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH(FindPairKernel, (const KernelKey& key, ProgramKernel* found), (key, found))
