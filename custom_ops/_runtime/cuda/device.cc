#include "custom_ops/_runtime/cuda/device.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "custom_ops/_runtime/cuda/compile.h"

namespace onnxfuse::cuda {
namespace {

// Makes a context the calling thread's for as long as this lives, where it was not already.
class Current {
 public:
  Current(const Driver& driver, Context context) : driver_(driver) {
    Context now = nullptr;
    driver.Check(driver.CtxGetCurrent(&now), "cuCtxGetCurrent");
    if (now == context) return;
    driver.Check(driver.CtxPushCurrent(context), "cuCtxPushCurrent");
    is_pushed_ = true;
  }
  Current(const Current&) = delete;
  ~Current() {
    Context popped = nullptr;
    if (is_pushed_) driver_.CtxPopCurrent(&popped);
  }

 private:
  const Driver& driver_;
  bool is_pushed_ = false;
};

// Lets this thread load modules while some stream is captured into a graph.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) { driver_.ThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { driver_.ThreadExchangeStreamCaptureMode(&mode_); }

 private:
  const Driver& driver_;
  int mode_ = kCaptureRelaxed;
};

constexpr int kSharedBytesWithoutAsking = 48 * 1024;

Kernel Load(const Driver& driver, Context context, const std::string& image, const std::string& name,
            int shared_bytes) {
  const Current current(driver, context);
  const RelaxedCapture relaxed(driver);
  Module module = nullptr;
  driver.Check(driver.ModuleLoadData(&module, image.c_str()), "cuModuleLoadData");
  Kernel kernel;
  driver.Check(driver.ModuleGetFunction(&kernel.function, module, name.c_str()), "cuModuleGetFunction");
  driver.Check(driver.FuncGetAttribute(&kernel.registers, kNumRegs, kernel.function), "cuFuncGetAttribute");
  driver.Check(driver.FuncGetAttribute(&kernel.local_bytes, kLocalSizeBytes, kernel.function), "cuFuncGetAttribute");
  if (shared_bytes > kSharedBytesWithoutAsking) {
    driver.Check(driver.FuncSetAttribute(kernel.function, kMaxDynamicSharedSizeBytes, shared_bytes),
                 "cuFuncSetAttribute");
  }
  return kernel;
}

// The kernels of all devices. Modules are never unloaded: a graph that was captured holds pointers into them.
struct Loaded {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, Kernel> kernels;
};

Loaded& AllLoaded() {
  static auto* loaded = new Loaded;
  return *loaded;
}

// What `make` gives for a key, made once.
template <typename Make>
Kernel Once(int ordinal, const std::string& key, Make&& make) {
  Loaded& loaded = AllLoaded();
  const std::lock_guard<std::mutex> lock(loaded.mutex);
  const auto place = std::make_pair(ordinal, key);
  const auto found = loaded.kernels.find(place);
  if (found != loaded.kernels.end()) return found->second;
  return loaded.kernels.emplace(place, make()).first->second;
}

}  // namespace

Device::Device(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  int major = 0, minor = 0;
  driver.Check(driver.DeviceGet(&handle_, ordinal), "cuDeviceGet");
  driver.Check(driver.DeviceGetAttribute(&major, kComputeCapabilityMajor, handle_), "cuDeviceGetAttribute");
  driver.Check(driver.DeviceGetAttribute(&minor, kComputeCapabilityMinor, handle_), "cuDeviceGetAttribute");
  driver.Check(driver.DeviceGetAttribute(&multiprocessors_, kMultiprocessorCount, handle_), "cuDeviceGetAttribute");
  driver.Check(driver.DeviceGetAttribute(&shared_bytes_, kMaxSharedMemoryPerBlockOptIn, handle_),
               "cuDeviceGetAttribute");
  std::array<char, 256> name{};
  driver.Check(driver.DeviceGetName(name.data(), static_cast<int>(name.size()), handle_), "cuDeviceGetName");
  arch_ = 10 * major + minor;
  name_ = name.data();
}

Context Device::context() const {
  std::call_once(
      once_, [&] { driver_.Check(driver_.DevicePrimaryCtxRetain(&context_, handle_), "cuDevicePrimaryCtxRetain"); });
  return context_;
}

const Device& Device::Of(int ordinal) {
  static std::mutex mutex;
  static auto* devices = new std::map<int, std::unique_ptr<Device>>;
  std::string why;
  const Driver* driver = FindDriver(&why);
  if (driver == nullptr) throw DeviceError(why);
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Device>& device = (*devices)[ordinal];
  if (device == nullptr) device.reset(new Device(*driver, ordinal));
  return *device;
}

Kernel Device::CompiledKernel(const std::string& source, const std::string& name) const {
  return Once(ordinal_, name + "\n" + source,
              [&] { return Load(driver_, context(), Compile(source, arch_), name, 0); });
}

Kernel Device::LoadedKernel(const std::string& cubin, const std::string& digest, const std::string& name,
                            int shared_bytes) const {
  return Once(ordinal_, name + "\n" + digest, [&] { return Load(driver_, context(), cubin, name, shared_bytes); });
}

void Device::Within(const std::function<void()>& body) const {
  const Current current(driver_, context());
  const RelaxedCapture relaxed(driver_);
  body();
}

void Device::Start(const Kernel& kernel, const Launch& launch, Stream stream, void** arguments) const {
  const Current current(driver_, context());
  driver_.Check(driver_.LaunchKernel(kernel.function, launch.grid_x, launch.grid_y, 1, launch.threads, 1, 1,
                                     launch.shared_bytes, stream, arguments, nullptr),
                "cuLaunchKernel");
}

}  // namespace onnxfuse::cuda
