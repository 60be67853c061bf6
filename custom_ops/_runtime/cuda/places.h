// Where this library lies, and where a user's caches are.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace onnxfuse::cuda {

// The folder of the shared library that this is part of; empty where the system does not say.
std::filesystem::path OwnFolder();

// An environment variable; empty where it is not set.
std::string Variable(const char* name);

// `$XDG_CACHE_HOME/onnxfuse/<name>`, else `~/.cache/onnxfuse/<name>`; empty where neither is known.
std::filesystem::path UserCache(const char* name);

// Where compiled kernels are looked for, in this order: `kernels` beside this library, the user's cache of that name,
// each folder of `$ONNXFUSE_KERNELS`.
std::vector<std::filesystem::path> KernelFolders();

}  // namespace onnxfuse::cuda
