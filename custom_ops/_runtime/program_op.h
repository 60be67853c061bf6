// Ops whose meaning is a program, an attribute of the node: what they are for ONNX Runtime.
//
// Their inputs and outputs are as many as the program says, of any of its types. They have one CustomOp for each name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "custom_ops/_runtime/ort_abi.h"

namespace onnxfuse {

struct ProgramOpSpec {
  std::string name;
  bool has_axes = false;  // has the attribute `axes`: how many trailing axes form a row
  // Names that the op has (see OpSpec::variants). One costs a session 0.04 ms.
  int variants = 1;
};

// Makes an op known to RegisterCustomOps; a static of each op.cc.
struct RegisterProgramOp {
  explicit RegisterProgramOp(ProgramOpSpec spec);
};

const std::vector<ProgramOpSpec>& AllProgramOps();

// The runtime's view of one name of the op, on the CPU.
struct ProgramOp : OrtCustomOp {
  ProgramOp(const ProgramOpSpec& spec, int variant, const OrtApi* api, bool lends_sizes = false);

  const ProgramOpSpec& spec;
  std::string name;
  const OrtApi* api;
  const bool lends_sizes;  // Abilities::lends_sizes
};

// The attributes of a node. Throw where they are not what they must be.
std::string ReadProgramText(const OrtApi* api, const OrtKernelInfo* info);
int64_t ReadAxes(const ProgramOp& op, const OrtKernelInfo* info);  // 0 where the op has no such attribute

}  // namespace onnxfuse
