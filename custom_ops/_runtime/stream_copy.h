// A copy whose destination does not enter the caches.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#endif

namespace onnxfuse {

// Copies `bytes` from x, which is in the cache, to y, which nobody reads soon. Other threads may read y once this
// thread has called StreamFence.
inline void StreamCopy(const char* x, char* y, int64_t bytes) {
#if defined(__SSE2__) || defined(_M_X64)
  constexpr int64_t kLine = 64;
  const int64_t head = static_cast<int64_t>((kLine - reinterpret_cast<uintptr_t>(y) % kLine) % kLine);
  if (head < bytes) {
    std::memcpy(y, x, static_cast<size_t>(head));
    x += head, y += head, bytes -= head;
    for (; bytes >= kLine; x += kLine, y += kLine, bytes -= kLine) {
      for (int64_t i = 0; i < kLine; i += 16) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(y + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i)));
      }
    }
  }
#endif
  std::memcpy(y, x, static_cast<size_t>(bytes));
}

inline void StreamFence() {
#if defined(__SSE2__) || defined(_M_X64)
  _mm_sfence();
#endif
}

}  // namespace onnxfuse
