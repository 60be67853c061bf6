// What an op.cc says about its op, and what it sees of one call.
//
// An op.cc fills an OpSpec and registers it with a static `Register`; that is all there is to do. The adapter reads and
// checks attributes, checks the shapes of the inputs against the signature, allocates outputs, and turns what is
// thrown here into an error status that names op and node. See custom_ops/gelu/op.cc for an example.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "custom_ops/_runtime/half.h"
#include "custom_ops/_runtime/parallel.h"
#include "custom_ops/_runtime/signature.h"

namespace onnxfuse {

// Element types, by their ONNX numbers.
enum class Type : int {
  kNone = 0,
  kFloat = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kUInt16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUInt32 = 12,
  kUInt64 = 13,
  kBFloat16 = 16
};

// A type variable of the signature and what it may stand for.
struct TypeVariable {
  std::string name;
  std::vector<Type> types;
};

inline const std::vector<Type>& FloatTypes() {
  static const std::vector<Type> types = {Type::kFloat, Type::kFloat16, Type::kBFloat16};
  return types;
}

// An attribute: its name, the value it has where it is not given, and what is allowed. Make one with Int, Float,
// AnyFloat, Choice.
struct Attribute {
  enum class Kind { kInt, kFloat, kChoice };
  std::string name;
  Kind kind = Kind::kInt;
  int64_t int_default = 0, int_min = 0, int_max = 0;
  float float_default = 0, float_min = 0;  // a float must be finite and at least float_min,
  bool can_be_infinite = false;            // or not NaN
  std::vector<std::string> choices = {};   // the first is the default
};

Attribute Int(std::string name, int64_t value, int64_t min = std::numeric_limits<int64_t>::min(),
              int64_t max = std::numeric_limits<int64_t>::max());
Attribute Float(std::string name, float value, float min = std::numeric_limits<float>::lowest());
Attribute AnyFloat(std::string name, float value);  // infinities too
Attribute Choice(std::string name, std::vector<std::string> choices);

// The value an attribute has in one node; for a Choice, `i` is the index of the choice.
struct AttributeValue {
  int64_t i = 0;
  float f = 0;
};

// An input or output of a call: raw memory, row-major. Absent optional ones have is_given == false.
struct Tensor {
  void* data = nullptr;  // may be null where there are no elements
  bool is_given = false;
  Type type = Type::kNone;
  std::vector<int64_t> shape;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  // The product of sizes begin to end (excluded).
  int64_t Count(int64_t begin, int64_t end) const;
  int64_t Count() const { return Count(0, rank()); }
  // Rows times columns: the last axis, and all before it.
  int64_t Columns() const { return shape.empty() ? 1 : shape.back(); }
  int64_t Rows() const { return Count(0, rank() - 1); }

  // Null where the tensor is absent.
  template <typename T>
  T* As() const {
    return static_cast<T*>(data);
  }
};

struct OpSpec;

// A node's attributes.
class Node {
 public:
  int64_t IntOf(const char* name) const { return Value(name).i; }
  float FloatOf(const char* name) const { return Value(name).f; }
  int64_t ChoiceOf(const char* name) const { return Value(name).i; }

 protected:
  ~Node() = default;
  virtual const AttributeValue& Value(const char* name) const = 0;
};

// One run of a node.
class Call : public Node {
 public:
  virtual const Tensor& Input(size_t index) const = 0;
  // Allocates; is_given is false for an optional output that nobody reads.
  virtual Tensor Output(size_t index) const = 0;
  virtual const ParallelFor& Parallel() const = 0;
  // `bytes` of memory, aligned to 64, that `fill` has written: once for the node where the op's kept_input is a constant
  // of the model, else for this call.
  virtual const void* Kept(size_t bytes, const std::function<void(void*)>& fill) const = 0;

  // Ends the call with an error status: op and node, then the parts, which say what must hold and what came.
  template <typename... Parts>
  [[noreturn]] void Fail(const Parts&... parts) const {
    std::ostringstream text;
    (text << ... << Printable(parts));
    throw std::runtime_error(text.str());
  }

 protected:
  ~Call() = default;

 private:
  static std::string Printable(const std::vector<int64_t>& shape) { return Show(shape); }
  template <typename T>
  static const T& Printable(const T& part) {
    return part;
  }
};

// Pairs (input, output) that may share memory: the kernel has read an element of the input before it writes the same
// element of the output. Pass Inplace<0, 0>::kTable for "output 0 may be written over input 0".
struct InplaceTable {
  size_t (*get)(int** inputs, int** outputs);
};

template <int... kPairs>
struct Inplace {
  static size_t Get(int** inputs, int** outputs) {
    static constexpr size_t kCount = sizeof...(kPairs) / 2;
    static auto columns = [] {
      constexpr int pairs[] = {kPairs...};
      std::array<int, 2 * kCount> result{};
      for (size_t i = 0; i < kCount; ++i) result[i] = pairs[2 * i], result[kCount + i] = pairs[2 * i + 1];
      return result;
    }();
    *inputs = columns.data();
    *outputs = columns.data() + kCount;
    return kCount;
  }
  static constexpr InplaceTable kTable{&Get};
};

struct OpSpec {
  std::string signature;  // as in op.py
  std::vector<TypeVariable> types;
  std::vector<Attribute> attributes;
  // The sizes of all outputs, for an op whose signature cannot say them; sizes that are not known stay unknown. None at
  // all where the inputs do not fit: `compute` then says so.
  std::vector<Dims> (*output_shapes)(const Node& node, const std::vector<Dims>& inputs) = nullptr;
  // Fails where the inputs do not fit in ways that the signature cannot say. Looks at no more than their sizes and types:
  // called before `compute`, on a GPU too, but not where these are what they were in the call before.
  void (*check)(const Call& call) = nullptr;
  void (*compute)(const Call& call) = nullptr;
  // The input that Call::Kept is worked out from.
  int kept_input = -1;
  InplaceTable inplace{nullptr};
  // Names that the op has: Gelu, Gelu_2, ... A model carries one function body for a name, so uses of an op whose bodies
  // differ go by different names (`variant_name` in onnxfuse/op.py); a name that is not registered runs by its body.
  // Each costs a session about 0.1 ms.
  int variants = 6;
};

// Makes an op known to RegisterCustomOps; a static of each op.cc.
struct Register {
  explicit Register(OpSpec spec);
};

// Calls body.operator()<T>() with the C++ type of a floating-point element type.
template <typename Body>
void ForFloatType(Type type, Body&& body) {
  if (type == Type::kFloat) body.template operator()<float>();
  if (type == Type::kFloat16) body.template operator()<Half>();
  if (type == Type::kBFloat16) body.template operator()<BFloat16>();
}

}  // namespace onnxfuse
