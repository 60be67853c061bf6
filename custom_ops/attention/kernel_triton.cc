// Attention on a GPU: kernel_triton.py, compiled, on operands as they lie.
//
// Past and new keys are joined into present first, or into scratch memory where nobody asks for present; so are keys whose
// sizes lie apart ([size, seq]), which no fast kernel reads. Few queries leave a GPU idle: their keys are split over more
// blocks, and what comes of the parts is combined.
#include <algorithm>

#include "custom_ops/_runtime/cuda/compiled.h"
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/places.h"
#include "custom_ops/_runtime/program.h"
#include "custom_ops/attention/read.h"

namespace onnxfuse {
namespace {

using namespace attention;

// What the kernels ask for; kernel_triton.py says what each is.
#define ONNXFUSE_ATTENTION_VALUES(X)                                                                              \
  X(q) X(k) X(v) X(y) X(mask) X(sink) X(partial) X(stats) X(past) X(fresh) X(present) X(scale) X(softcap)         \
  X(mask_value) X(heads) X(group) X(queries) X(keys) X(head_size) X(value_size) X(diagonal) X(left) X(right)      \
  X(zero_masked_rows) X(has_sink) X(q_batch) X(q_head) X(q_row) X(k_batch) X(k_head) X(k_row) X(k_column)         \
  X(v_batch) X(v_head) X(v_row) X(y_batch) X(y_head) X(y_row) X(mask_batch) X(mask_head) X(mask_row)              \
  X(mask_column) X(splits) X(split_keys) X(past_rows) X(fresh_rows) X(size) X(fresh_batch) X(fresh_head)          \
  X(fresh_row) X(fresh_column) X(specialised)
ONNXFUSE_KERNEL_VALUES(ONNXFUSE_ATTENTION_VALUES)

constexpr int64_t kFarthest = 1 << 29;  // of a key from its query, for 32 bits
constexpr int64_t kMostSplitRows = 64;  // of queries that share their keys
constexpr int64_t kMostSplits = 128;
constexpr int64_t kBlocksOfMultiprocessor = 2;
constexpr int64_t kLeastTilesOfSplit = 2;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

const cuda::CompiledKernels& KernelsFor(const cuda::Device& device) {
  return cuda::CompiledKernels::Of("Attention", Names(), device);
}

std::string GroupOf(const char* role, Type type) { return std::string(role) + " dtype=" + NameOf(type); }

std::string GroupOf(const char* role, Type type, Type mask) {
  return GroupOf(role, type) + " mask=" + (mask == Type::kNone ? "none" : NameOf(mask));
}

bool Exists(const cuda::Device& device, std::string* why) {
  std::vector<std::string> groups;
  for (const Type type : FloatTypes()) {
    groups.push_back(GroupOf("join", type));
    for (const Type mask : {Type::kNone, Type::kBool, Type::kFloat, Type::kFloat16, Type::kBFloat16}) {
      groups.push_back(GroupOf("tile", type, mask));
    }
  }
  return cuda::AreCompiled(KernelsFor(device), groups, device, why);
}

// Whether kernels with specialised warps are wanted. Not by default: as long as no GPU has run them, one that waits for ever
// is what must not happen.
bool IsSpecialised() {
  static const bool is_wanted = cuda::Variable("ONNXFUSE_SPECIALISED") == "1";
  return is_wanted;
}

// Strides of an operand; that of an axis with one index alone is never used, and may be larger than a kernel takes.
void SetStrides(cuda::Values& values, value::Name batch, value::Name head, value::Name row,
                const AttentionStrides& strides, int64_t batch_size, int64_t head_count) {
  values.Set(batch, batch_size > 1 ? strides.batch : 0);
  values.Set(head, head_count > 1 ? strides.head : 0);
  values.Set(row, strides.seq);
}

template <typename T>
class AttentionOnGpu {
 public:
  AttentionOnGpu(const Call& call, cuda::Queue& queue)
      : queue_(queue), kernels_(KernelsFor(queue.device())), type_(call.Input(kQ).type),
        mask_(call.Input(kMask).is_given ? call.Input(kMask).type : Type::kNone), a_(ReadAttention<T>(call)),
        values_(Names().size()) {}

  void Run() {
    JoinPast();
    if (a_.batch * a_.q_heads * a_.queries * a_.value_size == 0) return;
    SetValues();
    if (RunSplit()) return;
    const cuda::CompiledKernel& kernel = Find(GroupOf("tile", type_, mask_), values_);
    const int64_t tiles = CeilDiv(a_.queries, kernel.Tile("q"));
    const int64_t parts = kernel.tile.count("v") == 0 ? 1 : CeilDiv(a_.value_size, kernel.Tile("v"));
    queue_.Start(kernel, tiles * parts * a_.q_heads * a_.batch, values_);
  }

 private:
  const cuda::CompiledKernel& Find(const std::string& group, const cuda::Values& values) const {
    return cuda::Required(kernels_, group, values);
  }

  int64_t Keys() const { return a_.past_keys + a_.new_keys; }

  // Keys and values as one tensor each, where there are past ones or they are asked for, and keys that must be turned;
  // where any of it is needed, these are read from then on.
  void JoinPast() {
    const bool has_past = a_.past_keys > 0, is_turned = a_.k_strides.dim != 1 && a_.head_size > 1;
    if (has_past || is_turned || a_.present_key != nullptr) {
      a_.present_key = Join(a_.past_key, a_.k, a_.k_strides, a_.head_size, a_.present_key);
      if (has_past || is_turned) a_.k = a_.present_key, a_.k_strides = Contiguous(a_.head_size);
    }
    if (has_past || a_.present_value != nullptr) {
      a_.present_value = Join(a_.past_value, a_.v, a_.v_strides, a_.value_size, a_.present_value);
      if (has_past) a_.v = a_.present_value, a_.v_strides = Contiguous(a_.value_size);
    }
  }

  AttentionStrides Contiguous(int64_t size) const { return {a_.kv_heads * Keys() * size, Keys() * size, size, 1}; }

  T* Join(const T* past, const T* fresh, const AttentionStrides& strides, int64_t size, T* present) {
    const int64_t count = a_.batch * a_.kv_heads * Keys() * size;
    if (count == 0) return present;
    if (present == nullptr) present = static_cast<T*>(queue_.Scratch(static_cast<size_t>(count) * sizeof(T)));
    cuda::Values values(Names().size());
    values.Set(value::past, past);
    values.Set(value::fresh, fresh);
    values.Set(value::present, present);
    values.Set(value::past_rows, a_.past_keys);
    values.Set(value::fresh_rows, a_.new_keys);
    values.Set(value::size, size);
    values.Set(value::heads, a_.kv_heads);
    SetStrides(values, value::fresh_batch, value::fresh_head, value::fresh_row, strides, a_.batch, a_.kv_heads);
    values.Set(value::fresh_column, strides.dim);
    const cuda::CompiledKernel& kernel = Find(GroupOf("join", type_), values);
    queue_.Start(kernel, CeilDiv(Keys(), kernel.Tile("rows")) * a_.kv_heads * a_.batch, values);
    return present;
  }

  void SetValues() {
    SetMemory();
    values_.Set(value::scale, a_.scale);
    values_.Set(value::softcap, a_.softcap);
    values_.Set(value::mask_value, a_.mask_value);
    values_.Set(value::heads, a_.q_heads);
    values_.Set(value::group, a_.q_heads / a_.kv_heads);
    values_.Set(value::queries, a_.queries);
    values_.Set(value::keys, Keys());
    values_.Set(value::head_size, a_.head_size);
    values_.Set(value::value_size, a_.value_size);
    values_.Set(value::diagonal, a_.diagonal);
    values_.Set(value::left, std::min(a_.left, kFarthest));
    values_.Set(value::right, std::min(a_.right, kFarthest));
    values_.Set(value::zero_masked_rows, int64_t{a_.zero_masked_rows});
    values_.Set(value::has_sink, int64_t{a_.sink != nullptr});
    values_.Set(value::specialised, int64_t{IsSpecialised()});
    if (std::max(a_.queries, Keys()) >= kFarthest) {
      throw std::runtime_error("queries and keys must be less than 2^29 on a GPU; got " + std::to_string(a_.queries) +
                               " and " + std::to_string(Keys()));
    }
  }

  void SetMemory() {
    values_.Set(value::q, a_.q);
    values_.Set(value::k, a_.k);
    values_.Set(value::v, a_.v);
    values_.Set(value::y, a_.y);
    values_.Set(value::mask, a_.mask);
    values_.Set(value::sink, a_.sink);
    SetStrides(values_, value::q_batch, value::q_head, value::q_row, a_.q_strides, a_.batch, a_.q_heads);
    SetStrides(values_, value::k_batch, value::k_head, value::k_row, a_.k_strides, a_.batch, a_.kv_heads);
    SetStrides(values_, value::v_batch, value::v_head, value::v_row, a_.v_strides, a_.batch, a_.kv_heads);
    SetStrides(values_, value::y_batch, value::y_head, value::y_row, a_.y_strides, a_.batch, a_.q_heads);
    values_.Set(value::k_column, a_.k_strides.dim);
    values_.Set(value::mask_batch, a_.mask_batch);
    values_.Set(value::mask_head, a_.mask_head);
    values_.Set(value::mask_row, a_.mask_row);
    values_.Set(value::mask_column, a_.mask_column);
  }

  // Whether the keys were split over blocks: not where there are few, or blocks enough without.
  bool RunSplit() {
    const int64_t rows = a_.q_heads / a_.kv_heads * a_.queries, keys = Keys();
    if (keys == 0 || rows > kMostSplitRows) return false;
    const cuda::CompiledKernel* split = kernels_.Find(GroupOf("split", type_, mask_), values_);
    if (split == nullptr) return false;
    const int64_t tile = split->Tile("k"), blocks = CeilDiv(rows, split->Tile("q")) * a_.kv_heads * a_.batch;
    const int64_t wanted = kBlocksOfMultiprocessor * queue_.device().multiprocessors() / blocks;
    const int64_t most = std::min(kMostSplits, CeilDiv(keys, kLeastTilesOfSplit * tile));
    if (std::min(wanted, most) < 2) return false;
    const int64_t split_keys = CeilDiv(CeilDiv(keys, std::min(wanted, most)), tile) * tile;
    const int64_t splits = CeilDiv(keys, split_keys);
    values_.Set(value::splits, splits);
    values_.Set(value::split_keys, split_keys);
    const cuda::CompiledKernel* combine = kernels_.Find(GroupOf("combine", type_), values_);
    if (combine == nullptr) return false;
    const int64_t all = a_.batch * a_.q_heads * a_.queries * splits;
    values_.Set(value::partial, queue_.Scratch(static_cast<size_t>(all * a_.value_size) * sizeof(float)));
    values_.Set(value::stats, queue_.Scratch(static_cast<size_t>(all * 2) * sizeof(float)));
    queue_.Start(*split, splits * blocks, values_);
    queue_.Start(*combine, a_.batch * a_.q_heads * a_.queries, values_);
    return true;
  }

  cuda::Queue& queue_;
  const cuda::CompiledKernels& kernels_;
  const Type type_, mask_;
  AttentionArgs<T> a_;
  cuda::Values values_;
};

void Run(const Call& call, cuda::Queue& queue) {
  ForFloatType(call.Input(kQ).type, [&]<typename T>() { AttentionOnGpu<T>(call, queue).Run(); });
}

const cuda::RegisterCuda kAttention("Attention", &Run, &Exists);

}  // namespace
}  // namespace onnxfuse
