#include "custom_ops/_runtime/cuda/compile.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <vector>

#include "custom_ops/_runtime/cuda/driver.h"
#include "custom_ops/_runtime/cuda/places.h"
#include "custom_ops/_runtime/cuda/sha256.h"

#if defined(_WIN32)
#include <process.h>
#define getpid _getpid
#else
#include <unistd.h>
#endif

namespace onnxfuse::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMagic = "onnxfuse kernel 1\n";

// Where compiled kernels are kept; empty for nowhere.
fs::path CacheFolder() {
  const char* wish = std::getenv("ONNXFUSE_CUDA_CACHE");
  return wish != nullptr ? fs::path(wish) : UserCache("cuda");
}

std::optional<std::string> ReadCached(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string whole{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string magic = kMagic;
  const size_t header = magic.size() + 64 + 1;
  if (whole.size() < header || whole.compare(0, magic.size(), magic) != 0) return std::nullopt;
  std::string content = whole.substr(header);
  if (Sha256(content) != whole.substr(magic.size(), 64)) return std::nullopt;
  return content;
}

// The cache is a convenience: a folder that cannot be written costs time, no more.
void WriteCached(const fs::path& path, const std::string& content) {
  static std::atomic<int> count{0};
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path beside = path.string() + "." + std::to_string(getpid()) + "." + std::to_string(count++);
  {
    std::ofstream file(beside, std::ios::binary);
    file << kMagic << Sha256(content) << '\n' << content;
    if (!file.flush()) return (void)fs::remove(beside, error);
  }
  fs::rename(beside, path, error);
  if (error) fs::remove(beside, error);
}

struct Target {
  std::string name;  // sm_90
  bool is_ptx;
};

Target TargetFor(const Nvrtc& nvrtc, int arch) {
  if (std::find(nvrtc.archs.begin(), nvrtc.archs.end(), arch) != nvrtc.archs.end()) {
    return {"sm_" + std::to_string(arch), false};
  }
  return {"compute_" + std::to_string(*std::max_element(nvrtc.archs.begin(), nvrtc.archs.end())), true};
}

// No contraction of a * b + c: results are those of the CPU, and these kernels wait for memory.
std::vector<std::string> OptionsFor(const Target& target) {
  return {"--gpu-architecture=" + target.name, "--std=c++17", "--fmad=false"};
}

std::string LogOf(const Nvrtc& nvrtc, NvrtcProgram program) {
  size_t size = 0;
  if (nvrtc.GetProgramLogSize(program, &size) != 0 || size == 0) return "";
  std::string log(size, '\0');
  if (nvrtc.GetProgramLog(program, log.data()) != 0) return "";
  log.resize(size - 1);
  return log;
}

std::string CodeOf(const Nvrtc& nvrtc, NvrtcProgram program, bool is_ptx) {
  size_t size = 0;
  Result got = is_ptx ? nvrtc.GetPTXSize(program, &size) : nvrtc.GetCUBINSize(program, &size);
  std::string code(size, '\0');
  if (got == 0) got = is_ptx ? nvrtc.GetPTX(program, code.data()) : nvrtc.GetCUBIN(program, code.data());
  if (got != 0) throw DeviceError(std::string("NVRTC gives no code: ") + nvrtc.GetErrorString(got));
  return code;
}

std::string Build(const Nvrtc& nvrtc, const std::string& source, const Target& target) {
  NvrtcProgram program = nullptr;
  Result result = nvrtc.CreateProgram(&program, source.c_str(), "onnxfuse.cu", 0, nullptr, nullptr);
  if (result != 0) throw DeviceError(std::string("NVRTC makes no program: ") + nvrtc.GetErrorString(result));
  struct Closer {
    const Nvrtc& nvrtc;
    NvrtcProgram program;
    ~Closer() { nvrtc.DestroyProgram(&program); }
  } const closer{nvrtc, program};
  const std::vector<std::string> options = OptionsFor(target);
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  result = nvrtc.CompileProgram(program, static_cast<int>(words.size()), words.data());
  if (result != 0) {
    throw DeviceError("NVRTC refuses a kernel for " + target.name + " (" + nvrtc.GetErrorString(result) +
                      "): " + LogOf(nvrtc, program));
  }
  return CodeOf(nvrtc, program, target.is_ptx);
}

}  // namespace

bool CanCompile(int arch, std::string* why) {
  const Nvrtc* nvrtc = FindNvrtc(why);
  if (nvrtc == nullptr) return false;
  const int oldest = *std::min_element(nvrtc->archs.begin(), nvrtc->archs.end());
  if (arch >= oldest) return true;
  *why = nvrtc->path + " compiles for sm_" + std::to_string(oldest) + " and newer, the device is sm_" +
         std::to_string(arch);
  return false;
}

std::string Compile(const std::string& source, int arch) {
  std::string why;
  const Nvrtc* nvrtc = FindNvrtc(&why);
  if (nvrtc == nullptr) throw DeviceError(why);
  const Target target = TargetFor(*nvrtc, arch);
  std::string identity = std::to_string(nvrtc->major) + "." + std::to_string(nvrtc->minor) + "\n";
  for (const std::string& option : OptionsFor(target)) identity += option + "\n";
  const fs::path folder = CacheFolder();
  const fs::path path = folder / (Sha256(identity + source) + (target.is_ptx ? ".ptx" : ".cubin"));
  if (!folder.empty()) {
    std::optional<std::string> kept = ReadCached(path);
    if (kept) return *std::move(kept);
  }
  std::string code = Build(*nvrtc, source, target);
  if (!folder.empty()) WriteCached(path, code);
  return code;
}

}  // namespace onnxfuse::cuda
