#include "custom_ops/attention/kernel.h"

#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/attention/prefill.h"

#if ONNXFUSE_ISA_LEVEL == 0

namespace onnxfuse {
namespace {

struct Scratch {
  void* memory = nullptr;
  size_t size = 0;
  ~Scratch() { std::free(memory); }
};

}  // namespace

void* AttentionScratch(size_t bytes) {
  static thread_local Scratch scratch;
  if (scratch.size < bytes) {
    std::free(scratch.memory);
    scratch.memory = std::calloc(bytes + 64, 1);
    scratch.size = scratch.memory == nullptr ? 0 : bytes;
  }
  const auto address = reinterpret_cast<uintptr_t>(scratch.memory);
  return reinterpret_cast<void*>((address + 63) / 64 * 64);
}

}  // namespace onnxfuse

#endif

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void FillPresent(const Rows<T>& rows, T* present, int64_t new_rows) {
  std::memcpy(present, rows.past, static_cast<size_t>(rows.past_count * rows.size) * sizeof(T));
  present += rows.past_count * rows.size;
  for (int64_t row = 0; row < new_rows; ++row, present += rows.size) {
    const T* source = rows.current + row * rows.stride;
    for (int64_t i = 0; i < rows.size; ++i) present[i] = source[i * rows.dim_stride];
  }
}

template <typename T>
void FillPresents(const AttentionArgs<T>& a, const ParallelFor& parallel) {
  const int64_t keys = a.past_keys + a.new_keys;
  const double cost = 0.1 * static_cast<double>(keys * (a.head_size + a.value_size));
  parallel(a.batch * a.kv_heads, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / a.kv_heads, head = i % a.kv_heads;
      if (a.present_key != nullptr) FillPresent(KeysOf(a, batch, head), a.present_key + i * keys * a.head_size, a.new_keys);
      if (a.present_value != nullptr) FillPresent(ValuesOf(a, batch, head), a.present_value + i * keys * a.value_size, a.new_keys);
    }
  });
}

template <typename T>
void Prefill(const AttentionArgs<T>& a, const ParallelFor& parallel) {
  const int64_t group = a.q_heads / a.kv_heads;
  const int64_t stacked = a.queries < kChunk ? group : 1;  // heads whose queries share a tile
  const int64_t rows = stacked * a.queries;
  const int64_t tile_rows = kChunk * kMostChunks;
  const int64_t tiles = (rows + tile_rows - 1) / tile_rows;
  const int64_t spans = group / stacked;
  const double flops = 2.0 * static_cast<double>(Least(rows, tile_rows) * (a.past_keys + a.new_keys) * (a.head_size + a.value_size));
  parallel(a.batch * a.kv_heads * spans * tiles, flops / 64, [&](int64_t begin, int64_t end) {
    Workspace* workspace = NewWorkspace(a.head_size, a.value_size);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t tile = i % tiles, span = i / tiles % spans, pair = i / tiles / spans;
      const int64_t first = span * rows + tile * tile_rows;
      TileRunner<T>(a, {pair / a.kv_heads, pair % a.kv_heads, first, Least(first + tile_rows, span * rows + rows)}, workspace).Run();
    }
  });
}

template <typename T>
void FillZero(const AttentionArgs<T>& a) {
  for (int64_t b = 0; b < a.batch; ++b) {
    for (int64_t h = 0; h < a.q_heads; ++h) {
      for (int64_t i = 0; i < a.queries; ++i) {
        T* y = a.y + b * a.y_strides.batch + h * a.y_strides.head + i * a.y_strides.seq;
        std::memset(static_cast<void*>(y), 0, static_cast<size_t>(a.value_size) * sizeof(T));
      }
    }
  }
}

template <typename T>
void AttentionCpu(const AttentionArgs<T>& a, const ParallelFor& parallel) {
  if (a.present_key != nullptr || a.present_value != nullptr) FillPresents(a, parallel);
  if (a.batch == 0 || a.q_heads == 0 || a.queries == 0 || a.value_size == 0) return;
  if (a.past_keys + a.new_keys == 0) return FillZero(a);
  Prefill(a, parallel);
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(AttentionCpu, (const AttentionArgs<T>& args, const ParallelFor& parallel), (args, parallel))
ONNXFUSE_INSTANTIATE(AttentionCpu, float)
ONNXFUSE_INSTANTIATE(AttentionCpu, Half)
ONNXFUSE_INSTANTIATE(AttentionCpu, BFloat16)
