// What an op's signature says: `Gelu(x: T[..., n], bias: T[n]?) -> (y: T[..., n])`.
//
// The text is the one in the op's op.py. `T` is a type variable or an ONNX type (`int64`). Names in brackets stand for
// sizes, the same all over the signature; `...` stands for any run of sizes; no brackets: any shape. `?`: may be
// absent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace onnxfuse {

// A size at load time: known, or a symbol of the model, or neither. At run time every size is known.
struct Dim {
  int64_t value = -1;  // -1: not known
  std::string symbol;

  bool IsKnown() const { return value >= 0; }
  bool HasName() const { return value >= 0 || !symbol.empty(); }
};
using Dims = std::vector<Dim>;

struct Param {
  std::string name;
  std::string type;
  std::vector<std::string> dims;
  bool has_dims = false;
  bool is_optional = false;
};

struct Signature {
  std::string name;
  std::vector<Param> inputs;
  std::vector<Param> outputs;

  // Throws std::invalid_argument, which tells the op's author what is wrong with the text.
  static Signature Parse(std::string_view text);
};

// Sizes bound to the names of a signature, input by input.
class Binding {
 public:
  // What is wrong with `dims` for `param`, or "" where they fit what was bound before. Sizes not known fit anything.
  std::string Add(const Param& param, const Dims& dims);

  // The sizes that `param` has, from those bound. False where a name in it is bound to nothing.
  bool Resolve(const Param& param, Dims* dims) const;

 private:
  std::string Bind(const Param& param, const std::string& name, const Dims& part);
  const Dims* Find(const std::string& name) const;

  std::vector<std::pair<std::string, Dims>> bound_;
};

// `[2,seq,64]`.
std::string Show(const Dims& dims);
std::string Show(const std::vector<int64_t>& shape);

}  // namespace onnxfuse
