// A stand-in for libcublasLt.so.13: products on the CPU, by columns as cuBLASLt counts. What it does goes into the log of
// libcuda.cc, and a call fails where that is told to let it fail.
#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace {

enum Status { kNotSupported = 15, kInvalidValue = 7, kNotInitialized = 1 };

struct Operation {
  int compute, scale;
  int32_t transpose_a = 0;
  uint32_t epilogue = 1;
  const void* bias = nullptr;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
};
struct Preference {
  uint64_t workspace = 0;
  std::map<int, uint32_t> alignments;
};
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
constexpr uint64_t kMark = 0xC0B1A5;
constexpr size_t kWorkspace = 4096;

template <typename Function>
Function Driver(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

int Fails(const char* function) { return Driver<int (*)(const char*)>("fake_cuda_fails")(function); }

// Whether the calling thread has a context; a library of CUDA can do nothing without.
bool HasContext() {
  void* context = nullptr;
  return Driver<int (*)(void**)>("cuCtxGetCurrent")(&context) == 0 && context != nullptr;
}

double Load(const void* memory, uint64_t at, int type) {
  if (type == 0) return static_cast<const float*>(memory)[at];
  if (type == 2) return static_cast<double>(static_cast<const _Float16*>(memory)[at]);
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(memory)[at]) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

void Store(void* memory, uint64_t at, int type, double value) {
  if (type == 0) static_cast<float*>(memory)[at] = static_cast<float>(value);
  if (type == 2) static_cast<_Float16*>(memory)[at] = static_cast<_Float16>(value);
  if (type != 14) return;
  const float narrow = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof(bits));
  static_cast<uint16_t*>(memory)[at] = static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

double Activated(uint32_t epilogue, double v) {
  if ((epilogue & 2) != 0) return v < 0 ? 0 : v;
  if ((epilogue & 32) != 0) return 0.5 * v * (1 + std::tanh(0.79788456080286536 * (v + 0.044715 * v * v * v)));
  return v;
}

bool IsAligned(const Preference& preference, int attribute) {
  const auto found = preference.alignments.find(attribute);
  return found != preference.alignments.end() && found->second > 0 && found->second % 2 == 0;
}

}  // namespace

extern "C" {

int cublasLtCreate(void** handle) {
  if (const int error = Fails("cublasLtCreate")) return error;
  return HasContext() ? (*handle = new int, 0) : kNotInitialized;
}
int cublasLtMatmulDescCreate(Operation** made, int compute, int scale) {
  return *made = new Operation{compute, scale}, 0;
}
int cublasLtMatmulDescDestroy(Operation* operation) { return delete operation, 0; }
int cublasLtMatmulDescSetAttribute(Operation* operation, int attribute, const void* value, size_t size) {
  void* place = attribute == 3   ? static_cast<void*>(&operation->transpose_a)
                : attribute == 7 ? static_cast<void*>(&operation->epilogue)
                                 : static_cast<void*>(&operation->bias);
  const size_t wanted = attribute == 8 ? sizeof(void*) : 4;
  if ((attribute != 3 && attribute != 7 && attribute != 8) || size != wanted) return kInvalidValue;
  return std::memcpy(place, value, size), 0;
}
int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return kInvalidValue;
  return *made = new Layout{type, rows, columns, leading}, 0;
}
int cublasLtMatrixLayoutDestroy(Layout* layout) { return delete layout, 0; }
int cublasLtMatmulPreferenceCreate(Preference** made) { return *made = new Preference, 0; }
int cublasLtMatmulPreferenceDestroy(Preference* preference) { return delete preference, 0; }
int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value, size_t size) {
  if (attribute == 1 && size == 8) return std::memcpy(&preference->workspace, value, size), 0;
  if (attribute < 5 || attribute > 8 || size != 4) return kInvalidValue;
  return std::memcpy(&preference->alignments[attribute], value, size), 0;
}
int cublasLtMatmulAlgoGetHeuristic(void* handle, Operation* operation, Layout* a, Layout* b, Layout* c, Layout* d,
                                   Preference* preference, int wanted, Heuristic* found, int* count) {
  if (const int error = Fails("cublasLtMatmulAlgoGetHeuristic")) return error;
  *count = 0;
  const bool is_turned = operation->transpose_a != 0;
  const uint64_t rows = is_turned ? a->columns : a->rows, depth = is_turned ? a->rows : a->columns;
  const bool fits = rows == d->rows && depth == b->rows && b->columns == d->columns && c->rows == d->rows &&
                    c->columns == d->columns && a->type == b->type && b->type == c->type && c->type == d->type;
  if (handle == nullptr || !HasContext() || wanted != 1 || !fits) return kInvalidValue;
  for (int attribute = 5; attribute <= 8; ++attribute) {
    if (!IsAligned(*preference, attribute)) return kInvalidValue;
  }
  if (operation->compute != 68 || operation->scale != 0 || preference->workspace < kWorkspace) return kNotSupported;
  if (depth % 2 != 0) return 0;  // as if there were no way to do odd ones
  *found = Heuristic{{{kMark}}, kWorkspace, 0, 1.0f, {}};
  return *count = 1, 0;
}
int cublasLtMatmul(void* handle, Operation* operation, const void* alpha, const void* a, Layout* la, const void* b,
                   Layout* lb, const void* beta, const void* c, Layout* lc, void* d, Layout* ld,
                   const Algorithm* algorithm, void* workspace, size_t workspace_bytes, void* stream) {
  if (const int error = Fails("cublasLtMatmul")) return error;
  if (handle == nullptr || !HasContext() || algorithm->data[0] != kMark || workspace_bytes != kWorkspace)
    return kInvalidValue;
  std::memset(workspace, 0xA5, workspace_bytes);
  const uint64_t depth = lb->rows;
  for (uint64_t column = 0; column < ld->columns; ++column) {
    for (uint64_t row = 0; row < ld->rows; ++row) {
      double sum = 0;
      for (uint64_t k = 0; k < depth; ++k) {
        const uint64_t at = operation->transpose_a != 0 ? row * static_cast<uint64_t>(la->leading) + k
                                                        : k * static_cast<uint64_t>(la->leading) + row;
        sum += Load(a, at, la->type) * Load(b, column * static_cast<uint64_t>(lb->leading) + k, lb->type);
      }
      double v = *static_cast<const float*>(alpha) * sum;
      const float factor = *static_cast<const float*>(beta);
      if (factor != 0) v += factor * Load(c, column * static_cast<uint64_t>(lc->leading) + row, lc->type);
      if ((operation->epilogue & 4) != 0) v += Load(operation->bias, row, ld->type);
      Store(d, column * static_cast<uint64_t>(ld->leading) + row, ld->type, Activated(operation->epilogue, v));
    }
  }
  const std::string line = "{\"event\": \"product\", \"epilogue\": " + std::to_string(operation->epilogue) +
                           ", \"stream\": " + std::to_string(reinterpret_cast<size_t>(stream)) + "}\n";
  Driver<void (*)(const char*)>("fake_cuda_note")(line.c_str());
  return 0;
}
}
