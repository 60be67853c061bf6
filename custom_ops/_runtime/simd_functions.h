// More functions of one Vec: logarithm, trigonometry, and those that go lane by lane. For kernel_cpu*.cc files.
//
// Bounds, measured over their whole range by tests/kernels, in ulp of the true value:
//   Log        1 ulp; -inf for 0, NaN below.
//   Log1p      2.5 ulp, for x in [0, 1] only.
//   Softplus   2.5 ulp: log(1 + e^x) without overflow.
//   Sin, Cos   2 ulp for |x| <= 8192 where the result is not near 0, else within 1e-7 of it; beyond, libm's, lane by lane.
//   PerLane    whatever the function given has.
#pragma once

#include <math.h>

#include "custom_ops/_runtime/simd.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// f of each lane, f a function of one float.
template <typename F>
ONNXFUSE_INLINE Vec PerLane(Vec x, F&& f) {
  float lanes[kLanes];
  Store(lanes, x);
  for (float& lane : lanes) lane = f(lane);
  return Load(lanes);
}

template <typename F>
ONNXFUSE_INLINE Vec PerLane(Vec x, Vec y, F&& f) {
  float lanes[kLanes], others[kLanes];
  Store(lanes, x);
  Store(others, y);
  for (int i = 0; i < kLanes; ++i) lanes[i] = f(lanes[i], others[i]);
  return Load(lanes);
}

// n log 2 + log(1 + f), log(1 + f) = f - f^2/2 + f^3 p(f), p a minimax fit on [-0.25, 0.5] (0.02 ulp).
ONNXFUSE_INLINE Vec Log(Vec x) {
  constexpr float kP[] = {0x1.55555ap-2f, -0x1.00006ep-2f, 0x1.999788p-3f,  -0x1.5519b8p-3f, 0x1.24609ep-3f,
                          -0x1.04aa4p-3f, 0x1.df424p-4f,   -0x1.7565aep-4f, 0x1.349ce2p-5f};
  Vec n;
  const Vec f = Decompose(x, &n) - Set(1.0f);
  const Vec tail = f * f * Fma(f, Polynomial(f, kP), Set(-0.5f));
  // log 2 in two parts; the first has 15 bits, so that n times it is exact.
  const Vec low = Fma(n, Set(0x1.7f7d1cp-20f), tail);
  const Vec finite = Fma(n, Set(0x1.62e4p-1f), f + low);
  const Vec at_end = Select(x == Zero(), Set(-__builtin_inff()), Select(x < Zero(), Set(__builtin_nanf("")), x));
  return Select((x > Zero()) & (x < Set(__builtin_inff())), finite, at_end);
}

// What rounding 1 + x loses is made good by the ratio of x to what 1 + x holds of it.
ONNXFUSE_INLINE Vec Log1p(Vec x) {
  const Vec sum = Set(1.0f) + x;
  const Vec held = sum - Set(1.0f);
  return Select(held == Zero(), x, Log(sum) * (x / held));
}

ONNXFUSE_INLINE Vec Softplus(Vec x) { return Max(Zero(), x) + Log1p(Exp(-Abs(x))); }

// x - n pi/2 for n = x / (pi/2), rounded; pi/2 in parts of 11 bits, so that n times them is exact for |n| < 2^13.
ONNXFUSE_INLINE Vec Quadrant(Vec x, Vec* n) {
  *n = RoundEven(x * Set(0x1.45f306p-1f));
  Vec r = NegFma(*n, Set(0x1.92p+0f), x);
  r = NegFma(*n, Set(0x1.fb4p-12f), r);
  r = NegFma(*n, Set(0x1.444p-24f), r);
  r = NegFma(*n, Set(0x1.68c234p-39f), r);
  return Select(*n == Zero(), x, r);  // -0 stays -0
}

// sin(r + n pi/2) for |r| <= pi/4: a sine or a cosine by n's last bit, its sign by the next.
ONNXFUSE_INLINE Vec SinOf(Vec r, Vec n) {
  constexpr float kSin[] = {-0x1.555556p-3f, 0x1.111108p-7f, -0x1.a00f9ep-13f, 0x1.6cd838p-19f};
  constexpr float kCos[] = {0x1.555556p-5f, -0x1.6c16b8p-10f, 0x1.a0112p-16f, -0x1.242abep-22f};
  const Vec square = r * r;
  const Vec sine = Fma(r * square, Polynomial(square, kSin), r);
  const Vec cosine = Fma(square * square, Polynomial(square, kCos), Fma(square, Set(-0.5f), Set(1.0f)));
  const Vec half = n * Set(0.5f), quarter = n * Set(0.25f);
  const Mask is_odd = Floor(half) != half;
  const Mask is_negative = (quarter - Floor(quarter)) >= Set(0.5f);
  const Vec magnitude = Select(is_odd, cosine, sine);
  return Select(is_negative, -magnitude, magnitude);
}

ONNXFUSE_INLINE Mask IsBeyondQuadrants(Vec x) { return !(Abs(x) <= Set(8192.0f)); }

ONNXFUSE_INLINE Vec Sin(Vec x) {
  if (AnyOf(IsBeyondQuadrants(x))) return PerLane(x, [](float lane) { return ::sinf(lane); });
  Vec n;
  const Vec r = Quadrant(x, &n);
  return SinOf(r, n);
}

ONNXFUSE_INLINE Vec Cos(Vec x) {
  if (AnyOf(IsBeyondQuadrants(x))) return PerLane(x, [](float lane) { return ::cosf(lane); });
  Vec n;
  const Vec r = Quadrant(x, &n);
  return SinOf(r, n + Set(1.0f));
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
