// One public function for the three builds of a kernel.
//
// cmake/kernel_targets.cmake compiles each custom_ops/<op>/kernel_cpu.cc once per instruction set, with
// ONNXFUSE_TARGET_NAMESPACE (baseline, avx2 or avx512) and ONNXFUSE_ISA_LEVEL (0, 1, 2) defined. A kernel_cpu.cc reads
//
//   #include "custom_ops/bias_gelu/kernel.h"      // declares template <typename T> void BiasGeluCpu(...) in onnxfuse
//   #include "custom_ops/_runtime/dispatch.h"
//   #include "custom_ops/_runtime/simd.h"
//
//   namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {
//   template <typename T> void BiasGeluCpu(const T* x, T* y, int64_t n) { ... Vec, Load, Store, kLanes ... }
//   }
//   ONNXFUSE_DISPATCH_TEMPLATE(BiasGeluCpu, (const T* x, T* y, int64_t n), (x, y, n))
//   ONNXFUSE_INSTANTIATE(BiasGeluCpu, float)
//   ONNXFUSE_INSTANTIATE(BiasGeluCpu, Half)
//
// (ONNXFUSE_DISPATCH for a function that is no template.) The macros stand outside any namespace; kernels return void.
// The public function runs the best build that the machine and its system can run. The environment variable
// ONNXFUSE_ISA=baseline|avx2|avx512|amx, read once, lowers that; tests use ForceIsa.
//
// Keep to your own namespace in a kernel_cpu.cc: no std:: containers, no std::max and the like, whose code would be
// emitted with wide instructions under a name that the rest of the library shares (tests/kernels checks the objects).
#pragma once

#include <cstring>

#include "custom_ops/_runtime/half.h"

#ifndef ONNXFUSE_ISA_LEVEL
#define ONNXFUSE_ISA_LEVEL 0
#endif

#if defined(__x86_64__) || defined(_M_X64)
#define ONNXFUSE_X86_KERNELS 1
#endif

#if ONNXFUSE_ISA_LEVEL == 0

#include <atomic>
#include <cstdio>
#include <cstdlib>

#if defined(ONNXFUSE_X86_KERNELS)
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace onnxfuse {

// ONNXFUSE_WITHOUT_AVX512 leaves that set out of a build, for tests that take long to compile.
#if defined(ONNXFUSE_WITHOUT_AVX512)
#define ONNXFUSE_DETAIL_AVX512(...)
inline constexpr bool kHasAvx512 = false;
#else
#define ONNXFUSE_DETAIL_AVX512(...) __VA_ARGS__
inline constexpr bool kHasAvx512 = true;
#endif

// kAmx: the kernels of AVX-512, some of which use the unit of custom_ops/_runtime/amx.h.
enum class Isa : int { kBaseline = 0, kAvx2 = 1, kAvx512 = 2, kAmx = 3 };

namespace dispatch {

inline constexpr const char* kIsaNames[] = {"baseline", "avx2", "avx512", "amx"};

#if defined(ONNXFUSE_X86_KERNELS)

struct CpuidResult {
  unsigned a, b, c, d;
};

inline CpuidResult Cpuid(unsigned leaf) {
#if defined(_MSC_VER)
  int r[4];
  __cpuidex(r, static_cast<int>(leaf), 0);
  return {unsigned(r[0]), unsigned(r[1]), unsigned(r[2]), unsigned(r[3])};
#else
  CpuidResult r{};
  __get_cpuid_count(leaf, 0, &r.a, &r.b, &r.c, &r.d);
  return r;
#endif
}

// The register sets that the system saves on a thread switch. Only valid where cpuid reports OSXSAVE.
inline unsigned SavedRegisters() {
#if defined(_MSC_VER)
  return static_cast<unsigned>(_xgetbv(0));
#else
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
#endif
}

// Its registers are saved only for processes that ask for them. seven: what cpuid says in d of leaf 7.
inline bool HasAmx([[maybe_unused]] unsigned seven) {
#if defined(__linux__)
  constexpr unsigned kAmxBits = (1u << 22) | (1u << 24), kTiles = 0x60000;  // bfloat16, tiles
  constexpr long kRequest = 0x1023, kTileData = 18;                         // ARCH_REQ_XCOMP_PERM
  if ((seven & kAmxBits) != kAmxBits || (SavedRegisters() & kTiles) != kTiles) return false;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

inline Isa BestIsa() {
  const CpuidResult one = Cpuid(1);
  const CpuidResult seven = Cpuid(7);
  constexpr unsigned kFma = 1u << 12, kOsxsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;
  constexpr unsigned kNeeded = kFma | kOsxsave | kAvx | kF16c;
  constexpr unsigned kAvx2Bit = 1u << 5;
  constexpr unsigned kAvx512Bits = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);  // F, DQ, BW, VL
  constexpr unsigned kYmm = 0x6, kZmm = 0xE6;
  if ((one.c & kNeeded) != kNeeded || (seven.b & kAvx2Bit) == 0 || (SavedRegisters() & kYmm) != kYmm)
    return Isa::kBaseline;
  const bool wide = kHasAvx512 && (seven.b & kAvx512Bits) == kAvx512Bits && (SavedRegisters() & kZmm) == kZmm;
  if (!wide) return Isa::kAvx2;
  return HasAmx(seven.d) ? Isa::kAmx : Isa::kAvx512;
}

#else

inline Isa BestIsa() { return Isa::kBaseline; }

#endif

// The best instruction set, or the one that ONNXFUSE_ISA asks for where the machine has it.
inline Isa InitialIsa() {
  const Isa best = BestIsa();
  const char* wish = std::getenv("ONNXFUSE_ISA");
  if (wish == nullptr || *wish == '\0') return best;
  for (int i = 0; i <= static_cast<int>(best); ++i) {
    if (std::strcmp(wish, kIsaNames[i]) == 0) return static_cast<Isa>(i);
  }
  std::fprintf(stderr, "onnxfuse: ONNXFUSE_ISA=%s is not one of the sets this machine has (up to %s); using %s\n", wish,
               kIsaNames[static_cast<int>(best)], kIsaNames[static_cast<int>(best)]);
  return best;
}

inline std::atomic<int>& ActiveSlot() {
  static std::atomic<int> slot{static_cast<int>(InitialIsa())};
  return slot;
}

}  // namespace dispatch

// The instruction set that public kernel functions run on now.
inline Isa ActiveIsa() { return static_cast<Isa>(dispatch::ActiveSlot().load(std::memory_order_relaxed)); }

// For tests: all later kernel calls run on `isa`. False, and no change, where the machine or the build has it not.
inline bool ForceIsa(Isa isa) {
  if (isa > dispatch::BestIsa() || isa < Isa::kBaseline) return false;
  dispatch::ActiveSlot().store(static_cast<int>(isa), std::memory_order_relaxed);
  return true;
}

}  // namespace onnxfuse

#if defined(ONNXFUSE_X86_KERNELS)
#define ONNXFUSE_DETAIL_DECLARE(prefix, name, params)       \
  namespace onnxfuse::avx2 { prefix void name params; }     \
  ONNXFUSE_DETAIL_AVX512(namespace onnxfuse::avx512 { prefix void name params; })
#define ONNXFUSE_DETAIL_CALL(name, targs, args)                                             \
  switch (ActiveIsa()) {                                                                    \
    case Isa::kAmx:                                                                         \
    case Isa::kAvx512: ONNXFUSE_DETAIL_AVX512(return avx512::name targs args;) break;       \
    case Isa::kAvx2: return avx2::name targs args;                                          \
    case Isa::kBaseline: break;                                                             \
  }                                                                                         \
  return baseline::name targs args;
#else
#define ONNXFUSE_DETAIL_DECLARE(prefix, name, params)
#define ONNXFUSE_DETAIL_CALL(name, targs, args) return baseline::name targs args;
#endif

#define ONNXFUSE_DISPATCH(name, params, args) \
  ONNXFUSE_DETAIL_DECLARE(, name, params)     \
  namespace onnxfuse {                        \
  void name params { ONNXFUSE_DETAIL_CALL(name, , args) } \
  }
#define ONNXFUSE_DISPATCH_TEMPLATE(name, params, args)       \
  ONNXFUSE_DETAIL_DECLARE(template <typename T>, name, params) \
  namespace onnxfuse {                                       \
  template <typename T>                                      \
  void name params { ONNXFUSE_DETAIL_CALL(name, <T>, args) } \
  }
#define ONNXFUSE_INSTANTIATE(name, type)                                                            \
  namespace onnxfuse::baseline { template decltype(name<type>) name<type>; }                        \
  namespace onnxfuse { template decltype(name<type>) name<type>; }

#else  // the AVX2 and AVX-512 builds hold the kernel only; the baseline build holds the public function

#define ONNXFUSE_DISPATCH(name, params, args)
#define ONNXFUSE_DISPATCH_TEMPLATE(name, params, args)
#define ONNXFUSE_INSTANTIATE(name, type) \
  namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE { template decltype(name<type>) name<type>; }

#endif
