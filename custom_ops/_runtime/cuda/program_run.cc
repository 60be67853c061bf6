#include "custom_ops/_runtime/cuda/program_run.h"

#include <stdexcept>
#include <utility>

#include "custom_ops/_runtime/program_shape.h"

namespace onnxfuse::cuda {

void RunProgram(const Program& program, const std::string& text, int64_t axes, const std::vector<Tensor>& inputs,
                const std::function<Tensor(size_t, const Tensor&)>& make_output, Queue* queue) {
  std::vector<Shape> shapes;
  std::vector<View> from, to;
  for (size_t i = 0; i < program.GivenCount(); ++i) {
    if (i >= inputs.size() || !inputs[i].is_given) {
      throw std::runtime_error("input " + std::to_string(i) + " must be given");
    }
    if (inputs[i].type != program.inputs[i]) {
      throw std::runtime_error("input " + std::to_string(i) + " must have the program's type " +
                               NameOf(program.inputs[i]) + "; got " + NameOf(inputs[i].type));
    }
    shapes.push_back(inputs[i].shape);
    from.push_back(View::Of(inputs[i]));
  }
  shapes = WithJoins(program, std::move(shapes));
  const Shape common = CommonShape(program, shapes, axes);
  for (size_t i = program.GivenCount(); i < shapes.size(); ++i) {
    Tensor joined;
    joined.type = program.inputs[i];
    joined.shape = shapes[i];
    from.push_back(View::Of(joined));
  }
  const std::vector<bool> is_row = program.IsRowShaped();
  for (size_t i = 0; i < program.results.size(); ++i) {
    Tensor expected;
    expected.type = program.TypeOf(program.results[i]);
    expected.shape = ResultShape(common, is_row[static_cast<size_t>(program.results[i])], axes);
    to.push_back(View::Of(make_output(i, expected)));
  }
  queue->Run(text, static_cast<int>(axes), from, to);
}

}  // namespace onnxfuse::cuda
