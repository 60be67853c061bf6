// Libraries of NVIDIA, opened when they are first needed.
#pragma once

#include <string>

namespace onnxfuse::cuda {

// Null where it cannot be loaded: `*why` then says so in words that end a sentence. It stays loaded.
void* OpenLibrary(const std::string& path, std::string* why);

// Null where the library has no such symbol.
void* SymbolOf(void* library, const char* name);

}  // namespace onnxfuse::cuda
