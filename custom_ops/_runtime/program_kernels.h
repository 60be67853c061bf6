// The loops that programs are made of: one primitive over one block. program_plan.h strings them together.
//
// A kernel takes blocks of `count` elements. An argument either steps with the result (step 1) or is a *splat* (step
// 0): kSplat copies of one element, which serve the whole block. So constants, scalars and row values cost a load out
// of L1 and nothing else. y may be the memory of any argument of the same element size, element for element. No
// alignment is needed, and nothing past `count` elements is touched (but for splats, which are read whole).
//
// float16 and bfloat16 are computed in float and rounded after each primitive. Results of + - * / Sqrt, of rounding,
// comparing, choosing and casting are those of IEEE arithmetic, bit for bit, also where two primitives share a kernel;
// other functions keep the bounds stated in simd.h and simd_functions.h, or are libm's.
#pragma once

#include <cstdint>

#include "custom_ops/_runtime/program.h"

namespace onnxfuse {

inline constexpr int64_t kSplat = 16;        // elements of a splat
inline constexpr int64_t kSplatBytes = 128;  // room for one, whatever the type

struct KernelArguments {
  int64_t count = 0;
  void* y = nullptr;
  const void* x[3] = {};
  int64_t step[3] = {};
  bool* divides_by_zero = nullptr;  // set where an integer is divided by 0; the result there is 0
};

using ProgramKernel = void (*)(const KernelArguments&);

// What to do: a primitive, or second(primitive(x0, x1), x2), or, swapped, second(x2, primitive(x0, x1)).
//
// A reduction is three kernels on an Accumulator: kBegin (y is the accumulator), kReduce (x[0] goes into y, the
// accumulator; may be called for block after block), kFinish (y is a splat of the result, x[0] the accumulator, count
// how many elements went in).
struct KernelKey {
  enum class Part { kMap, kBegin, kReduce, kFinish };
  Primitive primitive = Primitive::kIdentity;
  Type type = Type::kFloat;  // of the arguments
  Type to = Type::kFloat;    // of a Cast's result
  Part part = Part::kMap;
  Primitive second = Primitive::kIdentity;  // kIdentity: none
  bool is_swapped = false;
};

struct Accumulator {
  double real;     // a sum or product of floating-point type
  uint64_t whole;  // a sum or product of integer type, modulo 2^64
  union {          // the greatest or least
    float f;
    double d;
    int64_t i;
    uint64_t u;
  } best;
  bool has_element;
};

// Sets *found to the kernel on the instruction set that is active, or to null where there is none for the key.
// IsReduction(primitive) needs a part.
void FindRealKernel(const KernelKey& key, ProgramKernel* found);       // float, float16, bfloat16
void FindPairKernel(const KernelKey& key, ProgramKernel* found);       // two in one, of the same types
void FindPlainKernel(const KernelKey& key, ProgramKernel* found);      // all other types
void FindCastKernel(const KernelKey& key, ProgramKernel* found);       // Cast between any two types
void FindReductionKernel(const KernelKey& key, ProgramKernel* found);  // all types but bool

ProgramKernel FindKernel(const KernelKey& key);

}  // namespace onnxfuse
