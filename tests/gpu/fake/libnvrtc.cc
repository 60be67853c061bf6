// A stand-in for libnvrtc.so.13: "compiles" a kernel for the CPU with the C++ compiler, so that libcuda.cc can run it.
//
// What it gives for a cubin is "FAKE sm_90\n" and a shared library. FAKE_NVRTC_CXX is the compiler with its options,
// FAKE_NVRTC_SHIM the folder of shim.h.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace {

struct Program {
  std::string source, log, code;
};

std::string Variable(const char* name) { return std::getenv(name) != nullptr ? std::getenv(name) : ""; }

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// For each kernel a function that takes the driver's array of arguments, its size, and whether its threads wait.
std::string Entries(const std::string& source) {
  static const std::regex kernel("void __launch_bounds__\\([^)]*\\) (\\w+)\\(const (\\w+) p\\) \\{");
  std::string text;
  for (std::sregex_iterator at(source.begin(), source.end(), kernel), end; at != end; ++at) {
    const std::string name = (*at)[1], type = (*at)[2];
    const std::string body = source.substr(static_cast<size_t>(at->position()));
    const bool waits = std::regex_search(body.substr(0, body.find("\n}\n")), std::regex("Together<\\w+, (?!1>)"));
    text += "extern \"C\" void " + name + "__run(void** a) { " + name + "(*(const " + type + "*)a[0]); }\n";
    text += "extern \"C\" const unsigned " + name + "__size = sizeof(" + type + ");\n";
    text += "extern \"C\" const int " + name + "__waits = " + (waits ? "1" : "0") + ";\n";
  }
  return text;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
int nvrtcGetNumSupportedArchs(int* count) { return *count = 4, 0; }
int nvrtcGetSupportedArchs(int* archs) { return archs[0] = 75, archs[1] = 80, archs[2] = 89, archs[3] = 90, 0; }
int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  return *program = new Program{source, "", ""}, 0;
}
int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  char folder[] = "/tmp/fake_nvrtc_XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string base = folder, source = base + "/kernel.cc", library = base + "/kernel.so", log = base + "/log";
  std::ofstream(source) << "#include \"shim.h\"\nthread_local ShimState* shim_state;\n"
                        << "extern \"C\" void shim_set(ShimState* state) { shim_state = state; }\n"
                        << program->source << Entries(program->source);
  const std::string command = "unset LD_PRELOAD; " + Variable("FAKE_NVRTC_CXX") +
                              " -std=c++17 -shared -fPIC -w -ffp-contract=off -I" + Variable("FAKE_NVRTC_SHIM") +
                              " -o " + library + " " + source + " 2> " + log;
  const bool is_refused = std::system(command.c_str()) != 0;
  program->log = ReadFile(log);
  std::string arch = "?";
  for (int i = 0; i < count; ++i) {
    if (std::strncmp(options[i], "--gpu-architecture=", 19) == 0) arch = options[i] + 19;
  }
  program->code = "FAKE " + arch + "\n" + ReadFile(library);
  for (const std::string& path : {source, library, log, base}) std::remove(path.c_str());
  return is_refused ? 6 : 0;
}
int nvrtcGetProgramLogSize(Program* program, size_t* size) { return *size = program->log.size() + 1, 0; }
int nvrtcGetProgramLog(Program* program, char* log) { return std::strcpy(log, program->log.c_str()), 0; }
int nvrtcGetCUBINSize(Program* program, size_t* size) { return *size = program->code.size(), 0; }
int nvrtcGetCUBIN(Program* program, char* code) {
  return std::memcpy(code, program->code.data(), program->code.size()), 0;
}
int nvrtcGetPTXSize(Program* program, size_t* size) { return nvrtcGetCUBINSize(program, size); }
int nvrtcGetPTX(Program* program, char* code) { return nvrtcGetCUBIN(program, code); }
int nvrtcDestroyProgram(Program** program) { return delete *program, *program = nullptr, 0; }
const char* nvrtcGetErrorString(int error) { return error == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR"; }
}
