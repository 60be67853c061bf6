// A stand-in for libcuda.so.1: devices by FAKE_CUDA_DEVICES ("90,80"), launches that are written down and, where the
// module is one of libnvrtc.cc, run on the CPU at once.
//
// fake_cuda_log gives and forgets what was launched, a line of JSON each. fake_cuda_fail lets the next call of a
// function fail. fake_cuda_reverse runs the threads of a block in the other order. A launch is refused where a driver
// would refuse it: in a context that is not current, on another device's stream, with too large a grid.
#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "shim.h"

thread_local ShimState* shim_state;

namespace {

enum Error {
  kInvalidValue = 1,
  kInvalidContext = 201,
  kInvalidImage = 200,
  kNotFound = 500,
  kLaunchFailed = 719,
  kCaptureUnsupported = 900
};

struct Context {
  int device;
};
struct Module {
  Context* context;
  void* library;
  std::string image;
};
struct Function {
  Module* module;
  std::string name;
  unsigned shared = 48 * 1024;  // the most that a launch may ask for
};

struct World {
  std::mutex mutex;
  std::map<int, Context> primary;
  std::map<std::string, int> failing;
  std::string log;
  bool is_reversed = false;
};
World& world() {
  static auto* made = new World;
  return *made;
}

thread_local std::vector<Context*> current;
thread_local int capture_mode = 0;

std::vector<int> Archs() {
  const char* list = std::getenv("FAKE_CUDA_DEVICES");
  std::istringstream text(list != nullptr ? list : "90");
  std::vector<int> archs;
  for (std::string word; std::getline(text, word, ',');) archs.push_back(std::atoi(word.c_str()));
  return archs;
}

// The error that `function` is to fail with this time, or 0.
int Fails(const char* function) {
  const std::lock_guard<std::mutex> lock(world().mutex);
  const int error = world().failing[function];
  world().failing[function] = 0;
  return error;
}

// --- The threads of a block, as fibers of one host thread.

constexpr size_t kStackBytes = 256 * 1024;

struct Fiber {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(kStackBytes);
  ShimIndex index{};
  long block_waits = 0, warp_waits = 0;
  bool is_done = true;
  alignas(16) char given[16];
};

struct Block {
  std::vector<Fiber> fibers;
  ucontext_t scheduler;
  Fiber* now = nullptr;
  ShimState state{};
  void (*run)(void**) = nullptr;
  void** arguments = nullptr;
};
thread_local Block* block = nullptr;

void GiveWay() { swapcontext(&block->now->context, &block->scheduler); }

// Until every fiber of [begin, end) that still runs has come as often as this one.
void Wait(long Fiber::* counter, size_t begin, size_t end) {
  const long mine = ++(block->now->*counter);
  for (;;) {
    bool is_met = true;
    for (size_t i = begin; i < end; ++i)
      is_met = is_met && (block->fibers[i].is_done || block->fibers[i].*counter >= mine);
    if (is_met) return;
    GiveWay();
  }
}

size_t Self() { return static_cast<size_t>(block->now - block->fibers.data()); }
unsigned Lane() { return Self() % 32; }
void WaitBlock() { Wait(&Fiber::block_waits, 0, block->fibers.size()); }
void WaitWarp() { Wait(&Fiber::warp_waits, Self() / 32 * 32, Self() / 32 * 32 + 32); }
void Exchange(const void* mine, void* theirs, unsigned size, unsigned source) {
  std::memcpy(block->now->given, mine, size);
  WaitWarp();
  std::memcpy(theirs, block->fibers[Self() / 32 * 32 + source].given, size);
  WaitWarp();
}

void FiberMain() {
  block->run(block->arguments);
  block->now->is_done = true;
  GiveWay();
}

void RunWaiting(size_t threads, bool is_reversed) {
  for (size_t i = 0; i < threads; ++i) {
    Fiber& fiber = block->fibers[i];
    fiber.block_waits = fiber.warp_waits = 0;
    fiber.is_done = false;
    fiber.index = {static_cast<unsigned>(i), 0, 0};
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &FiberMain, 0);
  }
  for (size_t left = threads; left > 0;) {
    left = 0;
    for (size_t i = 0; i < threads; ++i) {
      Fiber& fiber = block->fibers[is_reversed ? threads - 1 - i : i];
      if (fiber.is_done) continue;
      block->now = &fiber;
      block->state.thread = fiber.index;
      swapcontext(&block->scheduler, &fiber.context);
      left += !fiber.is_done;
    }
  }
}

void RunGrid(Module* module, const std::string& name, unsigned grid_x, unsigned grid_y, unsigned threads,
             void** arguments) {
  static thread_local Block own;
  block = &own;
  own.fibers.resize(threads);
  own.run = reinterpret_cast<void (*)(void**)>(dlsym(module->library, (name + "__run").c_str()));
  own.arguments = arguments;
  own.state.wait_block = &WaitBlock;
  own.state.lane = &Lane;
  own.state.exchange = &Exchange;
  auto set_state = reinterpret_cast<void (*)(ShimState*)>(dlsym(module->library, "shim_set"));
  set_state(&own.state);
  const bool waits = *static_cast<const int*>(dlsym(module->library, (name + "__waits").c_str())) != 0;
  const bool is_reversed = world().is_reversed;
  for (unsigned y = 0; y < grid_y; ++y) {
    for (unsigned x = 0; x < grid_x; ++x) {
      own.state.block = {x, y, 0};
      if (waits) {
        RunWaiting(threads, is_reversed);
        continue;
      }
      for (unsigned i = 0; i < threads; ++i) {
        own.state.thread = {is_reversed ? threads - 1 - i : i, 0, 0};
        own.run(arguments);
      }
    }
  }
}

// Whether a device runs an image: one for its architecture, or before 9.0 for an older one of the same number.
bool RunsOn(const std::string& line, int arch) {
  if (line.compare(0, 8, "FAKE sm_") != 0) return false;
  const int built = std::atoi(line.c_str() + 8);
  return built == arch || (arch < 90 && built / 10 == arch / 10 && built < arch);
}

std::string Hex(const unsigned char* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

// A stand-in of a compiled kernel says the kinds of its arguments, a letter each (p, i, l, f); what the fake NVRTC makes
// has one, of some bytes.
std::string ShownArguments(const Function* function, void** arguments) {
  const auto symbol = [&](const char* what) {
    return dlsym(function->module->library, (function->name + what).c_str());
  };
  const auto* kinds = static_cast<const char*>(symbol("__kinds"));
  if (kinds == nullptr) {
    const auto* size = static_cast<const unsigned*>(symbol("__size"));
    return "\"argument\": \"" + Hex(static_cast<const unsigned char*>(arguments[0]), *size) + "\"";
  }
  std::ostringstream text;
  for (size_t i = 0; kinds[i] != '\0'; ++i) {
    text << (i == 0 ? "" : ", ");
    if (kinds[i] == 'i') text << *static_cast<const int*>(arguments[i]);
    if (kinds[i] == 'f') text << "\"" << *static_cast<const float*>(arguments[i]) << "\"";
    if (kinds[i] == 'p' || kinds[i] == 'l') text << *static_cast<const long long*>(arguments[i]);
  }
  return "\"arguments\": [" + text.str() + "]";
}

}  // namespace

extern "C" {

const char* fake_cuda_log() {
  static std::string given;
  const std::lock_guard<std::mutex> lock(world().mutex);
  given.swap(world().log);
  world().log.clear();
  return given.c_str();
}
void fake_cuda_fail(const char* function, int error) {
  const std::lock_guard<std::mutex> lock(world().mutex);
  world().failing[function] = error;
}
// For other libraries of CUDA.
int fake_cuda_fails(const char* function) { return Fails(function); }
void fake_cuda_note(const char* line) {
  const std::lock_guard<std::mutex> lock(world().mutex);
  world().log += line;
}
void fake_cuda_reverse(int is_reversed) { world().is_reversed = is_reversed != 0; }

int cuInit(unsigned) { return Fails("cuInit"); }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = static_cast<int>(Archs().size()), 0; }
int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= static_cast<int>(Archs().size())) return 101;
  return *device = ordinal, 0;
}
int cuDeviceGetName(char* name, int size, int device) {
  return std::snprintf(name, static_cast<size_t>(size), "Fake GPU %d", device), 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const int arch = Archs().at(static_cast<size_t>(device));
  const int shared = arch == 86 || arch == 89 ? 99 * 1024 : 227 * 1024;
  *value = attribute == 75 ? arch / 10 : attribute == 76 ? arch % 10 : attribute == 16 ? 4 : shared;
  return 0;
}
int cuDevicePrimaryCtxRetain(Context** context, int device) {
  const std::lock_guard<std::mutex> lock(world().mutex);
  return world().primary[device].device = device, *context = &world().primary[device], 0;
}
int cuCtxGetCurrent(Context** context) { return *context = current.empty() ? nullptr : current.back(), 0; }
int cuCtxPushCurrent_v2(Context* context) { return current.push_back(context), 0; }
int cuCtxPopCurrent_v2(Context** context) {
  if (current.empty()) return kInvalidContext;
  return *context = current.back(), current.pop_back(), 0;
}
int cuModuleLoadData(Module** module, const void* image) {
  if (const int error = Fails("cuModuleLoadData")) return error;
  if (capture_mode != 2) return kCaptureUnsupported;  // as if some stream were captured
  if (current.empty()) return kInvalidContext;
  const auto* text = static_cast<const char*>(image);
  if (std::strncmp(text, "FAKE ", 5) != 0) return kInvalidImage;
  const std::string head = text;  // to the end of the first line; the library behind it holds zeros
  const std::string line = head.substr(0, head.find('\n'));
  const int arch = Archs().at(static_cast<size_t>(current.back()->device));
  if (line.compare(0, 13, "FAKE compute_") != 0 && !RunsOn(line, arch)) return kInvalidImage;
  const char* elf = text + line.size() + 1;
  unsigned long long sections = 0;  // an ELF file ends with its section headers
  unsigned short entry = 0, entries = 0;
  std::memcpy(&sections, elf + 0x28, 8);
  std::memcpy(&entry, elf + 0x3A, 2);
  std::memcpy(&entries, elf + 0x3C, 2);
  char path[] = "/tmp/fake_cuda_XXXXXX";
  const int file = mkstemp(path);
  const auto size = static_cast<ssize_t>(sections + 1ull * entry * entries);
  const bool is_written = write(file, elf, static_cast<size_t>(size)) == size;
  close(file);
  void* library = is_written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  std::remove(path);
  if (library == nullptr) return kInvalidImage;
  const std::lock_guard<std::mutex> lock(world().mutex);
  world().log += "{\"event\": \"load\", \"image\": \"" + line.substr(5) + "\"}\n";
  return *module = new Module{current.back(), library, line.substr(5)}, 0;
}
int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  if (dlsym(module->library, (std::string(name) + "__run").c_str()) == nullptr) return kNotFound;
  return *function = new Function{module, name}, 0;
}
int cuFuncGetAttribute(int* value, int attribute, Function*) { return *value = attribute == 4 ? 32 : 0, 0; }
int cuFuncSetAttribute(Function* function, int attribute, int value) {
  int most = 0;
  cuDeviceGetAttribute(&most, 97, function->module->context->device);
  if (attribute != 8 || value > most) return kInvalidValue;
  return function->shared = static_cast<unsigned>(value), 0;
}
int cuLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads, unsigned y,
                   unsigned z, unsigned shared, void* stream, void** arguments, void** extra) {
  if (const int error = Fails("cuLaunchKernel")) return error;
  Module* module = function->module;
  if (current.empty() || current.back() != module->context) return kInvalidContext;
  // The tests' runtime gives device d the stream 0x5000 + d.
  if (reinterpret_cast<size_t>(stream) != 0x5000u + static_cast<size_t>(module->context->device)) return 400;
  const bool is_grid = grid_x > 0 && grid_x <= 0x7FFFFFFFu && grid_y > 0 && grid_y <= 65535u && grid_z == 1;
  if (!is_grid || threads == 0 || threads > 1024 || y != 1 || z != 1 || extra != nullptr) return kInvalidValue;
  if (shared > function->shared) return kInvalidValue;
  std::ostringstream line;
  line << "{\"event\": \"launch\", \"device\": " << module->context->device << ", \"image\": \"" << module->image
       << "\", \"kernel\": \"" << function->name << "\", \"grid\": [" << grid_x << ", " << grid_y
       << "], \"threads\": " << threads << ", \"shared\": " << shared
       << ", \"stream\": " << reinterpret_cast<size_t>(stream) << ", " << ShownArguments(function, arguments) << "}\n";
  {
    const std::lock_guard<std::mutex> lock(world().mutex);
    world().log += line.str();
  }
  RunGrid(module, function->name, grid_x, grid_y, threads, arguments);
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  const int before = capture_mode;
  return capture_mode = *mode, *mode = before, 0;
}
int cuGetErrorName(int error, const char** name) {
  *name = error == kLaunchFailed     ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT"
                                     : "CUDA_ERROR";
  return 0;
}
int cuGetErrorString(int, const char** text) { return *text = "said by the fake driver", 0; }
}
