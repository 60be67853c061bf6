// SHA-256 (FIPS 180-4): the names and the checksums of files in the cache of compiled kernels.
#pragma once

#include <string>
#include <string_view>

namespace onnxfuse::cuda {

// 64 lower-case hexadecimal digits.
std::string Sha256(std::string_view bytes);

}  // namespace onnxfuse::cuda
