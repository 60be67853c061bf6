// Linear of many rows on the AMX unit; custom_ops/_runtime/amx.h says how a float goes into tiles of bfloat16.
//
// Blocks of 32 x 32 sums are made of 2 x 2 tiles. Parts of x are laid out once; those of the weights as they are needed, a
// panel of 32 columns and so many steps at a time that they stay in L1. Panels go in groups, so that the parts of x and the
// sums of these steps stay in L2. Nothing is kept from one call to the next.
#pragma once

#include "custom_ops/_runtime/amx.h"
#include "custom_ops/linear/gemm.h"

#if defined(ONNXFUSE_AMX)

namespace onnxfuse::avx512 {

inline constexpr int kSide = 2 * kTileSide;  // rows and columns of a block
inline constexpr int64_t kAmxChunk = 128;    // steps of the depth whose parts of a panel, 24 KB, stay in L1
inline constexpr int64_t kAmxSteps = kAmxChunk / kTileDepth;
inline constexpr int64_t kAmxGroup = 8;          // panels
inline constexpr int64_t kAmxRows = 16 * kSide;  // rows of x at a time
inline constexpr int64_t kAmxLeastRows = 65;     // fewer are not worth laying out weights for,
inline constexpr int64_t kAmxLeastCols = 96;     // nor fewer columns laying out x
inline constexpr int64_t kAmxFloats = 1 << 22;   // of x at a time
static_assert(kSide == kPanel);

// What one step of tiles takes on either side: [part][tile][row].
template <typename T>
inline constexpr int64_t kStepBytes = kParts<T> * 2 * kTileBytes;

// Loads the two tiles of a part, of x into registers 4 and 5, of weights into 6 and 7.
ONNXFUSE_INLINE void LoadLeft(const char* x, int part) {
  _tile_loadd(4, x + 2 * part * kTileBytes, kRowBytes);
  _tile_loadd(5, x + (2 * part + 1) * kTileBytes, kRowBytes);
}
ONNXFUSE_INLINE void LoadRight(const char* w, int part) {
  _tile_loadd(6, w + 2 * part * kTileBytes, kRowBytes);
  _tile_loadd(7, w + (2 * part + 1) * kTileBytes, kRowBytes);
}

// sums += what is in registers 4 to 7, and fetches a few lines, since many at once would keep tiles waiting. A block of at
// most 16 rows has no second row of tiles.
template <bool kIsHigh>
ONNXFUSE_INLINE void AddTiles(Ahead* ahead, int64_t fetched) {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (kIsHigh) {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  ahead->Fetch(fetched);
}

// One step of tiles: all products of parts that are not too small to matter, each sharing a part with the one before.
template <typename T>
inline constexpr int kProducts = kParts<T> == 3 ? 6 : kParts<T> * kParts<T>;
template <typename T, bool kIsHigh>
ONNXFUSE_INLINE void AddStep(const char* x, const char* w, Ahead* ahead, int64_t fetched) {
  if constexpr (kParts<T> == 3) {
    LoadLeft(x, 2), LoadRight(w, 0), AddTiles<kIsHigh>(ahead, fetched);
    LoadLeft(x, 1), AddTiles<kIsHigh>(ahead, fetched);
    LoadRight(w, 1), AddTiles<kIsHigh>(ahead, fetched);
    LoadLeft(x, 0), AddTiles<kIsHigh>(ahead, fetched);
    LoadRight(w, 2), AddTiles<kIsHigh>(ahead, fetched);
    LoadRight(w, 0), AddTiles<kIsHigh>(ahead, fetched);
  } else if constexpr (kParts<T> == 2) {
    LoadLeft(x, 1), LoadRight(w, 1), AddTiles<kIsHigh>(ahead, fetched);
    LoadRight(w, 0), AddTiles<kIsHigh>(ahead, fetched);
    LoadLeft(x, 0), AddTiles<kIsHigh>(ahead, fetched);
    LoadRight(w, 1), AddTiles<kIsHigh>(ahead, fetched);
  } else {
    LoadLeft(x, 0), LoadRight(w, 0), AddTiles<kIsHigh>(ahead, fetched);
  }
}

// sums[kSide][kSide] (+)= some steps of x w; `fetched` lines are fetched ahead for each product of parts.
template <typename T, bool kIsHigh>
ONNXFUSE_INLINE void AddBlock(const char* x, const char* w, int64_t steps, bool is_first, float* sums, Ahead* ahead,
                              int64_t fetched) {
  constexpr int kStride = kSide * sizeof(float);
  float* lower = sums + kTileSide * kSide;
  SettleMemory();
  if (is_first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, kStride);
    _tile_loadd(1, sums + kTileSide, kStride);
    _tile_loadd(2, lower, kStride);
    _tile_loadd(3, lower + kTileSide, kStride);
  }
  for (int64_t i = 0; i < steps; ++i) AddStep<T, kIsHigh>(x + i * kStepBytes<T>, w + i * kStepBytes<T>, ahead, fetched);
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + kTileSide, kStride);
  _tile_stored(2, lower, kStride);
  _tile_stored(3, lower + kTileSide, kStride);
}

// The parts of some rows of x, [chunk of the depth][block of kSide rows][step][part][tile][row].
struct LeftParts {
  char* memory;
  int64_t step_bytes;
  int64_t first, rows;

  int64_t blocks() const { return CeilDiv(rows, kSide); }
  // step: of tiles, of all the depth
  char* At(int64_t block, int64_t step) const {
    return memory + ((step / kAmxSteps * blocks() + block) * kAmxSteps + step % kAmxSteps) * step_bytes;
  }
};

// One block of x; false where parts will not do for one of its rows.
template <typename T>
bool LayOutBlock(const LinearArgs<T>& a, const LeftParts& left, int64_t block) {
  constexpr int kCount = kParts<T>;
  const int64_t first = block * kSide, rows = Least(kSide, left.rows - first), steps = CeilDiv(a.depth, kTileDepth);
  const T* x = a.x + (left.first + first) * a.depth;
  bool is_fit = true;
  for (int64_t r = 0; r < kSide; ++r, x += a.depth) {
    Range range;
    for (int64_t i = 0; i < steps; ++i) {
      char* to = left.At(block, i) + r * kRowBytes;
      Bits part[2][kCount];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const int64_t at = i * kTileDepth + half * kLanes, lanes = r < rows ? Least(kLanes, a.depth - at) : 0;
        const Vec v = lanes > 0 ? LoadN(x + at, static_cast<int>(lanes)) : Zero();
        range.See(v);
        Split(v, part[half]);
      }
#pragma GCC unroll 3
      for (int p = 0; p < kCount; ++p) StoreLeft(to + 2 * p * kTileBytes, part[0][p], part[1][p]);
    }
    is_fit = is_fit && range.IsSplittableAsOne();
  }
  return is_fit;
}

// Some panels times some blocks of rows.
template <typename T>
class AmxRunner {
 public:
  ONNXFUSE_INLINE AmxRunner(const LinearArgs<T>& args, const Weights<T>& weights, const LeftParts& left)
      : a_(args), w_(weights), left_(left), finish_(FinisherOf<T>(args.activation)) {}

  // Panels [panel, last_panel), blocks [block, last_block). next_panel: where the next run begins.
  void Run(int64_t panel, int64_t last_panel, int64_t block, int64_t last_block, int64_t next_panel) {
    const int64_t blocks = last_block - block;
    constexpr int64_t kRightBytes = kAmxSteps * kStepBytes<T>;
    const int64_t bytes = kRightBytes + (last_panel - panel) * blocks * kSumBytes;
    char* right = static_cast<char*>(Scratch(Slot::kThread, static_cast<size_t>(bytes)));
    float* all_sums = reinterpret_cast<float*>(right + kRightBytes);
    Range seen[kAmxGroup][2];
    for (int64_t from = 0; from < a_.depth; from += kAmxChunk) {
      const int64_t steps = CeilDiv(Least(kAmxChunk, a_.depth - from), kTileDepth);
      const bool is_last = from + kAmxChunk >= a_.depth;
      float* sums = all_sums;
      for (int64_t p = panel; p < last_panel; ++p) {
        LayOutWeights(p, from, steps, right, seen[p - panel]);
        Ahead ahead = p + 1 < last_panel ? Soon(p + 1, from)
                      : is_last          ? Soon(next_panel, 0)
                                         : Soon(panel, from + kAmxChunk);
        const int64_t fetched = CeilDiv(ahead.lines(), blocks * steps * kProducts<T>);
        const bool is_fit = !is_last || (seen[p - panel][0].IsSplittable() && seen[p - panel][1].IsSplittable());
        for (int64_t b = block; b < last_block; ++b, sums += kSide * kSide) {
          const int64_t rows = Least(kSide, left_.rows - b * kSide);
          const char* x = left_.At(b, from / kTileDepth);
          if (rows > kTileSide) {
            AddBlock<T, true>(x, right, steps, from == 0, sums, &ahead, fetched);
          } else {
            AddBlock<T, false>(x, right, steps, from == 0, sums, &ahead, fetched);
          }
          if (!is_last) continue;
          const int64_t row = left_.first + b * kSide;
          if (!is_fit) MultiplyPlainly(row, rows, p, sums);
          finish_(a_, sums, kSide, row, rows, p * kSide, Least(kSide, a_.cols - p * kSide));
        }
      }
    }
  }

 private:
  static constexpr int64_t kSumBytes = kSide * kSide * sizeof(float);

  ONNXFUSE_INLINE const T* At(int64_t panel, int64_t step) const {
    return w_.at + panel * w_.panel_step + step * w_.stride;
  }

  ONNXFUSE_INLINE Ahead Soon(int64_t panel, int64_t step) const {
    const int64_t cols = a_.cols - panel * kSide, steps = Least(kAmxChunk, a_.depth - step);
    if (cols <= 0) return {nullptr, 0, 0, 0};
    constexpr int64_t kSize = sizeof(T);
    return {At(panel, step), steps, Least(kSide, cols) * kSize, w_.stride * kSize};
  }

  // 16 columns of a step, zeros past the last of either.
  ONNXFUSE_INLINE Vec Weight(int64_t panel, int64_t step, int half) const {
    const int64_t left = w_.is_packed ? kLanes : a_.cols - panel * kSide - half * kLanes;
    if (left <= 0 || step >= a_.depth) return Zero();
    return LoadN(At(panel, step) + half * kLanes, static_cast<int>(Least(kLanes, left)));
  }

  // Parts of a panel, [step][part][tile][row].
  ONNXFUSE_INLINE void LayOutWeights(int64_t panel, int64_t from, int64_t steps, char* right, Range (&seen)[2]) const {
    constexpr int kCount = kParts<T>;
    for (int half = 0; half < 2; ++half) {
      Range range = seen[half];
      char* to = right + half * kTileBytes;
      for (int64_t i = 0; i < steps; ++i, to += kStepBytes<T>) {
        for (int row = 0; row < kTileSide; ++row) {
          Bits part[2][kCount];
#pragma GCC unroll 2
          for (int odd = 0; odd < 2; ++odd) {
            const Vec w = Weight(panel, from + i * kTileDepth + 2 * row + odd, half);
            range.See(w);
            Split(w, part[odd]);
          }
#pragma GCC unroll 3
          for (int p = 0; p < kCount; ++p)
            StoreRight(to + 2 * p * kTileBytes + row * kRowBytes, part[0][p], part[1][p]);
        }
      }
      seen[half] = range;
    }
  }

  // The sums of a block whose weights have no parts.
  void MultiplyPlainly(int64_t row, int64_t rows, int64_t panel, float* sums) const {
    for (int64_t r = 0; r < rows; ++r) {
      Vec sum[2] = {Zero(), Zero()};
      for (int64_t k = 0; k < a_.depth; ++k) {
        const Vec x = Set(ToFloat(a_.x[(row + r) * a_.depth + k]));
        for (int half = 0; half < 2; ++half) sum[half] = Fma(x, Weight(panel, k, half), sum[half]);
      }
      for (int half = 0; half < 2; ++half) Store(sums + r * kSide + half * kLanes, sum[half]);
    }
  }

  const LinearArgs<T>& a_;
  const Weights<T> w_;
  const LeftParts& left_;
  const Finisher<T> finish_;
};

// All panels of some rows. Work is cut by panels, and by rows where there are too few panels for all threads.
template <typename T>
void MultiplyParts(const LinearArgs<T>& a, const Weights<T>& weights, const LeftParts& left,
                   const ParallelFor& parallel) {
  const int64_t panels = CeilDiv(a.cols, kSide), blocks = left.blocks(), threads = parallel.threads;
  const int64_t group = threads == 1 ? kAmxGroup : Most(1, Least(kAmxGroup, panels / (2 * threads)));
  const int64_t groups = CeilDiv(panels, group);
  const int64_t cuts = threads == 1 ? 1 : Least(blocks, CeilDiv(2 * threads, groups));
  const double products = static_cast<double>(left.rows * a.depth * Least(group * kSide, a.cols));
  parallel(groups * cuts, products / (3 * kProductsPerNs) / static_cast<double>(cuts), [&](int64_t begin, int64_t end) {
    const TileRegisters registers;
    AmxRunner<T> runner(a, weights, left);
    RunInTurn(begin, end, {panels, group, blocks, cuts}, runner);
  });
}

// weights: packed, or where they lie. Rows that have no parts, of infinities for example, are left to Gemm.
template <typename T>
void AmxGemm(const LinearArgs<T>& a, const T* packed, const ParallelFor& parallel) {
  const Weights<T> weights = WeightsOf(a, packed);
  const int64_t steps = CeilDiv(a.depth, kAmxChunk) * kAmxSteps;
  const int64_t most = Most(1, Least(kAmxRows, kAmxFloats / (steps * kTileDepth)) / kSide) * kSide;
  const int64_t count = Least(most, CeilDiv(a.rows, kSide) * kSide);
  const int64_t bytes = count / kSide * steps * kStepBytes<T>;
  for (int64_t first = 0; first < a.rows; first += count) {
    char* memory = static_cast<char*>(Scratch(Slot::kShared, static_cast<size_t>(bytes)));
    const LeftParts left{memory, kStepBytes<T>, first, Least(count, a.rows - first)};
    bool is_fit = true;
    const double cost = 0.1 * static_cast<double>(a.depth * kSide);
    parallel(left.blocks(), cost, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        if (!LayOutBlock(a, left, block)) __atomic_store_n(&is_fit, false, __ATOMIC_RELAXED);
      }
    });
    if (is_fit) {
      MultiplyParts(a, weights, left, parallel);
      continue;
    }
    Gemm(RowsOf(a, first, left.rows), packed, parallel);
  }
}

}  // namespace onnxfuse::avx512
#endif
