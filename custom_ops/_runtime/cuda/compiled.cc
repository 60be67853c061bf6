#include "custom_ops/_runtime/cuda/compiled.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/json.h"
#include "custom_ops/_runtime/cuda/places.h"
#include "custom_ops/_runtime/cuda/sha256.h"
#include "custom_ops/_runtime/providers.h"

namespace onnxfuse::cuda {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSchema = 1;
constexpr int kMostThreads = 1024;
constexpr int64_t kMostScratch = 1 << 16;  // of a block
constexpr int kFirstExactArch = 90;        // from here on the compiler makes code for one architecture alone

bool RunsOn(int built, int device) {
  return built >= kFirstExactArch ? built == device : built / 10 == device / 10 && built <= device;
}

std::string HowToBuild(int arch) { return "`onnxfuse kernels build --arch sm_" + std::to_string(arch) + "`"; }

// The architecture in a name like flash.sm_90.json; 0 where there is none.
int ArchIn(const fs::path& file) {
  if (file.extension() != ".json") return 0;
  const std::string part = file.stem().extension().string();
  return part.rfind(".sm_", 0) == 0 ? std::atoi(part.c_str() + 4) : 0;
}

// The facts that may be of use to a device, by name.
std::vector<fs::path> FactsIn(const fs::path& folder, int arch) {
  std::vector<fs::path> found;
  std::error_code error;  // a folder that is not there, or cannot be read, has none
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (RunsOn(ArchIn(at->path()), arch)) found.push_back(at->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::invalid_argument(path.filename().string() + " cannot be read");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Reads what a word stands for among `words`.
template <typename Enum>
Enum Among(const std::vector<std::string>& words, const std::string& word) {
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end())
    throw std::invalid_argument("'" + Printable(word) + "' is not known to this version of the library");
  return static_cast<Enum>(found - words.begin());
}

class FactsReader {
 public:
  FactsReader(const fs::path& path, const std::vector<std::string>& names) : path_(path), names_(names) {}

  // False where the facts are of a kernel of another op. Throws std::invalid_argument.
  bool Read(const std::string& op, CompiledKernel* kernel) const {
    const Json facts = Json::Parse(ReadAll(path_));
    if (facts.At("schema").Whole() != kSchema) throw std::invalid_argument("its schema is of another version");
    if (facts.At("op").Text() != op) return false;
    kernel->path = fs::path(path_).replace_extension(".cubin").string();
    kernel->digest = facts.At("cubin_sha256").Text();
    kernel->group = facts.At("role").Text();
    for (const auto& [key, value] : facts.At("variant").Members()) kernel->group += " " + key + "=" + value.Text();
    kernel->rank = facts.At("rank").Whole();
    kernel->arch = static_cast<int>(facts.At("arch").Whole());
    kernel->entry = facts.At("entry").Text();
    kernel->threads = static_cast<int>(facts.At("block").Items().at(0).Whole(1, kMostThreads));
    kernel->shared_bytes = static_cast<int>(facts.At("shared").Whole());
    for (const auto& [axis, size] : facts.At("tile").Members()) kernel->tile[axis] = size.Whole(1);
    for (const Json& one : facts.At("arguments").Items()) kernel->arguments.push_back(ReadArgument(one));
    for (const Json& one : facts.At("conditions").Items()) ReadCondition(one, kernel);
    kernel->scratch_bytes = facts.At("scratch").Whole(0, kMostScratch);
    return true;
  }

 private:
  CompiledKernel::Argument ReadArgument(const Json& facts) const {
    const std::string& name = facts.At("name").Text();
    const auto kind = Among<CompiledKernel::Kind>({"pointer", "i32", "i64", "f32"}, facts.At("kind").Text());
    if (name == "global_scratch") return {CompiledKernel::kScratch, kind};
    if (name == "profile_scratch") return {CompiledKernel::kNull, kind};
    return {Among<int>(names_, name), kind};
  }

  void ReadCondition(const Json& facts, CompiledKernel* kernel) const {
    const int name = Among<int>(names_, facts.At("name").Text());
    for (const auto& [key, value] : facts.Members()) {
      if (key == "name") continue;
      const auto test = Among<CompiledKernel::Test>({"align", "max", "min", "equals"}, key);
      const bool is_align = test == CompiledKernel::Test::kAlign;
      kernel->conditions.push_back({name, test, is_align ? static_cast<double>(value.Whole(1)) : value.Real()});
    }
  }

  const fs::path& path_;
  const std::vector<std::string>& names_;
};

// Tells of facts that are of no use, as one warning for a folder.
void TellLeftOut(const fs::path& folder, const std::vector<std::string>& reasons, int arch) {
  if (reasons.empty()) return;
  const std::string count = std::to_string(reasons.size());
  WarnOnce(count + " of the compiled kernels in " + folder.string() + " cannot be used. The first is " + reasons[0] +
           ". Make them anew with " + HowToBuild(arch));
}

// All that run on a device, in the order in which they are found.
std::vector<std::unique_ptr<CompiledKernel>> ReadFolders(const std::string& op, const std::vector<std::string>& names,
                                                         const Device& device) {
  std::vector<std::unique_ptr<CompiledKernel>> found;
  for (const fs::path& folder : KernelFolders()) {
    std::vector<std::string> reasons;
    for (const fs::path& path : FactsIn(folder, device.arch())) {
      try {
        auto kernel = std::make_unique<CompiledKernel>();
        if (!FactsReader(path, names).Read(op, kernel.get())) continue;
        const bool runs = RunsOn(kernel->arch, device.arch()) && kernel->shared_bytes <= device.shared_bytes();
        if (runs) found.push_back(std::move(kernel));
      } catch (const std::exception& error) {
        reasons.push_back(path.filename().string() + ": " + error.what());
      }
    }
    TellLeftOut(folder, reasons, device.arch());
  }
  return found;
}

bool IsBetter(const std::unique_ptr<CompiledKernel>& a, const std::unique_ptr<CompiledKernel>& b) {
  return a->rank != b->rank ? a->rank < b->rank : a->arch > b->arch;
}

}  // namespace

int64_t CompiledKernel::Tile(const char* axis) const {
  const auto found = tile.find(axis);
  return found == tile.end() ? 1 : found->second;
}

bool CompiledKernel::Fits(const Values& values) const {
  return std::all_of(conditions.begin(), conditions.end(), [&](const Condition& condition) {
    const Values::Value& one = values.Of(condition.name);
    const double value = one.is_real ? static_cast<double>(one.real) : static_cast<double>(one.whole);
    switch (condition.test) {
      case Test::kAlign: return one.whole % static_cast<int64_t>(condition.bound) == 0;
      case Test::kMost: return value <= condition.bound;
      case Test::kLeast: return value >= condition.bound;
      case Test::kEquals: return value == condition.bound;
    }
    return false;
  });
}

uint64_t CompiledKernel::WordOf(const Argument& argument, const Values& values) const {
  if (argument.name < 0) return 0;
  const Values::Value& value = values.Of(argument.name);
  uint64_t word = static_cast<uint64_t>(value.whole);
  if (argument.kind == Kind::kInt32 && (value.whole < INT32_MIN || value.whole > INT32_MAX)) {
    throw std::runtime_error("a size or a distance of elements is " + std::to_string(value.whole) +
                             ", which must be below 2^31 on a GPU");
  }
  if (argument.kind == Kind::kFloat) std::memcpy(&word, &value.real, sizeof(value.real));
  return word;
}

const std::string* CompiledKernel::Cubin() const {
  std::call_once(once_, [&] {
    std::ifstream file(path, std::ios::binary);
    cubin_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (Sha256(cubin_) == digest) return;
    cubin_.clear();
    WarnOnce("the compiled kernel " + path + (file ? " has another checksum" : " cannot be read") +
             ". It is left out; make it anew with " + HowToBuild(arch));
  });
  return cubin_.empty() ? nullptr : &cubin_;
}

const CompiledKernels& CompiledKernels::Of(const std::string& op, const std::vector<std::string>& names,
                                           const Device& device) {
  static std::mutex mutex;
  static auto* all = new std::map<std::pair<std::string, int>, std::unique_ptr<CompiledKernels>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<CompiledKernels>& kernels = (*all)[{op, device.arch()}];
  if (kernels != nullptr) return *kernels;
  kernels = std::make_unique<CompiledKernels>();
  for (auto& kernel : ReadFolders(op, names, device)) {
    auto& group = kernels->groups_[kernel->group];
    group.push_back(std::move(kernel));
  }
  for (auto& [name, group] : kernels->groups_) std::stable_sort(group.begin(), group.end(), &IsBetter);
  return *kernels;
}

const CompiledKernel* CompiledKernels::Find(const std::string& group, const Values& values) const {
  return First(group, [&](const CompiledKernel& kernel) { return kernel.Fits(values); });
}

const CompiledKernel* CompiledKernels::FindForAll(const std::string& group) const {
  return First(group, [](const CompiledKernel& kernel) { return kernel.conditions.empty(); });
}

const CompiledKernel& Required(const CompiledKernels& kernels, const std::string& group, const Values& values) {
  const CompiledKernel* found = kernels.Find(group, values);
  if (found == nullptr) throw DeviceError("no compiled kernel is there for " + group);
  return *found;
}

bool AreCompiled(const CompiledKernels& kernels, const std::vector<std::string>& groups, const Device& device,
                 std::string* why) {
  const CompiledKernel* kernel = nullptr;
  for (const std::string& group : groups) {
    kernel = kernels.FindForAll(group);
    if (kernel == nullptr) return *why = "Compile their kernels with " + HowToBuild(device.arch()), false;
  }
  try {
    // One for all: a driver that is too old for what compiled them takes none.
    device.LoadedKernel(*kernel->Cubin(), kernel->digest, kernel->entry, kernel->shared_bytes);
    return true;
  } catch (const DeviceError& error) {
    *why = std::string("Their compiled kernels cannot be loaded (") + error.what() +
           "). Compile them for this driver with " + HowToBuild(device.arch());
    return false;
  }
}

Kernel NodeKernels::Loaded(const CompiledKernel& compiled, const Device& device) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = loaded_.find(&compiled);
    if (found != loaded_.end()) return found->second;
  }
  const Kernel kernel = device.LoadedKernel(*compiled.Cubin(), compiled.digest, compiled.entry, compiled.shared_bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  return loaded_[&compiled] = kernel;
}

void Queue::Start(const CompiledKernel& compiled, int64_t blocks, const Values& values) {
  const Kernel kernel = kernels_->Loaded(compiled, *device_);
  if (session_ == nullptr) return;
  if (blocks > INT32_MAX) {
    throw std::runtime_error(std::to_string(blocks) + " blocks are needed; a kernel starts at most 2^31 - 1");
  }
  std::vector<uint64_t> words(compiled.arguments.size(), 0);
  std::vector<void*> arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = compiled.WordOf(compiled.arguments[i], values);
    if (compiled.arguments[i].name == CompiledKernel::kScratch && compiled.scratch_bytes > 0) {
      words[i] = reinterpret_cast<uintptr_t>(Scratch(static_cast<size_t>(compiled.scratch_bytes * blocks)));
    }
    arguments.push_back(&words[i]);
  }
  Launch launch;
  launch.grid_x = static_cast<unsigned>(blocks);
  launch.threads = static_cast<unsigned>(compiled.threads);
  launch.shared_bytes = static_cast<unsigned>(compiled.shared_bytes);
  device_->Start(kernel, launch, session_->stream(), arguments.data());
}

}  // namespace onnxfuse::cuda
