#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/linear/amx.h"
#include "custom_ops/linear/few_rows.h"
#include "custom_ops/linear/gemm.h"
#include "custom_ops/linear/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

void PackedLinearSize(int64_t depth, int64_t cols, int64_t* size) { *size = CeilDiv(cols, kPanel) * kPanel * depth; }

template <typename T>
void PackLinearWeights(const LinearArgs<T>& args, T* packed, const ParallelFor& parallel) {
  const double cost = 0.3 * static_cast<double>(args.depth * kPanel);
  parallel(CeilDiv(args.cols, kPanel), cost, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t col = panel * kPanel, cols = Least(kPanel, args.cols - col);
      PackRows<kPanel>(args.weight + col * args.depth, args.depth, cols, args.depth, packed + col * args.depth);
    }
  });
}

template <typename T>
void LinearCpu(const LinearArgs<T>& args, const T* packed, const ParallelFor& parallel) {
  if (args.rows == 0 || args.cols == 0) return;
  if (args.rows <= (args.is_transposed ? kFewRows : kFewRows / 2) || args.depth == 0)
    return FewRowsLinear(args, parallel);
#if defined(ONNXFUSE_AMX)
  if (args.rows >= kAmxLeastRows && args.cols >= kAmxLeastCols && AmxIsActive()) return AmxGemm(args, packed, parallel);
#endif
  Gemm(args, packed, parallel);
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH(PackedLinearSize, (int64_t depth, int64_t cols, int64_t* size), (depth, cols, size))
ONNXFUSE_DISPATCH_TEMPLATE(PackLinearWeights, (const LinearArgs<T>& args, T* packed, const ParallelFor& parallel),
                           (args, packed, parallel))
ONNXFUSE_DISPATCH_TEMPLATE(LinearCpu, (const LinearArgs<T>& args, const T* packed, const ParallelFor& parallel),
                           (args, packed, parallel))
ONNXFUSE_INSTANTIATE(PackLinearWeights, float)
ONNXFUSE_INSTANTIATE(PackLinearWeights, Half)
ONNXFUSE_INSTANTIATE(PackLinearWeights, BFloat16)
ONNXFUSE_INSTANTIATE(LinearCpu, float)
ONNXFUSE_INSTANTIATE(LinearCpu, Half)
ONNXFUSE_INSTANTIATE(LinearCpu, BFloat16)
