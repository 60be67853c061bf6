#include "custom_ops/_runtime/cuda/product.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/measured.h"
#include "custom_ops/_runtime/cuda/places.h"
#include "custom_ops/_runtime/cuda/shared_library.h"
#include "custom_ops/_runtime/providers.h"

namespace onnxfuse::cuda {
namespace {

// The declarations are those of cuBLASLt, version 11 and later; handles are opaque pointers.
using Status = int;  // 0: done
using Handle = struct LtHandle*;
using Operation = struct LtOperation*;
using Layout = struct LtLayout*;
using Preference = struct LtPreference*;
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

enum OperationAttribute : int { kTransposeA = 3, kEpilogue = 7, kBiasPointer = 8 };
enum PreferenceAttribute : int {
  kMostWorkspace = 1,
  kAlignmentA = 5,
  kAlignmentB = 6,
  kAlignmentC = 7,
  kAlignmentD = 8
};
enum Epilogue : uint32_t { kDefault = 1, kRelu = 2, kBias = 4, kGelu = 32 };
constexpr int kComputeFloat = 68;  // sums and products of float
constexpr int kRealFloat = 0, kRealHalf = 2, kRealBFloat16 = 14;
constexpr int32_t kTransposed = 1;
constexpr size_t kMostWorkspaceBytes = 32 << 20;
constexpr uint32_t kMostAlignment = 256;

// X(result, name as exported, member, parameters)
#define ONNXFUSE_CUBLASLT(X)                                                                                     \
  X(Status, cublasLtCreate, Create, (Handle*))                                                                   \
  X(Status, cublasLtMatmulDescCreate, OperationCreate, (Operation*, int, int))                                   \
  X(Status, cublasLtMatmulDescDestroy, OperationDestroy, (Operation))                                            \
  X(Status, cublasLtMatmulDescSetAttribute, OperationSet, (Operation, int, const void*, size_t))                 \
  X(Status, cublasLtMatrixLayoutCreate, LayoutCreate, (Layout*, int, uint64_t, uint64_t, int64_t))               \
  X(Status, cublasLtMatrixLayoutDestroy, LayoutDestroy, (Layout))                                                \
  X(Status, cublasLtMatmulPreferenceCreate, PreferenceCreate, (Preference*))                                     \
  X(Status, cublasLtMatmulPreferenceDestroy, PreferenceDestroy, (Preference))                                    \
  X(Status, cublasLtMatmulPreferenceSetAttribute, PreferenceSet, (Preference, int, const void*, size_t))         \
  X(Status, cublasLtMatmulAlgoGetHeuristic, Heuristics,                                                          \
    (Handle, Operation, Layout, Layout, Layout, Layout, Preference, int, Heuristic*, int*))                      \
  X(Status, cublasLtMatmul, Multiply,                                                                            \
    (Handle, Operation, const void*, const void*, Layout, const void*, Layout, const void*, const void*, Layout, \
     void*, Layout, const Algorithm*, void*, size_t, Stream))

struct CublasLt {
#define ONNXFUSE_CUBLASLT_MEMBER(result, symbol, name, parameters) result(*name) parameters = nullptr;
  ONNXFUSE_CUBLASLT(ONNXFUSE_CUBLASLT_MEMBER)
#undef ONNXFUSE_CUBLASLT_MEMBER
};

// What cuBLASLt refuses.
struct Refusal {
  const char* function;
  Status status;
};

void Check(Status status, const char* function) {
  if (status != 0) throw Refusal{function, status};
}

std::vector<std::string> CublasLtPlaces() {
  const std::string wish = Variable("ONNXFUSE_CUBLASLT");
  if (!wish.empty()) return {wish};
#if defined(_WIN32)
  return {"cublasLt64_13.dll", "cublasLt64_12.dll"};
#else
  // ONNX Runtime's CUDA provider has loaded it by one of these names.
  std::vector<std::string> places = {"libcublasLt.so.13", "libcublasLt.so.12"};
  const std::filesystem::path packages = OwnFolder() / ".." / "..";  // of <packages>/onnxfuse/lib/<this>
  places.push_back((packages / "nvidia/cu13/lib/libcublasLt.so.13").lexically_normal().string());
  places.push_back((packages / "nvidia/cublas/lib/libcublasLt.so.12").lexically_normal().string());
  places.push_back("/usr/local/cuda/lib64/libcublasLt.so");
  return places;
#endif
}

const CublasLt* LoadCublasLt() {
  std::string why;
  for (const std::string& place : CublasLtPlaces()) {
    void* library = OpenLibrary(place, &why);
    if (library == nullptr) continue;
    auto* found = new CublasLt;  // lives as long as the process
    bool is_whole = true;
#define ONNXFUSE_CUBLASLT_FILL(result, symbol, name, parameters)                         \
  found->name = reinterpret_cast<decltype(found->name)>(SymbolOf(library, #symbol));     \
  is_whole = is_whole && found->name != nullptr;
    ONNXFUSE_CUBLASLT(ONNXFUSE_CUBLASLT_FILL)
#undef ONNXFUSE_CUBLASLT_FILL
    if (is_whole) return found;
    why = place + " is too old";
  }
  WarnOnce("cuBLASLt, which ONNXFUSE_LINEAR or measured times ask for, is not found (" + why +
           "). Linear runs by compiled kernels; install NVIDIA's cuBLAS, or name the library in ONNXFUSE_CUBLASLT");
  return nullptr;
}

// Null where it is not there.
const CublasLt* FindCublasLt() {
  static const CublasLt* found = LoadCublasLt();
  return found;
}

bool IsWanted(const Product& p, const Device& device) {
  static const std::string wish = Variable("ONNXFUSE_LINEAR");
  if (wish == "cublaslt" || wish == "compiled") return wish == "cublaslt";
  return MeasuredProducts::Of(device).IsCublasLtFaster(p.type, p.rows, p.columns, p.depth, p.is_transposed);
}

int RealTypeOf(Type type) {
  return type == Type::kFloat16 ? kRealHalf : type == Type::kBFloat16 ? kRealBFloat16 : kRealFloat;
}

uint32_t EpilogueOf(const Product& product) {
  uint32_t epilogue = product.bias != nullptr ? kBias : 0u;
  if (product.activation == Product::Activation::kRelu) epilogue |= kRelu;
  if (product.activation == Product::Activation::kGeluTanh) epilogue |= kGelu;
  return epilogue == 0 ? kDefault : epilogue;
}

// What is added to the product before the rest.
const void* AddedTo(const Product& product) { return product.residual != nullptr ? product.residual : product.y; }

// A product as cuBLASLt is told of it. It counts by columns, so it sees every operand transposed: y' = weight' x'.
class Described {
 public:
  Described(const CublasLt& lt, const Product& p) : lt_(lt) {
    const int type = RealTypeOf(p.type);
    const auto rows = static_cast<uint64_t>(p.rows), columns = static_cast<uint64_t>(p.columns),
               depth = static_cast<uint64_t>(p.depth);
    try {
      Check(lt.OperationCreate(&operation, kComputeFloat, kRealFloat), "cublasLtMatmulDescCreate");
      if (p.is_transposed) Set(kTransposeA, kTransposed);
      Set(kEpilogue, EpilogueOf(p));
      if (p.bias != nullptr) Set(kBiasPointer, p.bias);
      const bool t = p.is_transposed;
      Check(lt.LayoutCreate(&weight, type, t ? depth : columns, t ? columns : depth, t ? p.depth : p.columns), kLayout);
      Check(lt.LayoutCreate(&x, type, depth, rows, p.depth), kLayout);
      Check(lt.LayoutCreate(&y, type, columns, rows, p.columns), kLayout);
    } catch (const Refusal&) {
      Destroy();
      throw;
    }
  }
  Described(const Described&) = delete;
  ~Described() { Destroy(); }

  Operation operation = nullptr;
  Layout weight = nullptr, x = nullptr, y = nullptr;

 private:
  static constexpr const char* kLayout = "cublasLtMatrixLayoutCreate";

  template <typename T>
  void Set(OperationAttribute attribute, const T& value) {
    Check(lt_.OperationSet(operation, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  }

  void Destroy() {
    if (operation != nullptr) lt_.OperationDestroy(operation);
    for (Layout layout : {weight, x, y}) {
      if (layout != nullptr) lt_.LayoutDestroy(layout);
    }
  }

  const CublasLt& lt_;
};

uint32_t AlignmentOf(const void* address) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(address) | kMostAlignment;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

// What the way to do a product depends on, beside its device.
std::vector<int64_t> KeyOf(const Product& p) {
  return {static_cast<int64_t>(p.type),
          p.rows,
          p.columns,
          p.depth,
          p.is_transposed,
          EpilogueOf(p),
          p.residual != nullptr,
          AlignmentOf(p.x),
          AlignmentOf(p.weight),
          AlignmentOf(AddedTo(p)),
          AlignmentOf(p.y)};
}

// The handle of a device, and the ways that were found for products on it; a state that is not 0: there is none.
struct OnDevice {
  std::mutex mutex;
  Handle handle = nullptr;
  std::map<std::vector<int64_t>, Heuristic> ways;
};

OnDevice& OnDeviceOf(int ordinal) {
  static std::mutex mutex;
  static auto* all = new std::map<int, OnDevice>;
  const std::lock_guard<std::mutex> lock(mutex);
  return (*all)[ordinal];
}

Heuristic AskForWay(const CublasLt& lt, Handle handle, const Described& d, const Product& p) {
  struct Owner {
    const CublasLt& lt;
    Preference preference = nullptr;
    ~Owner() {
      if (preference != nullptr) lt.PreferenceDestroy(preference);
    }
  } owner{lt};
  Check(lt.PreferenceCreate(&owner.preference), "cublasLtMatmulPreferenceCreate");
  const auto set = [&](PreferenceAttribute attribute, auto value) {
    Check(lt.PreferenceSet(owner.preference, attribute, &value, sizeof(value)), "cublasLtMatmulPreferenceSetAttribute");
  };
  set(kMostWorkspace, kMostWorkspaceBytes);
  set(kAlignmentA, AlignmentOf(p.weight));
  set(kAlignmentB, AlignmentOf(p.x));
  set(kAlignmentC, AlignmentOf(AddedTo(p)));
  set(kAlignmentD, AlignmentOf(p.y));
  Heuristic way{};
  int count = 0;
  const Status status = lt.Heuristics(handle, d.operation, d.weight, d.x, d.y, d.y, owner.preference, 1, &way, &count);
  if (status != 0 || count == 0) way.state = 1;
  return way;
}

Heuristic WayFor(const CublasLt& lt, OnDevice& on, const Described& d, const Product& p) {
  const std::lock_guard<std::mutex> lock(on.mutex);
  if (on.handle == nullptr) Check(lt.Create(&on.handle), "cublasLtCreate");
  const std::vector<int64_t> key = KeyOf(p);
  const auto found = on.ways.find(key);
  return found != on.ways.end() ? found->second : on.ways.emplace(key, AskForWay(lt, on.handle, d, p)).first->second;
}

bool Multiply(const CublasLt& lt, const Product& p, OnDevice& on, const Session* session) {
  const Described d(lt, p);
  const Heuristic way = WayFor(lt, on, d, p);
  if (way.state != 0 || session == nullptr) return way.state == 0;
  const float beta = p.residual != nullptr ? 1.0f : 0.0f;
  void* workspace = way.workspace_bytes > 0 ? session->Scratch(way.workspace_bytes) : nullptr;
  Check(lt.Multiply(on.handle, d.operation, &p.alpha, p.weight, d.weight, p.x, d.x, &beta, AddedTo(p), d.y, p.y, d.y,
                    &way.algorithm, workspace, way.workspace_bytes, session->stream()),
        "cublasLtMatmul");
  return true;
}

}  // namespace

bool MultiplyByCublasLt(const Product& product, const Device& device, const Session* session) {
  if (product.rows * product.columns * product.depth == 0 || !IsWanted(product, device)) return false;
  const CublasLt* lt = FindCublasLt();
  if (lt == nullptr) return false;
  bool is_done = false;
  try {
    device.Within([&] { is_done = Multiply(*lt, product, OnDeviceOf(device.ordinal()), session); });
  } catch (const Refusal& refusal) {
    WarnOnce(std::string("cuBLASLt: ") + refusal.function + " failed with " + std::to_string(refusal.status) +
             ". What it refuses runs by compiled kernels");
  }
  return is_done;
}

}  // namespace onnxfuse::cuda
