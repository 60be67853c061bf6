#include "custom_ops/_runtime/cuda/form.h"

#include <utility>

#include "custom_ops/_runtime/cuda/compile.h"
#include "custom_ops/_runtime/program_plan.h"

namespace onnxfuse::cuda {
namespace {

std::map<std::string, Form>& Forms() {
  static std::map<std::string, Form> forms;
  return forms;
}

bool CanGenerate(const Device& device, std::string* why) { return CanCompile(device.arch(), why); }

}  // namespace

View View::Of(const Tensor& tensor, std::vector<int64_t> shape) {
  View view{tensor.type, tensor.data, std::move(shape), {}};
  view.steps.assign(view.shape.size(), 1);
  for (size_t axis = view.shape.size(); axis-- > 1;) view.steps[axis - 1] = view.steps[axis] * view.shape[axis];
  return view;
}

View View::Slice(int64_t axis, int64_t begin, int64_t size, int64_t by) const {
  View part = *this;
  const auto at = static_cast<size_t>(axis);
  part.shape[at] = size;
  part.steps[at] = steps[at] * by;
  part.data = static_cast<char*>(data) + begin * steps[at] * SizeOf(type);
  return part;
}

View View::Swap(int64_t one, int64_t other) const {
  View swapped = *this;
  std::swap(swapped.shape[static_cast<size_t>(one)], swapped.shape[static_cast<size_t>(other)]);
  std::swap(swapped.steps[static_cast<size_t>(one)], swapped.steps[static_cast<size_t>(other)]);
  return swapped;
}

const Program& NodeKernels::ProgramOf(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = programs_.find(text);
  return found != programs_.end() ? found->second : programs_.emplace(text, Lower(Program::Parse(text))).first->second;
}

const Form* FormOf(const std::string& op) {
  const auto found = Forms().find(op);
  return found == Forms().end() ? nullptr : &found->second;
}

RegisterCuda::RegisterCuda(std::string op, void (*run)(const Call&, Queue&),
                           bool (*exists)(const Device&, std::string*)) {
  Forms()[op] = Form{op, run, exists == nullptr ? &CanGenerate : exists, exists == nullptr};
}

}  // namespace onnxfuse::cuda
