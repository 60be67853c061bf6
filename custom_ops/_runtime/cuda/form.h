// What an op is on a GPU: programs over views of its operands, or kernels that were compiled before.
//
// A kernel_cuda.cc (kernel_triton.cc) beside an op.cc says it with a static RegisterCuda; the op is then registered for
// CUDA sessions wherever kernels can be had for the device. custom_ops/gelu/kernel_cuda.cc is an example of the one,
// custom_ops/linear/kernel_triton.cc of the other.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "custom_ops/_runtime/cuda/device.h"
#include "custom_ops/_runtime/cuda/product.h"
#include "custom_ops/_runtime/op.h"
#include "custom_ops/_runtime/program.h"

namespace onnxfuse::cuda {

struct CompiledKernel;  // compiled.h
class Values;

// Memory walked with `steps[i]` elements from one index of axis i to the next.
struct View {
  Type type = Type::kNone;
  void* data = nullptr;
  std::vector<int64_t> shape;
  std::vector<int64_t> steps;

  // A tensor as it lies, row-major; or the same memory under other sizes of the same product.
  static View Of(const Tensor& tensor) { return Of(tensor, tensor.shape); }
  static View Of(const Tensor& tensor, std::vector<int64_t> shape);

  // Indices begin to begin + size * by of one axis, every `by`-th.
  View Slice(int64_t axis, int64_t begin, int64_t size, int64_t by = 1) const;
  // With two axes exchanged.
  View Swap(int64_t one, int64_t other) const;
};

// Where the memory of a rehearsal would be: well aligned, no two alike, and never read or written.
inline void* Nowhere(size_t index) { return reinterpret_cast<void*>((index + 1) << 40); }

// What a node needs of the runtime during one call; nothing of it where a call is only rehearsed.
class Session {
 public:
  virtual Stream stream() const = 0;
  // Device memory of the session's allocator, good until the call's kernels are done.
  virtual void* Scratch(size_t bytes) const = 0;

 protected:
  ~Session() = default;
};

// What one node has used: its programs by their text, all that a run needs beside addresses by program and layout, and
// compiled kernels.
class NodeKernels {
 public:
  // The program of a text, lowered.
  const Program& ProgramOf(const std::string& text);

  // What a run of a program over operands that lie in one way starts, in order; nothing where there are no elements.
  struct Prepared {
    std::vector<Kernel> kernels;
    Launch launch;
    std::vector<uint64_t> argument;  // words of 8 bytes; those of addresses are 0
    size_t first_address = 0;        // the place of the first operand's; that of scratch memory is the last word
    size_t scratch_bytes = 0;
  };

  // What `make` gives for `key`, made once and kept as long as there are not too many.
  template <typename Make>
  std::shared_ptr<const Prepared> Get(const std::string& key, Make&& make) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = prepared_.find(key);
      if (found != prepared_.end()) return found->second;
    }
    const auto made = std::make_shared<const Prepared>(make());
    const std::lock_guard<std::mutex> lock(mutex_);
    if (prepared_.size() >= kMostPrepared) prepared_.clear();
    prepared_.emplace(key, made);
    return made;
  }

  // A compiled kernel, loaded where it was not.
  Kernel Loaded(const CompiledKernel& compiled, const Device& device);

 private:
  static constexpr size_t kMostPrepared = 1024;

  std::mutex mutex_;
  std::map<std::string, Program> programs_;
  std::unordered_map<std::string, std::shared_ptr<const Prepared>> prepared_;
  std::unordered_map<const CompiledKernel*, Kernel> loaded_;
};

// One program that a form asks for, as `kernels show` prints it.
struct Shown {
  std::string program;
  std::string source;
  std::vector<std::string> names;  // of its kernels, in the order in which they start
  Launch launch;                   // of each
};

// Where a form puts its work.
class Queue {
 public:
  // session: null for a rehearsal, which makes the kernels and starts none. shown: null, or where to put what would be
  // run; then nothing is compiled, and there need be no device.
  Queue(const Device* device, NodeKernels* kernels, const Session* session, std::vector<Shown>* shown = nullptr)
      : device_(device), kernels_(kernels), session_(session), shown_(shown) {}

  // outputs = program(inputs), as custom_ops/_runtime/program.h defines it: inputs broadcast to one shape. The last
  // `axes` of it are a row of reductions; with 0 there are none. An output has that shape, or size 1 along the row.
  // An output may lie over an input if both are walked alike and no other input lies there. An input of which only
  // sizes are read does not take part in the broadcast. Throws std::invalid_argument where shapes do not fit.
  void Run(const std::string& program, int axes, const std::vector<View>& inputs, const std::vector<View>& outputs);

  // Starts a compiled kernel on `blocks` blocks; a rehearsal loads it. Throws std::runtime_error where a value does not
  // fit its argument.
  void Start(const CompiledKernel& kernel, int64_t blocks, const Values& values);

  // Whether cuBLASLt does a product instead, as MultiplyByCublasLt says.
  bool Multiply(const Product& product) { return MultiplyByCublasLt(product, *device_, session_); }

  // Device memory, good until what the call has started is done.
  void* Scratch(size_t bytes) { return session_ == nullptr ? Nowhere(kMostOperands) : session_->Scratch(bytes); }

  const Device& device() const { return *device_; }

 private:
  static constexpr size_t kMostOperands = 64;  // of any node

  const Device* device_;
  NodeKernels* kernels_;
  const Session* session_;
  std::vector<Shown>* shown_;
};

struct Form {
  std::string op;
  void (*run)(const Call& call, Queue& queue);  // null for an op whose nodes carry their programs
  // Whether the op has kernels for this device; if not, `*why` says why, and how to get them.
  bool (*exists)(const Device& device, std::string* why);
  bool is_generated;  // all its kernels come of programs
};

// The form of an op, or null.
const Form* FormOf(const std::string& op);

// Makes a form known; a static of each kernel_cuda.cc. Without `exists`: what NVRTC compiles.
struct RegisterCuda {
  RegisterCuda(std::string op, void (*run)(const Call& call, Queue& queue),
               bool (*exists)(const Device& device, std::string* why) = nullptr);
};

}  // namespace onnxfuse::cuda
