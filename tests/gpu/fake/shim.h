// CUDA C++ on the CPU: what a generated kernel needs of CUDA, for the fake NVRTC to put before it.
//
// Threads are fibers of the fake driver (libcuda.cc); a thread gives way where CUDA threads wait for each other. Blocks
// run one after another, so shared memory is static.
#pragma once
// Declared by hand: the headers would take most of a compilation.
extern "C" {
float expf(float);
double exp(double);
float logf(float);
double log(double);
float tanhf(float);
double tanh(double);
float erff(float);
double erf(double);
float sinf(float);
double sin(double);
float cosf(float);
double cos(double);
float tanf(float);
double tan(double);
float asinf(float);
double asin(double);
float acosf(float);
double acos(double);
float atanf(float);
double atan(double);
float sinhf(float);
double sinh(double);
float coshf(float);
double cosh(double);
float asinhf(float);
double asinh(double);
float acoshf(float);
double acosh(double);
float atanhf(float);
double atanh(double);
float floorf(float);
double floor(double);
float ceilf(float);
double ceil(double);
float rintf(float);
double rint(double);
float sqrtf(float);
double sqrt(double);
float fabsf(float);
double fabs(double);
float log1pf(float);
double log1p(double);
float powf(float, float);
double pow(double, double);
float fmodf(float, float);
double fmod(double, double);
}

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local

struct ShimIndex {
  unsigned x, y, z;
};
struct ShimState {
  ShimIndex thread, block;
  void (*wait_block)(void);
  unsigned (*lane)(void);
  // Gives `mine` to the warp and takes what the lane `source` gave.
  void (*exchange)(const void* mine, void* theirs, unsigned size, unsigned source);
};
extern thread_local ShimState* shim_state;

#define threadIdx (shim_state->thread)
#define blockIdx (shim_state->block)
static inline void __syncthreads() { shim_state->wait_block(); }
template <typename T>
static inline T __shfl_xor_sync(unsigned, T value, int mask) {
  T other;
  shim_state->exchange(&value, &other, sizeof(T), shim_state->lane() ^ (unsigned)mask);
  return other;
}
