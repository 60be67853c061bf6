// Runs a program on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "custom_ops/_runtime/parallel.h"
#include "custom_ops/_runtime/program.h"
#include "custom_ops/_runtime/program_plan.h"
#include "custom_ops/_runtime/program_shape.h"

namespace onnxfuse {

class CpuProgram {
 public:
  // axes: how many trailing axes form a row, at least 1 for a program with reductions and 0 for one without. Throws
  // std::invalid_argument.
  CpuProgram(Program program, int64_t axes);

  // The shapes of all results. Throws std::invalid_argument where the inputs do not fit.
  std::vector<Shape> ResultShapes(const std::vector<Shape>& inputs) const;

  // inputs, those that are given, and results: memory of the program's types, row-major; results have the shapes above. A result may be the
  // memory of an input of its shape and element size. Throws std::invalid_argument where the inputs do not fit or an
  // integer is divided by 0 (the results are then undefined). May be called by several threads at once.
  void Run(const std::vector<const void*>& inputs, const std::vector<Shape>& shapes, const std::vector<void*>& results,
           const ParallelFor& parallel) const;

  const Program& program() const { return program_; }
  int64_t axes() const { return axes_; }

 private:
  struct Plans;
  std::shared_ptr<const Plans> PlansFor(const std::vector<Shape>& shapes, const std::vector<const void*>& inputs,
                                        const std::vector<void*>& results) const;
  void MakePlans(Plans* plans) const;

  Program program_, lowered_;
  int64_t axes_;
  std::vector<bool> is_row_result_;
  mutable std::mutex mutex_;  // guards the plans made last
  mutable std::shared_ptr<const Plans> plans_;
};

}  // namespace onnxfuse
