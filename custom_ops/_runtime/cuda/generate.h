// CUDA C++ from programs.
//
// Without reductions a thread does one vector of elements. With them 1 to 32 neighbouring threads, or the 256 of a
// block, do a row: in as many passes as reductions stand on one another (two for a variance: of the mean, and of the
// squared distances from it), and a last one for the results. Where the row fits it is read once and kept in
// registers; else each pass reads it again. Long rows that are few are split over blocks, one kernel a pass.
#pragma once

#include <string>
#include <vector>

#include "custom_ops/_runtime/cuda/layout.h"
#include "custom_ops/_runtime/program.h"

namespace onnxfuse::cuda {

inline constexpr int kBlockThreads = 256;

// What the text of a kernel depends on, beside the program.
struct Variant {
  bool is_flat = true;  // no reductions
  size_t row_axes = 1, column_axes = 1;
  std::vector<Walk> walks;  // of the operands
  int vector = 1;           // elements that are loaded at once
  int threads = 1;          // of a row
  int kept = 0;             // vectors of a row that a thread keeps in registers; 0: none, each pass reads
  bool is_split = false;
  bool is_wide = false;  // indices have 64 bits

  std::string Key() const;
};

// The kernel is `fused`; of a split row there are fused_0, fused_1, ..., one for each pass. Each takes one argument, the
// structure that queue.cc fills.
std::string Generate(const Program& program, const Variant& variant);

// The values that are sizes of inputs; their values are part of the argument.
std::vector<int> DimsOf(const Program& program);

// Passes over a row, the last one included: 1 without reductions.
int PassCount(const Program& program);

// 32-bit registers that keeping one element of a row takes.
int KeptWords(const Program& program, const std::vector<Walk>& walks);

}  // namespace onnxfuse::cuda
