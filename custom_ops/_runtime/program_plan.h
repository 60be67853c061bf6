// A program made ready for the CPU: which kernel runs when, on which memory.
//
// The elements are rows of an inner space (for a reduction its row) inside an outer one. A value's *reach* says how
// often it is new: once, once a row, or for each element. Values of the first two are splats and are computed once,
// or once a row. The others are computed block by block; a register holds one block, and a register is free again
// after its last reader, so that all blocks together stay in the L1 cache.
//
// With reductions there are passes over the row: a value that needs a reduction is computed in a later pass. Where the
// row is one block (`is_whole_row`) a single pass does all; where it is not, what a pass needs is computed again.
#pragma once

#include <cstdint>
#include <vector>

#include "custom_ops/_runtime/program.h"
#include "custom_ops/_runtime/program_kernels.h"

namespace onnxfuse {

enum class Reach { kOnce, kRow, kElement };

// What a plan depends on besides the program.
struct PlanLayout {
  std::vector<Reach> inputs;
  // Element inputs that are not a run of memory within a row, and so are gathered into a register, block by block.
  std::vector<bool> is_gathered;
  std::vector<int> aliased_input;  // for each result: the input whose memory it has, or -1
  std::vector<bool> is_streamed;   // for each result: written by a copy at the end of the block that passes the caches
  bool is_whole_row = true;

  bool operator==(const PlanLayout&) const = default;
};

// Where an argument or result lies: an entry of the table of bases, which lists inputs, results, registers.
struct Place {
  int base = 0;
  int64_t step = 0;  // 0: a splat
};

struct Instruction {
  enum class Action {
    kRun,       // the kernel
    kSplat,     // y = a splat of the element that x[0], an input, has for this row
    kGather,    // y = the block of x[0], an input
    kStoreOne,  // y, a result, gets its one element of this row from the splat x[0]
    kStream,    // y, a result, gets the block of x[0], past the caches
  };
  Action action = Action::kRun;
  ProgramKernel kernel = nullptr;
  Place y;
  Place x[3];
  int argument_count = 0;
  // How many elements: the block's, one splat, or the row's (when a reduction ends).
  enum class Extent { kBlock, kSplat, kRow } extent = Extent::kBlock;
  int element_size = 0;  // for kSplat, kGather, kStoreOne, kStream
};

struct BlockRegister {
  int element_size = 0;  // 0: a splat or an accumulator, of kSplatBytes
};

// Values that are there before anything runs.
struct Preset {
  int base = 0;
  Type type = Type::kFloat;
  double real = 0;
  int64_t whole = 0;
  int dim_input = -1;  // or the size of this input along the axis `whole`
};

struct PlanPass {
  std::vector<Instruction> before, block, after;  // once a row, for each block, once a row
};

struct Plan {
  std::vector<BlockRegister> registers;
  std::vector<Preset> presets;
  std::vector<Instruction> once;
  std::vector<PlanPass> passes;
  int64_t bytes_per_element = 0;       // of the block registers and of what a block reads and writes
  double nanoseconds_per_element = 0;  // about
  int first_register = 0;              // in the table of bases
};

// A program with what has no kernel of its own spelled out, and what nobody reads left out.
Program Lower(const Program& program);

// The plan of a lowered program. is_row_result: for each result whether it has one element a row.
Plan MakePlan(const Program& program, const std::vector<bool>& is_row_result, const PlanLayout& layout);

}  // namespace onnxfuse
