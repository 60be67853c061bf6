#include "custom_ops/_runtime/cuda/generate.h"

#include <algorithm>
#include <sstream>

#include "custom_ops/_runtime/cuda/expression.h"
#include "custom_ops/_runtime/cuda/passes.h"
#include "custom_ops/_runtime/cuda/prelude.h"

namespace onnxfuse::cuda {
namespace {

std::string Number(size_t number) { return std::to_string(number); }

class Writer {
 public:
  Writer(const Program& program, const Variant& variant)
      : program_(program), variant_(variant), passes_(program, variant.walks) {}

  std::string Text() {
    text_ << kPrelude << "\ntypedef " << (variant_.is_wide ? "uint64" : "uint32") << " Index;\n";
    WriteParameters();
    if (variant_.is_flat) {
      WriteFlatKernel();
    } else if (variant_.is_split) {
      for (int pass = 0; pass < passes_.count; ++pass) WriteSplitKernel(pass);
    } else {
      WriteRowKernel();
    }
    return text_.str();
  }

 private:
  size_t OperandCount() const { return variant_.walks.size(); }
  size_t AxisCount() const { return variant_.row_axes + variant_.column_axes; }
  bool IsOutput(size_t operand) const { return operand >= program_.inputs.size(); }
  int ResultOf(size_t operand) const { return program_.results[operand - program_.inputs.size()]; }
  Type TypeOf(size_t operand) const {
    return IsOutput(operand) ? program_.TypeOf(ResultOf(operand)) : program_.inputs[operand];
  }
  std::string Name(int value) const { return NameOfValue(program_, value); }
  std::string Vector(size_t operand) const {
    return std::string("Vector<") + StorageOf(TypeOf(operand)) + ", " + std::to_string(variant_.vector) + ">";
  }

  template <typename... Parts>
  void Line(int depth, const Parts&... parts) {
    text_ << std::string(static_cast<size_t>(2 * depth), ' ');
    (text_ << ... << parts) << "\n";
  }

  void WriteParameters() {
    Line(0, "struct Parameters {");
    Line(1, "int64 rows, columns, chunks, chunk;");
    Line(1, "int64 size[", AxisCount(), "], step[", OperandCount(), "][", AxisCount(), "];");
    if (const size_t count = DimsOf(program_).size(); count > 0) Line(1, "int64 dims[", count, "];");
    if (const size_t count = program_.joins.size(); count > 0)
      Line(1, "int64 starts[", count, "][", Program::kMostPieces + 1, "];");
    Line(1, "void* data[", OperandCount(), "];");
    Line(1, "void* scratch;");
    Line(0, "};\n");
    for (size_t i = 0; i < program_.joins.size(); ++i) WriteJoin(i);
  }

  // Join<operand>: where the element at an offset of what is joined lies, in the turn of one of its pieces.
  void WriteJoin(size_t number) {
    const Join& join = program_.joins[number];
    const size_t operand = program_.GivenCount() + number;
    const std::string type = std::string("const ") + StorageOf(TypeOf(operand)) + "*";
    auto start = [&](size_t piece) { return "(Index)p.starts[" + Number(number) + "][" + Number(piece) + "]"; };
    Line(0, "DEVICE ", type, " Join", operand, "(const Parameters& p, Index offset) {");
    Line(1, "const Index end = ", start(join.pieces.size()), ", turn = offset / end, at = offset % end;");
    for (size_t piece = 0; piece < join.pieces.size(); ++piece) {
      const std::string from = start(piece), to = start(piece + 1);
      const std::string condition = piece + 1 < join.pieces.size() ? "if (at < " + to + ") " : "";
      Line(1, condition, "return (", type, ")p.data[", join.pieces[piece], "] + turn * (", to, " - ", from,
           ") + (at - ", from, ");");
    }
    Line(0, "}\n");
  }

  void Head(const std::string& name) {
    Line(0, "extern \"C\" __global__ void __launch_bounds__(", kBlockThreads, ", 1) ", name, "(const Parameters p) {");
  }

  // i<axis> for axes begin to end, from the variable `counter`, whose last axis has `scale` elements to a count.
  void WriteIndices(int depth, const std::string& counter, size_t begin, size_t end) {
    if (end - begin == 1) return Line(depth, "const Index i", begin, " = ", counter, ";");
    const std::string rest = "rest" + Number(begin);
    Line(depth, "Index ", rest, " = ", counter, ";");
    for (size_t axis = end - 1; axis > begin; --axis) {
      const std::string size = "(Index)p.size[" + Number(axis) + "]";
      Line(depth, "const Index i", axis, " = ", rest, " % ", size, ";");
      Line(depth, rest, " /= ", size, ";");
    }
    Line(depth, "const Index i", begin, " = ", rest, ";");
  }

  std::string Offset(size_t operand, size_t begin, size_t end) const {
    std::string text;
    for (size_t axis = begin; axis < end; ++axis) {
      text += (text.empty() ? "i" : " + i") + Number(axis);
      const bool is_next = axis + 1 == AxisCount() && variant_.walks[operand] == Walk::kVector;
      if (!is_next) text += " * (Index)p.step[" + Number(operand) + "][" + Number(axis) + "]";
    }
    return text;
  }

  bool IsJoin(size_t operand) const { return !IsOutput(operand) && program_.IsJoin(operand); }

  // d<operand>: where the row starts in each operand; of what is joined, how far from its first element.
  void WriteBases(int depth, bool has_rows) {
    for (size_t operand = 0; operand < OperandCount(); ++operand) {
      if (IsJoin(operand)) {
        Line(depth, "const Index d", operand, " = ", has_rows ? Offset(operand, 0, variant_.row_axes) : "0", ";");
        continue;
      }
      const std::string type = std::string(IsOutput(operand) ? "" : "const ") + StorageOf(TypeOf(operand)) + "*";
      Line(depth, type, " const d", operand, " = (", type, ")p.data[", operand, "]",
           has_rows ? " + (" + Offset(operand, 0, variant_.row_axes) + ")" : "", ";");
    }
  }

  // An element of storage as a value.
  std::string Value(size_t operand, const std::string& stored) const {
    const Type type = TypeOf(operand);
    if (type == Type::kFloat16 || type == Type::kBFloat16) return "Widen(" + stored + ")";
    return type == Type::kBool ? stored + " != 0" : stored;
  }

  // The value of an output as an element of storage.
  std::string Stored(size_t operand) const {
    const int value = ResultOf(operand);
    const Type type = TypeOf(operand);
    if (NarrowingTo(type) == nullptr) return (type == Type::kBool ? "(uint8)" : "") + Name(value);
    return program_.IsInput(value) ? std::string(NarrowingTo(type)) + "(" + Name(value) + ")" : "h" + Name(value);
  }

  // A value from an expression. One of a 16-bit float type is rounded, and is there in its type too, as h<name>.
  void Define(int depth, int value, const std::string& expression) {
    const Type type = program_.TypeOf(value);
    const bool is_rounded = NarrowingTo(type) != nullptr && !program_.IsInput(value);
    if (is_rounded)
      Line(depth, "const ", StorageOf(type), " h", Name(value), " = ", NarrowingTo(type), "(", expression, ");");
    Line(depth, "const ", ValueTypeOf(type), " ", Name(value), " = ",
         is_rounded ? "Widen(h" + Name(value) + ")" : expression, ";");
  }

  // Values that are one for the row and can be had from pass `pass` on, but for reductions. The inputs among them are
  // read where `guard` holds.
  void WriteOnceValues(int depth, int pass, const std::string& guard) {
    for (int value = 0; value < program_.ValueCount(); ++value) {
      const auto at = static_cast<size_t>(value);
      if (!passes_.is_once[at] || !passes_.is_read[at] || passes_.of[at] != pass) continue;
      if (program_.IsInput(value)) {
        const std::string stored =
            Value(at, IsJoin(at) ? "*Join" + Number(at) + "(p, d" + Number(at) + ")" : "d" + Number(at) + "[0]");
        Define(depth, value,
               guard.empty() ? stored : guard + " ? " + stored + " : " + ValueTypeOf(program_.TypeOf(value)) + "()");
      } else if (program_.StepOf(value).primitive == Primitive::kDim) {
        const std::vector<int> dims = DimsOf(program_);
        const auto number = std::find(dims.begin(), dims.end(), value) - dims.begin();
        Define(depth, value, "p.dims[" + std::to_string(number) + "]");
      } else if (!IsReduction(program_.StepOf(value).primitive)) {
        Define(depth, value, ExpressionOf(program_, value));
      }
    }
  }

  // a<operand>: the vector, or the one element, of each input among `values`.
  void WriteLoads(int depth, const std::vector<int>& values, const std::string& guard) {
    for (const int value : values) {
      if (!program_.IsInput(value)) continue;
      const auto operand = static_cast<size_t>(value);
      const bool is_vector = variant_.walks[operand] == Walk::kVector;
      const std::string type = is_vector ? Vector(operand) : StorageOf(TypeOf(operand));
      const std::string place = "d" + Number(operand) + " + (" + Offset(operand, variant_.row_axes, AxisCount()) + ")";
      Line(depth, type, " a", operand, "{};");
      if (IsJoin(operand)) {
        Line(depth, guard, "a", operand, " = *Join", operand, "(p, ", place, ");");
      } else {
        Line(depth, guard, "a", operand, " = *(const ", type, "*)(", place, ");");
      }
    }
  }

  void WriteElementValues(int depth, const std::vector<int>& values) {
    for (const int value : values) {
      const auto at = static_cast<size_t>(value);
      if (!program_.IsInput(value)) {
        Define(depth, value, ExpressionOf(program_, value));
      } else {
        const bool is_vector = variant_.walks[at] == Walk::kVector;
        Define(depth, value, Value(at, "a" + Number(at) + (is_vector ? ".v[e]" : "")));
      }
    }
  }

  std::vector<size_t> ElementOutputs() const {
    std::vector<size_t> found;
    for (size_t operand = program_.inputs.size(); operand < OperandCount(); ++operand) {
      if (variant_.walks[operand] != Walk::kRow) found.push_back(operand);
    }
    return found;
  }

  void WriteStores(int depth, const std::string& guard) {
    for (const size_t operand : ElementOutputs()) {
      Line(depth, guard, "*(", Vector(operand), "*)(d", operand, " + (",
           Offset(operand, variant_.row_axes, AxisCount()), ")) = o", operand, ";");
    }
  }

  void WriteRowStores(int depth, const std::string& guard) {
    for (size_t operand = program_.inputs.size(); operand < OperandCount(); ++operand) {
      if (variant_.walks[operand] != Walk::kRow) continue;
      Line(depth, guard, "d", operand, "[0] = ", Stored(operand), ";");
    }
  }

  void WriteOutputVectors(int depth) {
    for (const size_t operand : ElementOutputs()) Line(depth, Vector(operand), " o", operand, ";");
  }

  void WriteOutputElements(int depth) {
    for (const size_t operand : ElementOutputs()) {
      Line(depth, "o", operand, ".v[e] = ", Stored(operand), ";");
    }
  }

  // One vector of a row in pass `pass`: reads, computes, adds to the reductions, keeps or stores.
  void WriteVector(int depth, int pass, bool is_kept, const std::string& guard) {
    const bool is_last = pass + 1 == passes_.count;
    const std::vector<int> values = passes_.ElementsIn(pass, is_kept);
    WriteLoads(depth, values, guard);
    if (is_last) WriteOutputVectors(depth);
    Line(0, "#pragma unroll");
    Line(depth, "for (int e = 0; e < ", variant_.vector, "; ++e) {");
    for (int earlier = 0; is_kept && earlier < pass; ++earlier) {
      for (const int value : passes_.KeptAfter(earlier)) {
        if (IsUsedIn(pass, value)) Define(depth + 1, value, "k" + Name(value) + "[" + KeptPlace() + "]");
      }
    }
    WriteElementValues(depth + 1, values);
    for (const int value : is_kept ? passes_.KeptAfter(pass) : std::vector<int>()) {
      Line(depth + 1, "k", Name(value), "[", KeptPlace(), "] = ", Name(value), ";");
    }
    for (const int value : passes_.ReductionsIn(pass)) {
      const Step& step = program_.StepOf(value);
      const std::string part = "r" + Name(value);
      Line(depth + 1, guard, part, " = ", With(ReductionOf(step).next, part, Name(step.arguments[0])), ";");
    }
    if (is_last) WriteOutputElements(depth + 1);
    Line(depth, "}");
    if (is_last) WriteStores(depth, guard);
  }

  std::string KeptPlace() const { return "k * " + std::to_string(variant_.vector) + " + e"; }

  bool IsUsedIn(int pass, int value) const {
    for (const int other : passes_.ElementsIn(pass, true)) {
      if (program_.IsInput(other)) continue;
      const std::vector<int>& arguments = program_.StepOf(other).arguments;
      if (std::find(arguments.begin(), arguments.end(), value) != arguments.end()) return true;
    }
    for (const int reduction : passes_.ReductionsIn(pass)) {
      if (program_.StepOf(reduction).arguments[0] == value) return true;
    }
    if (pass + 1 != passes_.count) return false;
    const std::vector<size_t> outputs = ElementOutputs();
    return std::any_of(outputs.begin(), outputs.end(), [&](size_t operand) { return ResultOf(operand) == value; });
  }

  void WriteFlatKernel() {
    Head("fused");
    Line(1, "const Index column = ((Index)blockIdx.x * ", kBlockThreads, " + threadIdx.x) * ", variant_.vector, ";");
    Line(1, "if (column >= (Index)p.columns) return;");
    WriteIndices(1, "column", variant_.row_axes, AxisCount());
    WriteBases(1, false);
    WriteOnceValues(1, 0, "");
    if (!ElementOutputs().empty()) WriteVector(1, 0, false, "");
    WriteRowStores(1, "");
    Line(0, "}");
  }

  // Reductions begin: their parts, and the memory through which the warps of a block exchange them.
  void WriteReductionStarts(int pass) {
    for (const int value : passes_.ReductionsIn(pass)) {
      const Reduction reduction = ReductionOf(program_.StepOf(value));
      Line(1, reduction.type, " r", Name(value), " = ", reduction.start, ";");
      if (variant_.threads > 32)
        Line(1, "__shared__ ", reduction.type, " s", Name(value), "[", variant_.threads / 32, "];");
    }
  }

  void WriteTogether(int pass) {
    for (const int value : passes_.ReductionsIn(pass)) {
      const Reduction reduction = ReductionOf(program_.StepOf(value));
      const std::string shared = variant_.threads > 32 ? "s" + Name(value) : std::string("(") + reduction.type + "*)0";
      Line(1, "r", Name(value), " = Together<", reduction.operation, ", ", variant_.threads, ">(r", Name(value), ", ",
           shared, ");");
    }
  }

  void WriteFinishes(int pass) {
    for (const int value : passes_.ReductionsIn(pass)) {
      const Reduction reduction = ReductionOf(program_.StepOf(value));
      Define(1, value, With(reduction.finish, "r" + Name(value), ""));
    }
  }

  bool HasWork(int pass) const {
    return !passes_.ReductionsIn(pass).empty() || (pass + 1 == passes_.count && !ElementOutputs().empty());
  }

  void WriteKeptArrays(int pass) {
    for (const int value : passes_.KeptAfter(pass)) {
      Line(1, ValueTypeOf(program_.TypeOf(value)), " k", Name(value), "[", variant_.kept * variant_.vector, "];");
    }
  }

  void WriteRowPass(int pass) {
    const std::string vector = std::to_string(variant_.vector), threads = std::to_string(variant_.threads);
    if (variant_.kept > 0) {
      WriteKeptArrays(pass);
      Line(0, "#pragma unroll");
      Line(1, "for (int k = 0; k < ", variant_.kept, "; ++k) {");
      Line(2, "const Index column = (lane + k * ", threads, ") * ", vector, ";");
    } else {
      Line(1, "for (Index column = lane * ", vector, "; column < (Index)p.columns; column += ", threads, " * ", vector,
           ") {");
    }
    Line(2, "const bool is_in = is_row && column < (Index)p.columns;");
    WriteIndices(2, "column", variant_.row_axes, AxisCount());
    WriteVector(2, pass, variant_.kept > 0, "if (is_in) ");
    Line(1, "}");
  }

  void WriteRowKernel() {
    Head("fused");
    const int rows_of_block = kBlockThreads / variant_.threads;
    Line(1, "const Index row = (Index)blockIdx.x * ", rows_of_block, " + threadIdx.x / ", variant_.threads, ";");
    Line(1, "const Index lane = threadIdx.x % ", variant_.threads, ";");
    Line(1, "const bool is_row = row < (Index)p.rows;");
    WriteIndices(1, "row", 0, variant_.row_axes);
    WriteBases(1, true);
    for (int pass = 0; pass < passes_.count; ++pass) {
      WriteOnceValues(1, pass, "is_row");
      WriteReductionStarts(pass);
      if (HasWork(pass)) WriteRowPass(pass);
      WriteTogether(pass);
      WriteFinishes(pass);
    }
    WriteRowStores(1, "if (is_row && lane == 0) ");
    Line(0, "}");
  }

  // The parts of a reduction that the blocks of a row left in scratch memory.
  std::string Slot(int value, const std::string& chunk) const {
    int number = 0;
    for (int other = program_.InputCount(); other < value; ++other)
      number += IsReduction(program_.StepOf(other).primitive);
    return std::string("*(") + ReductionOf(program_.StepOf(value)).type + "*)((char*)p.scratch + ((" +
           std::to_string(number) + " * p.rows + row) * p.chunks + " + chunk + ") * 8)";
  }

  void WriteSplitKernel(int pass) {
    const std::string vector = std::to_string(variant_.vector);
    Head("fused_" + std::to_string(pass));
    Line(1, "const Index row = blockIdx.y, lane = threadIdx.x;");
    WriteIndices(1, "row", 0, variant_.row_axes);
    WriteBases(1, true);
    for (int earlier = 0; earlier <= pass; ++earlier) {
      WriteOnceValues(1, earlier, "");
      if (earlier == pass) break;
      for (const int value : passes_.ReductionsIn(earlier)) {
        const Reduction reduction = ReductionOf(program_.StepOf(value));
        Line(1, reduction.type, " r", Name(value), " = ", reduction.start, ";");
        Line(1, "for (int64 part = 0; part < p.chunks; ++part) r", Name(value), " = ", reduction.operation, "::Of(r",
             Name(value), ", ", Slot(value, "part"), ");");
      }
      WriteFinishes(earlier);
    }
    WriteReductionStarts(pass);
    if (HasWork(pass)) {
      Line(1,
           "const int64 end = ((int64)blockIdx.x + 1) * p.chunk < p.columns ? ((int64)blockIdx.x + 1) * p.chunk : "
           "p.columns;");
      Line(1, "for (Index column = (Index)(blockIdx.x * p.chunk) + lane * ", vector,
           "; column < (Index)end; column += ", kBlockThreads, " * ", vector, ") {");
      WriteIndices(2, "column", variant_.row_axes, AxisCount());
      WriteVector(2, pass, false, "");
      Line(1, "}");
    }
    WriteTogether(pass);
    for (const int value : passes_.ReductionsIn(pass)) {
      Line(1, "if (lane == 0) ", Slot(value, "blockIdx.x"), " = r", Name(value), ";");
    }
    if (pass + 1 == passes_.count) WriteRowStores(1, "if (lane == 0 && blockIdx.x == 0) ");
    Line(0, "}\n");
  }

  const Program& program_;
  const Variant& variant_;
  const Passes passes_;
  std::ostringstream text_;
};

}  // namespace

std::string Variant::Key() const {
  std::string key = {is_flat ? 'f' : is_split ? 's' : 'r', is_wide ? 'w' : 'n'};
  for (const size_t part :
       {row_axes, column_axes, static_cast<size_t>(vector), static_cast<size_t>(threads), static_cast<size_t>(kept)}) {
    key += std::to_string(part) + ",";
  }
  for (const Walk walk : walks) key += static_cast<char>('0' + static_cast<int>(walk));
  return key;
}

std::string Generate(const Program& program, const Variant& variant) { return Writer(program, variant).Text(); }

std::vector<int> DimsOf(const Program& program) {
  std::vector<int> dims;
  for (int value = program.InputCount(); value < program.ValueCount(); ++value) {
    if (program.StepOf(value).primitive == Primitive::kDim) dims.push_back(value);
  }
  return dims;
}

int PassCount(const Program& program) {
  return Passes(program, std::vector<Walk>(program.inputs.size() + program.results.size(), Walk::kVector)).count;
}

int KeptWords(const Program& program, const std::vector<Walk>& walks) {
  const Passes passes(program, walks);
  int most = 0;
  for (int pass = 0; pass + 1 < passes.count; ++pass) {
    int words = 0;
    for (int earlier = 0; earlier <= pass; ++earlier) {
      for (const int value : passes.KeptAfter(earlier)) {
        const bool is_alive = passes.last_used[static_cast<size_t>(value)] > pass;
        words += is_alive ? static_cast<int>(std::max<int64_t>(SizeOf(program.TypeOf(value)) / 4, 1)) : 0;
      }
    }
    most = std::max(most, words);
  }
  return most;
}

}  // namespace onnxfuse::cuda
