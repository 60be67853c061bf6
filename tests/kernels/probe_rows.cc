// Kernels that work row by row, or column by column, with one C interface for tests: probe_rows runs kernel number
// `kernel` on [rows, cols] in the calling thread.
#include <type_traits>

#include "custom_ops/channel_layer_norm/kernel.h"
#include "custom_ops/gelu/kernel.h"
#include "custom_ops/group_norm/kernel.h"
#include "custom_ops/masked_softmax/kernel.h"
#include "custom_ops/rotary_embedding/kernel.h"
#include "custom_ops/skip_layer_norm/kernel.h"
#include "custom_ops/skip_rms_norm/kernel.h"
#include "custom_ops/swiglu/kernel.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace onnxfuse;

constexpr float kEpsilon = 1e-5f;

// In the order of KERNELS in test_rows.py. a, b, y, z: [rows, cols]; c, d: one number for each column, or for each row.
template <typename T>
void Run(int kernel, const T* a, const T* b, const T* c, const T* d, T* y, T* z, int64_t rows, int64_t cols) {
  const ParallelFor serial = SerialFor();
  if (kernel == 0) SkipLayerNormCpu<T>(a, b, c, d, nullptr, y, z, rows, cols, kEpsilon, serial);
  if (kernel == 1) SkipRmsNormCpu<T>(a, b, c, d, y, z, rows, cols, kEpsilon, serial);
  if (kernel == 2) GeluCpu<T>(a, c, y, rows, cols, false, serial);
  if (kernel == 3) SwigluCpu<T>(a, b, y, rows, cols, cols, 1.0f, serial);
  if (kernel == 4) GroupNormCpu<T>(a, c, d, y, {1, 1, rows, cols}, kEpsilon, true, serial);
  if (kernel == 5) ChannelLayerNormCpu<T>(a, c, d, y, {1, rows, cols}, kEpsilon, serial);
  if (kernel == 6) {
    RotaryLayout layout;
    layout.axes = 2;
    layout.sizes[0] = 2, layout.sizes[1] = rows / 2;  // two heads that share cos and sin
    layout.cos_steps[0] = layout.sin_steps[0] = 0;
    layout.cos_steps[1] = layout.sin_steps[1] = cols;
    layout.row_size = layout.rotary_dim = cols;
    layout.is_cos_full = layout.is_sin_full = true;
    RotaryEmbeddingCpu<T>(a, c, d, y, layout, serial);
  }
  if (kernel == 7) {
    MaskedSoftmaxArgs args;
    args.rows = rows, args.cols = cols, args.scale = 0.5f;
    args.mask = b, args.mask_column = 1;
    args.mask_kind = sizeof(T) == 4            ? SoftmaxMask::kFloat
                     : std::is_same_v<T, Half> ? SoftmaxMask::kHalf
                                               : SoftmaxMask::kBFloat16;
    args.axes = 1, args.sizes[0] = rows, args.mask_steps[0] = cols;
    MaskedSoftmaxCpu<T>(a, y, args, serial);
  }
}

template <typename T>
void RunAs(int kernel, const void* const (&inputs)[4], void* y, void* z, int64_t rows, int64_t cols) {
  const T* in[4];
  for (int i = 0; i < 4; ++i) in[i] = static_cast<const T*>(inputs[i]);
  Run<T>(kernel, in[0], in[1], in[2], in[3], static_cast<T*>(y), static_cast<T*>(z), rows, cols);
}

}  // namespace

// type: 0 float, 1 float16, 2 bfloat16. z may be null.
EXPORT void probe_rows(int kernel, int type, const void* a, const void* b, const void* c, const void* d, void* y,
                       void* z, int64_t rows, int64_t cols) {
  const void* const inputs[4] = {a, b, c, d};
  if (type == 0) RunAs<float>(kernel, inputs, y, z, rows, cols);
  if (type == 1) RunAs<Half>(kernel, inputs, y, z, rows, cols);
  if (type == 2) RunAs<BFloat16>(kernel, inputs, y, z, rows, cols);
}
