#include "custom_ops/_runtime/cuda/measured.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "custom_ops/_runtime/cuda/json.h"
#include "custom_ops/_runtime/cuda/places.h"
#include "custom_ops/_runtime/program.h"
#include "custom_ops/_runtime/providers.h"

namespace onnxfuse::cuda {
namespace {

constexpr double kFarthest = 2;  // a size that is so many times another is no longer like it

Type TypeNamed(const std::string& name) {
  for (const Type type : FloatTypes()) {
    if (name == NameOf(type)) return type;
  }
  throw std::invalid_argument("dtype must be float, float16 or bfloat16");
}

// How many times one size is the other.
double Ratio(int64_t a, int64_t b) { return static_cast<double>(std::max(a, b)) / static_cast<double>(std::min(a, b)); }

}  // namespace

MeasuredProducts MeasuredProducts::Read(const Device& device) {
  const std::string name = "linear.sm_" + std::to_string(device.arch()) + ".times";
  for (const std::filesystem::path& folder : KernelFolders()) {
    std::ifstream file(folder / name, std::ios::binary);
    if (!file) continue;
    try {
      const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      const Json facts = Json::Parse(text);
      if (facts.At("schema").Whole() != 1) throw std::invalid_argument("its schema is of another version");
      if (facts.At("device").Text() != device.name()) continue;
      MeasuredProducts found;
      for (const Json& one : facts.At("times").Items()) {
        found.all_.push_back({TypeNamed(one.At("dtype").Text()), one.At("rows").Whole(1), one.At("columns").Whole(1),
                              one.At("depth").Whole(1), one.At("trans_weight").Whole(0, 1) == 1,
                              one.At("compiled_us").Real(), one.At("cublaslt_us").Real()});
      }
      return found;
    } catch (const std::exception& error) {
      WarnOnce("the measured times " + (folder / name).string() + " cannot be used: " + error.what() +
               ". Measure them anew with benchmarks/gpu_check.sh");
    }
  }
  return {};
}

const MeasuredProducts& MeasuredProducts::Of(const Device& device) {
  static std::mutex mutex;
  static auto* all = new std::map<int, std::unique_ptr<MeasuredProducts>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<MeasuredProducts>& found = (*all)[device.ordinal()];
  if (found == nullptr) found = std::make_unique<MeasuredProducts>(Read(device));
  return *found;
}

bool MeasuredProducts::IsCublasLtFaster(Type type, int64_t rows, int64_t columns, int64_t depth,
                                        bool is_transposed) const {
  const Measured* nearest = nullptr;
  double least = 0;
  for (const Measured& one : all_) {
    if (one.type != type || one.is_transposed != is_transposed) continue;
    const double of_rows = Ratio(one.rows, rows), of_columns = Ratio(one.columns, columns),
                 of_depth = Ratio(one.depth, depth);
    if (std::max({of_rows, of_columns, of_depth}) > kFarthest) continue;
    const double distance = of_rows * of_columns * of_depth;
    if (nearest == nullptr || distance < least) nearest = &one, least = distance;
  }
  return nearest != nullptr && nearest->cublaslt < nearest->compiled;
}

}  // namespace onnxfuse::cuda
