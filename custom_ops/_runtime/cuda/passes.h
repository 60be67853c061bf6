// Which pass over a row computes which value of a program.
#pragma once

#include <vector>

#include "custom_ops/_runtime/cuda/layout.h"
#include "custom_ops/_runtime/program.h"

namespace onnxfuse::cuda {

// A pass reads a row and makes the reductions of it; pass p + 1 can use what pass p reduced. The last pass, `count` - 1,
// makes the results. All vectors are by value number.
struct Passes {
  Passes(const Program& program, const std::vector<Walk>& walks);

  int count = 1;
  std::vector<int> of;         // the first pass that can use the value
  std::vector<bool> is_once;   // one for the row, not one for each element
  std::vector<bool> is_read;   // a result, or an argument of a value that is read; a size that is asked for is no read
  std::vector<int> last_used;  // the last pass that uses it element by element; -1: none

  // Reductions made in pass `pass`.
  std::vector<int> ReductionsIn(int pass) const;
  // The values computed element by element in pass `pass`, in order; where `is_kept`, without those of earlier passes.
  std::vector<int> ElementsIn(int pass, bool is_kept) const {
    return Needed(pass, is_kept ? before_[static_cast<size_t>(pass)] : std::vector<bool>(of.size(), false));
  }
  // Those of them that later passes use.
  std::vector<int> KeptAfter(int pass) const;

 private:
  std::vector<int> WantedIn(int pass) const;
  // What pass `pass` computes element by element if `is_there` are there already.
  std::vector<int> Needed(int pass, const std::vector<bool>& is_there) const;

  const Program& program_;
  std::vector<int> results_;               // that are stored element by element
  std::vector<std::vector<bool>> before_;  // by pass: the values that earlier passes compute element by element
};

}  // namespace onnxfuse::cuda
