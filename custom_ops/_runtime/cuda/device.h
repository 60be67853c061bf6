// Devices, and the kernels loaded into them: one module for each text and device, shared by all sessions.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "custom_ops/_runtime/cuda/driver.h"

namespace onnxfuse::cuda {

struct Kernel {
  Function function = nullptr;
  int registers = 0;    // of a thread
  int local_bytes = 0;  // of a thread, where registers did not suffice
};

// One grid of one kernel.
struct Launch {
  unsigned grid_x = 1, grid_y = 1;
  unsigned threads = 256;
  unsigned shared_bytes = 0;  // dynamic
};

// A device by the driver's number, which is the runtime's too. Lives as long as the process.
class Device {
 public:
  // Throws DeviceError where there is none of this number.
  static const Device& Of(int ordinal);

  int ordinal() const { return ordinal_; }
  int arch() const { return arch_; }  // 90: compute capability 9.0
  int multiprocessors() const { return multiprocessors_; }
  int shared_bytes() const { return shared_bytes_; }  // the most that a block can have
  const std::string& name() const { return name_; }

  // The kernel `name` of the text `source`, compiled and loaded where it was not; it stays loaded. Allowed while a
  // stream of the device is captured into a graph. For any number of threads. Throws DeviceError.
  Kernel CompiledKernel(const std::string& source, const std::string& name) const;

  // The kernel `name` of a cubin that `digest` tells from others, likewise; dynamic shared memory up to `shared_bytes`
  // is allowed for.
  Kernel LoadedKernel(const std::string& cubin, const std::string& digest, const std::string& name,
                      int shared_bytes) const;

  // Starts a kernel on a stream of the session, and returns at once. arguments: pointers to their values, in order.
  void Start(const Kernel& kernel, const Launch& launch, Stream stream, void** arguments) const;

  // Calls body where the device's context is the calling thread's, and what loads modules is allowed while a stream is
  // captured.
  void Within(const std::function<void()>& body) const;

 private:
  Device(const Driver& driver, int ordinal);

  // The primary one, which the runtime uses as well; made when the first kernel is loaded.
  Context context() const;

  const Driver& driver_;
  const int ordinal_;
  int handle_ = 0;
  int arch_ = 0;
  int multiprocessors_ = 0;
  int shared_bytes_ = 0;
  std::string name_;
  mutable std::once_flag once_;
  mutable Context context_ = nullptr;
};

}  // namespace onnxfuse::cuda
