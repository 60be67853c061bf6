// Matrix products by cuBLASLt, an alternative to the compiled kernels of Linear: where it was measured to be faster
// (measured.h), wherever it has what follows them where `$ONNXFUSE_LINEAR` is "cublaslt", nowhere where that is "compiled".
#pragma once

#include <cstdint>

#include "custom_ops/_runtime/cuda/device.h"
#include "custom_ops/_runtime/op.h"

namespace onnxfuse::cuda {

class Session;

// y = f(alpha x weight + bias + residual), all row-major and contiguous.
struct Product {
  enum class Activation { kNone, kRelu, kGeluTanh };

  Type type = Type::kNone;
  int64_t rows = 0, columns = 0, depth = 0;
  const void* x = nullptr;         // [rows, depth]
  const void* weight = nullptr;    // [depth, columns], or [columns, depth] where is_transposed
  const void* bias = nullptr;      // [columns], or null
  const void* residual = nullptr;  // [rows, columns], or null
  void* y = nullptr;               // [rows, columns]; may be residual
  bool is_transposed = false;
  float alpha = 1;
  Activation activation = Activation::kNone;
};

// Puts a product on the session's stream; session: null for a rehearsal, which finds the way to do it and starts nothing.
// False where cuBLASLt is not wanted, not there (told once as a warning), or has no way to do it: nothing is started then.
bool MultiplyByCublasLt(const Product& product, const Device& device, const Session* session);

}  // namespace onnxfuse::cuda
