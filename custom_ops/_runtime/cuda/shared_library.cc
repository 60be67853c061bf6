#include "custom_ops/_runtime/cuda/shared_library.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace onnxfuse::cuda {

#if defined(_WIN32)
void* OpenLibrary(const std::string& path, std::string* why) {
  void* library = LoadLibraryA(path.c_str());
  if (library == nullptr) *why = path + " cannot be loaded";
  return library;
}

void* SymbolOf(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}
#else
void* OpenLibrary(const std::string& path, std::string* why) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) *why = dlerror();
  return library;
}

void* SymbolOf(void* library, const char* name) { return dlsym(library, name); }
#endif

}  // namespace onnxfuse::cuda
