// Reductions of programs: a block into an Accumulator, which becomes a splat of the result.
//
// Floating-point sums are Vecs of floats over at most kRun elements, in four chains, and doubles over those: the error
// does not grow with the row. Products are doubles. Integer sums and products wrap. The greatest and the least pass
// over NaN but for a first element that is NaN, which stays: so ONNX Runtime's loops have it. Without elements: 0 (for a
// mean too), 1, and the infinity, or the end of the integer type, that any element would replace.
#include <math.h>

#include <type_traits>

#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/program_kernels.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/_runtime/whole.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {
namespace {

constexpr int64_t kRun = 64 * 4 * kLanes;

template <typename T>
inline constexpr bool kIsVec = std::is_same_v<T, float> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <typename T>
inline constexpr bool kIsReal = kIsVec<T> || std::is_same_v<T, double>;

ONNXFUSE_INLINE Accumulator& AccumulatorOf(void* y) { return *static_cast<Accumulator*>(y); }

void Begin(const KernelArguments& a) { AccumulatorOf(a.y) = {0.0, 0, {}, false}; }

void BeginProduct(const KernelArguments& a) { AccumulatorOf(a.y) = {1.0, 1, {}, false}; }

// Calls body(i, n) for runs of n elements from i on.
template <typename Body>
ONNXFUSE_INLINE void ForEachRun(int64_t count, Body&& body) {
  for (int64_t i = 0; i < count; i += kRun) body(i, count - i < kRun ? count - i : kRun);
}

// The sum of kFunction over elements; lanes past the end come as 0 and must give 0.
template <typename T, auto kFunction>
void SumVecs(const KernelArguments& a) {
  const int64_t step = a.step[0];
  double total = 0;
  ForEachRun(a.count, [&](int64_t first, int64_t count) {
    const T* x = static_cast<const T*>(a.x[0]) + first * step;
    Vec sums[4] = {Zero(), Zero(), Zero(), Zero()};
    int64_t i = 0;
    for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
      for (int chain = 0; chain < 4; ++chain) {
        sums[chain] = sums[chain] + kFunction(Load(x + (i + chain * kLanes) * step));
      }
    }
    for (; i < count; i += kLanes) {
      const int lanes = count - i < kLanes ? static_cast<int>(count - i) : kLanes;
      sums[0] = sums[0] + kFunction(LoadN(x + i * step, lanes));
    }
    total += static_cast<double>(ReduceSum((sums[0] + sums[1]) + (sums[2] + sums[3])));
  });
  AccumulatorOf(a.y).real += total;
}

// Element i of an argument that steps or is a splat.
template <typename T>
ONNXFUSE_INLINE T ElementOf(const KernelArguments& a, int64_t i) {
  return static_cast<const T*>(a.x[0])[i * a.step[0]];
}

template <typename T>
ONNXFUSE_INLINE auto NumberOf(T x) {
  if constexpr (kIsVec<T>) {
    return static_cast<double>(ToFloat(x));
  } else if constexpr (kIsReal<T>) {
    return x;
  } else {
    return static_cast<uint64_t>(x);
  }
}

// Four chains of doubles, or of integers.
template <typename T, auto kFunction>
void SumPlain(const KernelArguments& a) {
  decltype(NumberOf(T{})) sums[4] = {};
  for (int64_t i = 0; i < a.count; ++i) sums[i % 4] += kFunction(NumberOf(ElementOf<T>(a, i)));
  const auto total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  if constexpr (kIsReal<T>) {
    AccumulatorOf(a.y).real += total;
  } else {
    AccumulatorOf(a.y).whole += total;
  }
}

template <typename T>
void Multiply(const KernelArguments& a) {
  decltype(NumberOf(T{})) product = 1;
  for (int64_t i = 0; i < a.count; ++i) product *= NumberOf(ElementOf<T>(a, i));
  if constexpr (kIsReal<T>) {
    AccumulatorOf(a.y).real *= product;
  } else {
    AccumulatorOf(a.y).whole *= product;
  }
}

// The greatest of floats; kSign -1: the least, as minus the greatest of -x. Max(v, best) keeps best where v is NaN.
template <typename T, int kSign>
void BestVec(const KernelArguments& a) {
  Accumulator& accumulator = AccumulatorOf(a.y);
  if (a.count == 0) return;
  auto value = [&](Vec v) { return kSign > 0 ? v : -v; };
  const float lowest = -__builtin_inff();
  if (!accumulator.has_element) accumulator.best.f = kSign * ToFloat(ElementOf<T>(a, 0));
  accumulator.has_element = true;
  Vec best = Set(lowest), other = Set(lowest);
  const T* x = static_cast<const T*>(a.x[0]);
  int64_t i = 0;
  for (; i + 2 * kLanes <= a.count; i += 2 * kLanes) {
    best = Max(value(Load(x + i * a.step[0])), best);
    other = Max(value(Load(x + (i + kLanes) * a.step[0])), other);
  }
  for (; i < a.count; i += kLanes) {
    const int lanes = a.count - i < kLanes ? static_cast<int>(a.count - i) : kLanes;
    const Vec v = value(LoadN(x + i * a.step[0], lanes));
    best = Max(lanes < kLanes ? Select(FirstMask(lanes), v, Set(lowest)) : v, best);
  }
  const float found = ReduceMax(Max(best, other));
  if (found > accumulator.best.f) accumulator.best.f = found;
}

template <typename T>
ONNXFUSE_INLINE T& BestOf(Accumulator& accumulator) {
  if constexpr (std::is_same_v<T, double>) {
    return accumulator.best.d;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return accumulator.best.i;
  } else {
    return accumulator.best.u;
  }
}

template <typename T>
using Wide =
    std::conditional_t<std::is_same_v<T, double>, double, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

template <typename T, int kSign>
void BestPlain(const KernelArguments& a) {
  Accumulator& accumulator = AccumulatorOf(a.y);
  if (a.count == 0) return;
  T best = ElementOf<T>(a, 0);
  if (accumulator.has_element) best = static_cast<T>(BestOf<Wide<T>>(accumulator));
  for (int64_t i = 0; i < a.count; ++i) {
    const T x = ElementOf<T>(a, i);
    best = (kSign > 0 ? x > best : x < best) ? x : best;
  }
  BestOf<Wide<T>>(accumulator) = best;
  accumulator.has_element = true;
}

template <typename T>
ONNXFUSE_INLINE T FromNumber(double x) {
  if constexpr (kIsVec<T>) {
    return FromFloat<T>(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// The value of no elements.
template <typename T, int kSign>
ONNXFUSE_INLINE T WorstOf() {
  if constexpr (kIsReal<T>) {
    return FromNumber<T>(kSign > 0 ? -__builtin_inf() : __builtin_inf());
  } else {
    constexpr T most = static_cast<T>(std::is_signed_v<T> ? (uint64_t{1} << (8 * sizeof(T) - 1)) - 1 : ~uint64_t{0});
    constexpr T least = std::is_signed_v<T> ? static_cast<T>(-most - 1) : T{0};
    return kSign > 0 ? least : most;
  }
}

template <typename T, int kSign>
ONNXFUSE_INLINE T BestResult(Accumulator accumulator) {
  if (!accumulator.has_element) return WorstOf<T, kSign>();
  if constexpr (kIsVec<T>) {
    return FromFloat<T>(kSign * accumulator.best.f);
  } else {
    return static_cast<T>(BestOf<Wide<T>>(accumulator));
  }
}

template <typename T>
ONNXFUSE_INLINE T Total(Accumulator accumulator, int64_t) {
  if constexpr (kIsReal<T>) {
    return FromNumber<T>(accumulator.real);
  } else {
    return static_cast<T>(accumulator.whole);
  }
}

template <typename T>
ONNXFUSE_INLINE T Mean(Accumulator accumulator, int64_t count) {
  if constexpr (kIsReal<T>) {
    return FromNumber<T>(count == 0 ? 0.0 : accumulator.real / static_cast<double>(count));
  } else {
    return count == 0 ? T{0} : Quotient(static_cast<T>(accumulator.whole), static_cast<T>(count));
  }
}

template <typename T, auto kResult>
void Finish(const KernelArguments& a) {
  const T result = kResult(*static_cast<const Accumulator*>(a.x[0]), a.count);
  for (int64_t i = 0; i < kSplat; ++i) static_cast<T*>(a.y)[i] = result;
}

template <typename T>
ProgramKernel FinishKernel(Primitive primitive) {
  switch (primitive) {
    case Primitive::kReduceMean: return &Finish<T, &Mean<T>>;
    case Primitive::kReduceMax: return &Finish<T, [](Accumulator a, int64_t) { return BestResult<T, 1>(a); }>;
    case Primitive::kReduceMin: return &Finish<T, [](Accumulator a, int64_t) { return BestResult<T, -1>(a); }>;
    case Primitive::kReduceL2: return &Finish<T, [](Accumulator a, int64_t) { return FromNumber<T>(::sqrt(a.real)); }>;
    default: return &Finish<T, &Total<T>>;
  }
}

template <typename T>
ProgramKernel VecKernel(Primitive primitive) {
  switch (primitive) {
    case Primitive::kReduceSum:
    case Primitive::kReduceMean: return &SumVecs<T, [](Vec x) { return x; }>;
    case Primitive::kReduceSumSquare: return &SumVecs<T, [](Vec x) { return x * x; }>;
    case Primitive::kReduceL2: return &SumVecs<T, [](Vec x) { return x * x; }>;
    case Primitive::kReduceL1: return &SumVecs<T, [](Vec x) { return Abs(x); }>;
    case Primitive::kReduceMax: return &BestVec<T, 1>;
    case Primitive::kReduceMin: return &BestVec<T, -1>;
    default: return nullptr;
  }
}

template <typename T>
ONNXFUSE_INLINE auto Magnitude(decltype(NumberOf(T{})) x) {
  if constexpr (kIsReal<T>) return x < 0 ? -x : x;
  return std::is_signed_v<T> && static_cast<int64_t>(x) < 0 ? 0 - x : x;
}

template <typename T>
ProgramKernel PlainKernel(Primitive primitive) {
  using N = decltype(NumberOf(T{}));
  switch (primitive) {
    case Primitive::kReduceSum:
    case Primitive::kReduceMean: return &SumPlain<T, [](N x) { return x; }>;
    case Primitive::kReduceSumSquare:
    case Primitive::kReduceL2: return &SumPlain<T, [](N x) { return x * x; }>;
    case Primitive::kReduceL1: return &SumPlain<T, [](N x) { return Magnitude<T>(x); }>;
    case Primitive::kReduceMax: return &BestPlain<T, 1>;
    case Primitive::kReduceMin: return &BestPlain<T, -1>;
    default: return nullptr;
  }
}

template <typename T>
ProgramKernel ReductionKernel(const KernelKey& key) {
  const bool is_product = key.primitive == Primitive::kReduceProd;
  if (key.part == KernelKey::Part::kBegin) return is_product ? &BeginProduct : &Begin;
  if (key.part == KernelKey::Part::kFinish) return FinishKernel<T>(key.primitive);
  if (is_product) return &Multiply<T>;
  if constexpr (kIsVec<T>) {
    return VecKernel<T>(key.primitive);
  } else {
    return PlainKernel<T>(key.primitive);
  }
}

}  // namespace

void FindReductionKernel(const KernelKey& key, ProgramKernel* found) {
  switch (key.type) {
    case Type::kFloat: *found = ReductionKernel<float>(key); break;
    case Type::kFloat16: *found = ReductionKernel<Half>(key); break;
    case Type::kBFloat16: *found = ReductionKernel<BFloat16>(key); break;
    case Type::kDouble: *found = ReductionKernel<double>(key); break;
    case Type::kInt8: *found = ReductionKernel<int8_t>(key); break;
    case Type::kUInt8: *found = ReductionKernel<uint8_t>(key); break;
    case Type::kInt16: *found = ReductionKernel<int16_t>(key); break;
    case Type::kUInt16: *found = ReductionKernel<uint16_t>(key); break;
    case Type::kInt32: *found = ReductionKernel<int32_t>(key); break;
    case Type::kUInt32: *found = ReductionKernel<uint32_t>(key); break;
    case Type::kInt64: *found = ReductionKernel<int64_t>(key); break;
    case Type::kUInt64: *found = ReductionKernel<uint64_t>(key); break;
    default: *found = nullptr;
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH(FindReductionKernel, (const KernelKey& key, ProgramKernel* found), (key, found))
