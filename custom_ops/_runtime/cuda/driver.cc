#include "custom_ops/_runtime/cuda/driver.h"

#include <filesystem>
#include <mutex>

#include "custom_ops/_runtime/cuda/places.h"
#include "custom_ops/_runtime/cuda/shared_library.h"

namespace onnxfuse::cuda {
namespace {

#if defined(_WIN32)
constexpr const char* kDriverName = "nvcuda.dll";
const std::vector<std::string> kNvrtcNames = {"nvrtc64_130_0.dll", "nvrtc64_120_0.dll"};
#else
constexpr const char* kDriverName = "libcuda.so.1";
const std::vector<std::string> kNvrtcNames = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
#endif

// Sets every function of a table; false, with the name of the first that is missing, where one is.
bool Fill(Driver* driver, void* library, std::string* why) {
#define ONNXFUSE_CUDA_FILL(result, symbol, name, parameters)                             \
  driver->name = reinterpret_cast<decltype(driver->name)>(SymbolOf(library, #symbol));     \
  if (driver->name == nullptr) return *why = "the CUDA driver has no " #symbol ", it is too old", false;
  ONNXFUSE_CUDA_DRIVER(ONNXFUSE_CUDA_FILL)
#undef ONNXFUSE_CUDA_FILL
  return true;
}

bool Fill(Nvrtc* nvrtc, void* library, std::string* why) {
#define ONNXFUSE_CUDA_FILL(result, symbol, name, parameters)                           \
  nvrtc->name = reinterpret_cast<decltype(nvrtc->name)>(SymbolOf(library, #symbol));     \
  if (nvrtc->name == nullptr) return *why = nvrtc->path + " has no " #symbol ", it is too old", false;
  ONNXFUSE_CUDA_NVRTC(ONNXFUSE_CUDA_FILL)
#undef ONNXFUSE_CUDA_FILL
  return true;
}

const Driver* LoadDriver(std::string* why) {
  void* library = OpenLibrary(kDriverName, why);
  if (library == nullptr) return nullptr;
  auto* driver = new Driver;  // lives as long as the process
  if (!Fill(driver, library, why)) return nullptr;
  const Result started = driver->Init(0);
  const char* name = "an unknown error";
  if (started != 0) driver->GetErrorName(started, &name);
  if (started != 0) return *why = std::string("the CUDA driver does not start: ") + name, nullptr;
  if (driver->DriverGetVersion(&driver->version) != 0 || driver->DeviceGetCount(&driver->device_count) != 0 ||
      driver->device_count == 0) {
    return *why = "the CUDA driver shows no device", nullptr;
  }
  return driver;
}

// Where NVRTC may lie: what the user names, what the system finds, the wheels of NVIDIA beside this library, a toolkit.
std::vector<std::string> NvrtcPlaces() {
  namespace fs = std::filesystem;
  const std::string wish = Variable("ONNXFUSE_NVRTC");
  if (!wish.empty()) return {wish};
  std::vector<std::string> places = kNvrtcNames;
  const fs::path packages = OwnFolder() / ".." / "..";  // of <packages>/onnxfuse/lib/<this>
  for (const char* wheel : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cuda_nvrtc/bin"}) {
    for (const std::string& name : kNvrtcNames) places.push_back((packages / wheel / name).lexically_normal().string());
  }
  places.push_back("/usr/local/cuda/lib64/libnvrtc.so");
  return places;
}

bool Start(Nvrtc* nvrtc, int driver_version, std::string* why) {
  int count = 0;
  if (nvrtc->Version(&nvrtc->major, &nvrtc->minor) != 0 || nvrtc->GetNumSupportedArchs(&count) != 0) {
    return *why = nvrtc->path + " does not start", false;
  }
  nvrtc->archs.resize(static_cast<size_t>(count));
  if (nvrtc->GetSupportedArchs(nvrtc->archs.data()) != 0) return *why = nvrtc->path + " does not start", false;
  if (nvrtc->major > driver_version / 1000) {
    *why = nvrtc->path + " is of CUDA " + std::to_string(nvrtc->major) + ", the driver of CUDA " +
           std::to_string(driver_version / 1000);
    return false;
  }
  return true;
}

const Nvrtc* LoadNvrtc(std::string* why) {
  std::string no_driver, last;
  const Driver* driver = FindDriver(&no_driver);
  if (driver == nullptr) return *why = no_driver, nullptr;
  *why = "";
  for (const std::string& place : NvrtcPlaces()) {
    void* library = OpenLibrary(place, &last);
    if (library == nullptr) continue;
    auto* nvrtc = new Nvrtc;  // lives as long as the process
    nvrtc->path = place;
    if (Fill(nvrtc, library, why) && Start(nvrtc, driver->version, why)) return nvrtc;
  }
  if (why->empty()) *why = "NVRTC is not found (" + last + ")";
  return nullptr;
}

// What is looked for once, and why it was not found.
template <typename T>
struct Found {
  std::once_flag once;
  const T* value = nullptr;
  std::string why;

  const T* Get(const T* (*load)(std::string*), std::string* reason) {
    std::call_once(once, [&] { value = load(&why); });
    *reason = why;
    return value;
  }
};

}  // namespace

void Driver::Check(Result result, const char* what) const {
  if (result == 0) return;
  const char *name = "unknown", *text = "";
  GetErrorName(result, &name);
  GetErrorString(result, &text);
  throw DeviceError(std::string("CUDA driver: ") + what + " failed with " + name + " (" + std::to_string(result) +
                    "): " + text);
}

const Driver* FindDriver(std::string* why) {
  static auto* found = new Found<Driver>;
  return found->Get(&LoadDriver, why);
}

const Nvrtc* FindNvrtc(std::string* why) {
  static auto* found = new Found<Nvrtc>;
  return found->Get(&LoadNvrtc, why);
}

}  // namespace onnxfuse::cuda
