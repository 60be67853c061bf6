// Which products cuBLASLt does faster than the compiled kernels of Linear, as it was measured on a device.
//
// `benchmarks/gpu_check.sh` times both and writes `linear.sm_NN.times`, a JSON file that is looked for in the folders of
// compiled kernels: {"schema": 1, "device": "NVIDIA H200", "times": [{"dtype": "float16", "rows": 16, "columns": 4096,
// "depth": 4096, "trans_weight": 0, "compiled_us": 9.5, "cublaslt_us": 8.7}, ...]}. The first file for the device's name
// counts. A product is decided by the nearest that was measured, of the same type and order of weights, if none of its
// sizes is more than twice as large or small; others are done by compiled kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "custom_ops/_runtime/cuda/device.h"
#include "custom_ops/_runtime/op.h"

namespace onnxfuse::cuda {

class MeasuredProducts {
 public:
  // Read once for the process and a device; without any measured ones where there is no file. One that is damaged is left
  // out, and told once as a warning.
  static const MeasuredProducts& Of(const Device& device);

  bool IsCublasLtFaster(Type type, int64_t rows, int64_t columns, int64_t depth, bool is_transposed) const;

 private:
  struct Measured {
    Type type;
    int64_t rows, columns, depth;
    bool is_transposed;
    double compiled, cublaslt;  // microseconds
  };
  static MeasuredProducts Read(const Device& device);

  std::vector<Measured> all_;
};

}  // namespace onnxfuse::cuda
