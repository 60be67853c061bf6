#include "custom_ops/_runtime/providers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string_view>

#include "custom_ops/_runtime/adapter.h"
#include "custom_ops/_runtime/cuda/device.h"

namespace onnxfuse {
namespace {

// What the session's options say of `key`; false where they say nothing.
bool ConfigEntry(const OrtApi* api, const OrtSessionOptions* options, const char* key, std::string* value) {
  int is_there = 0;
  Check(ort::HasSessionConfigEntry(api)(options, key, &is_there));
  if (is_there == 0) return false;
  size_t size = 0;
  Check(ort::GetSessionConfigEntry(api)(options, key, nullptr, &size));
  value->resize(size);
  Check(ort::GetSessionConfigEntry(api)(options, key, value->data(), &size));
  value->resize(size - 1);  // without the closing 0
  return true;
}

bool HasCudaProvider(const OrtApi* api) {
  char** names = nullptr;
  int count = 0;
  Check(ort::GetAvailableProviders(api)(&names, &count));
  const bool has =
      std::any_of(names, names + count, [](const char* name) { return std::string_view(name) == kCudaProvider; });
  Check(ort::ReleaseAvailableProviders(api)(names, count));
  return has;
}

// The device that `entry` names for CUDA; -1 where it does not name CUDA.
int DeviceIn(const std::string& entry) {
  const size_t at = entry.find(kCudaProvider);
  if (at == std::string::npos) return -1;
  const size_t after = at + std::string_view(kCudaProvider).size();
  return after < entry.size() && entry[after] == ':' ? std::atoi(entry.c_str() + after + 1) : 0;
}

}  // namespace

Target TargetOf(const OrtApi* api, const OrtSessionOptions* options) {
  std::string entry, why;
  const bool is_told = ConfigEntry(api, options, kProvidersEntry, &entry);
  const int device = is_told ? DeviceIn(entry) : HasCudaProvider(api) ? 0 : -1;
  if (device < 0 || (!is_told && cuda::FindDriver(&why) == nullptr)) return {};
  try {
    return {device, cuda::Device::Of(device).arch()};
  } catch (const std::runtime_error& error) {
    const std::string place = cuda::FindDriver(&why) == nullptr ? "" : " on device " + std::to_string(device);
    WarnOnce(std::string("the session asks for ") + kCudaProvider + place + ", but " + error.what() +
             ". Its operators of ai.onnxfuse run on the CPU; mend NVIDIA's driver, or leave that provider out");
    return {};
  }
}

void WarnOnce(const std::string& text) {
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  if (said->insert(text).second) std::fprintf(stderr, "onnxfuse: warning: %s\n", text.c_str());
}

}  // namespace onnxfuse
