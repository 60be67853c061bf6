// A node whose meaning is a program, put on a queue.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/program.h"

namespace onnxfuse::cuda {

// make_output(i, expected): output i, of the sizes and the type of `expected`. axes: how many trailing axes form a row; 0
// without reductions. Throws std::exception where inputs do not fit the program.
void RunProgram(const Program& program, const std::string& text, int64_t axes, const std::vector<Tensor>& inputs,
                const std::function<Tensor(size_t, const Tensor&)>& make_output, Queue* queue);

}  // namespace onnxfuse::cuda
