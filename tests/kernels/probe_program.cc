// CpuProgram for ctypes. What it throws comes back as text.

#include <cstring>
#include <exception>
#include <memory>

#include "custom_ops/_runtime/program_cpu.h"
#include "probe_threads.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace onnxfuse;

constexpr size_t kRoom = 512;  // for an error and its closing 0

// dims: the sizes of all shapes, one after the other, each behind its rank.
std::vector<Shape> ShapesFrom(const int64_t* dims, size_t count) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < count; ++i) {
    const int64_t rank = *dims++;
    shapes.emplace_back(dims, dims + rank);
    dims += rank;
  }
  return shapes;
}

template <typename Body>
void Catch(char* error, Body&& body) {
  *error = '\0';
  try {
    body();
  } catch (const std::exception& caught) {
    std::strncpy(error, caught.what(), kRoom - 1);
    error[kRoom - 1] = '\0';
  }
}

}  // namespace

// Null, and the error, where the text is no program.
EXPORT void* program_make(const char* text, int64_t axes, char* error) {
  CpuProgram* made = nullptr;
  Catch(error, [&] { made = new CpuProgram(Program::Parse(text), axes); });
  return made;
}

EXPORT void program_free(void* program) { delete static_cast<CpuProgram*>(program); }

// Sets out to the results' shapes, as dims above.
EXPORT void program_shapes(const void* state, const int64_t* dims, int64_t* out, char* error) {
  const auto& program = *static_cast<const CpuProgram*>(state);
  Catch(error, [&] {
    for (const Shape& shape : program.ResultShapes(ShapesFrom(dims, program.program().GivenCount()))) {
      *out++ = static_cast<int64_t>(shape.size());
      for (const int64_t size : shape) *out++ = size;
    }
  });
}

EXPORT void program_run(const void* state, const void** inputs, const int64_t* dims, void** results, int threads,
                        char* error) {
  const auto& program = *static_cast<const CpuProgram*>(state);
  const size_t count = program.program().GivenCount();
  Catch(error, [&] {
    program.Run(std::vector<const void*>(inputs, inputs + count), ShapesFrom(dims, count),
                std::vector<void*>(results, results + program.program().results.size()), Threads(&threads));
  });
}
