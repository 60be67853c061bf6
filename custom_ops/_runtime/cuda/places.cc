#include "custom_ops/_runtime/cuda/places.h"

#include <cstdlib>
#include <sstream>

#if !defined(_WIN32)
#include <dlfcn.h>
#endif

namespace onnxfuse::cuda {

namespace fs = std::filesystem;

#if defined(_WIN32)
fs::path OwnFolder() { return {}; }
#else
fs::path OwnFolder() {
  Dl_info info{};
  const bool is_told = dladdr(reinterpret_cast<void*>(&OwnFolder), &info) != 0 && info.dli_fname != nullptr;
  return is_told ? fs::path(info.dli_fname).parent_path() : fs::path();
}
#endif

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path UserCache(const char* name) {
  const std::string cache = Variable("XDG_CACHE_HOME"), home = Variable("HOME"), local = Variable("LOCALAPPDATA");
  if (!cache.empty()) return fs::path(cache) / "onnxfuse" / name;
  if (!home.empty()) return fs::path(home) / ".cache" / "onnxfuse" / name;
  return local.empty() ? fs::path() : fs::path(local) / "onnxfuse" / name;
}

std::vector<fs::path> KernelFolders() {
#if defined(_WIN32)
  constexpr char kBetween = ';';
#else
  constexpr char kBetween = ':';
#endif
  std::vector<fs::path> folders;
  const fs::path own = OwnFolder(), cache = UserCache("kernels");
  if (!own.empty()) folders.push_back(own / "kernels");
  if (!cache.empty()) folders.push_back(cache);
  std::istringstream list(Variable("ONNXFUSE_KERNELS"));
  for (std::string folder; std::getline(list, folder, kBetween);) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  return folders;
}

}  // namespace onnxfuse::cuda
