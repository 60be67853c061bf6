// Kernels that `onnxfuse kernels build` compiled before, found in folders: what they are for, what they ask for.
//
// A kernel is two files, NAME.sm_NN.cubin and NAME.sm_NN.json. Folders are looked through in this order: `kernels` beside
// this library, `$XDG_CACHE_HOME/onnxfuse/kernels` (else `~/.cache/onnxfuse/kernels`), each of `$ONNXFUSE_KERNELS`. Of
// kernels that are equally good the nearest to the device counts, and of those the first. What is damaged is left out, and
// told once as a warning.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "custom_ops/_runtime/cuda/device.h"

// Numbers and names of all that the kernels of an op may ask for, as `value::x` and `Names()`, from a list of X(x).
#define ONNXFUSE_KERNEL_VALUES(LIST)                                                        \
  namespace value {                                                                         \
  enum Name : int { LIST(ONNXFUSE_KERNEL_VALUE_NUMBER) };                                   \
  }                                                                                         \
  const std::vector<std::string>& Names() {                                                 \
    static const std::vector<std::string> names = {LIST(ONNXFUSE_KERNEL_VALUE_TEXT)};       \
    return names;                                                                           \
  }
#define ONNXFUSE_KERNEL_VALUE_NUMBER(name) name,
#define ONNXFUSE_KERNEL_VALUE_TEXT(name) #name,

namespace onnxfuse::cuda {

// What a kernel may ask for, by the op's numbers for its names: an address, a whole number, or a float.
class Values {
 public:
  explicit Values(size_t count) : values_(count) {}
  void Set(int name, const void* address) { Set(name, static_cast<int64_t>(reinterpret_cast<uintptr_t>(address))); }
  void Set(int name, int64_t whole) { values_[static_cast<size_t>(name)] = {whole, 0, false}; }
  void Set(int name, float real) { values_[static_cast<size_t>(name)] = {0, real, true}; }

 private:
  friend struct CompiledKernel;
  struct Value {
    int64_t whole = 0;
    float real = 0;
    bool is_real = false;
  };
  const Value& Of(int name) const { return values_[static_cast<size_t>(name)]; }

  std::vector<Value> values_;
};

// A kernel for one architecture.
struct CompiledKernel {
  enum class Kind { kPointer, kInt32, kInt64, kFloat };
  enum class Test { kAlign, kMost, kLeast, kEquals };
  static constexpr int kNull = -1,
                       kScratch = -2;  // names of pointers: always null; to scratch memory, where there is any
  struct Argument {
    int name;
    Kind kind;
  };
  struct Condition {
    int name;
    Test test;
    double bound;
  };

  std::string group;  // role and variant, as in "tile dtype=float mask=none"
  int64_t rank = 0;   // the lower the better
  int arch = 0;
  std::string path, digest, entry;  // path and SHA-256 of the cubin
  int threads = 0, shared_bytes = 0;
  int64_t scratch_bytes = 0;  // of device memory, for each block
  std::map<std::string, int64_t> tile;
  std::vector<Condition> conditions;
  std::vector<Argument> arguments;

  // A size of its tile; 1 where it has none of this name.
  int64_t Tile(const char* axis) const;
  bool Fits(const Values& values) const;
  // The bits of an argument, as many as its kind has. Throws std::runtime_error where they do not suffice.
  uint64_t WordOf(const Argument& argument, const Values& values) const;
  // The machine code, read when it is first asked for; null where it is not what the facts say.
  const std::string* Cubin() const;

 private:
  mutable std::once_flag once_;
  mutable std::string cubin_;  // empty where it is damaged
};

// The kernels of an op for a device.
class CompiledKernels {
 public:
  // names: of the values that its kernels may ask for. Read once for the process.
  static const CompiledKernels& Of(const std::string& op, const std::vector<std::string>& names, const Device& device);

  // The best of a group whose conditions hold; null where there is none.
  const CompiledKernel* Find(const std::string& group, const Values& values) const;
  // The one of a group that takes whatever comes; null where there is none.
  const CompiledKernel* FindForAll(const std::string& group) const;

 private:
  // The first of a group that is whole and for which `holds`; null where there is none.
  template <typename Test>
  const CompiledKernel* First(const std::string& group, const Test& holds) const {
    const auto found = groups_.find(group);
    if (found == groups_.end()) return nullptr;
    for (const auto& kernel : found->second) {
      if (holds(*kernel) && kernel->Cubin() != nullptr) return kernel.get();
    }
    return nullptr;
  }

  std::map<std::string, std::vector<std::unique_ptr<CompiledKernel>>> groups_;  // the best first
};

// The best of a group whose conditions hold. Throws DeviceError where there is none, which no registered op meets.
const CompiledKernel& Required(const CompiledKernels& kernels, const std::string& group, const Values& values);

// Whether kernels for all of `groups` are there, whatever comes, and the driver takes them; if not, `*why` says why and
// how to get them.
bool AreCompiled(const CompiledKernels& kernels, const std::vector<std::string>& groups, const Device& device,
                 std::string* why);

}  // namespace onnxfuse::cuda
