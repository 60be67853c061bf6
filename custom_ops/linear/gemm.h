// Linear of many rows: both operands packed, tiles of sums in registers.
#pragma once

#include "custom_ops/_runtime/scratch.h"
#include "custom_ops/linear/epilogue.h"
#include "custom_ops/linear/pack.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr int64_t kGroup = 4;             // panels that all tiles are multiplied with in turn
inline constexpr int64_t kMostDepth = 512;       // steps of the depth at a time: a group of panels takes 256 KB of L2
inline constexpr int64_t kMostTiles = 96;        // in turn, so that their sums stay near too
inline constexpr int64_t kMostPacked = 1 << 22;  // floats of x that are packed at a time
inline constexpr double kProductsPerNs = 40.0;   // of one thread

// Some rows of x, packed: [tiles][depth][kTileRows].
struct Rows {
  const float* packed;
  int64_t first, count;
};

// Some tiles times some panels.
template <typename T>
class GemmRunner {
 public:
  ONNXFUSE_INLINE GemmRunner(const LinearArgs<T>& args, const T* weights, const Rows& rows)
      : a_(args), weights_(weights), rows_(rows) {
    slices_ = CeilDiv(a_.depth, kMostDepth);
    slice_ = CeilDiv(a_.depth, slices_);
  }

  // Panels [panel, last_panel), at most kGroup, and tiles [tile, last_tile), at most kMostTiles.
  void Run(int64_t panel, int64_t last_panel, int64_t tile, int64_t last_tile) {
    const int64_t kept = slices_ > 1 ? kTileFloats : 0;  // of each tile, from one slice to the next
    const int64_t floats = kept * (last_tile - tile) * (last_panel - panel);
    float* partial = static_cast<float*>(Scratch(Slot::kThread, static_cast<size_t>(floats) * sizeof(float)));
    for (int64_t from = 0; from < a_.depth; from += slice_) {
      float* sums = partial;
      for (int64_t t = tile; t < last_tile; ++t) {
        for (int64_t p = panel; p < last_panel; ++p, sums += kept) RunTile(t, p, from, sums);
      }
    }
  }

 private:
  static constexpr int64_t kTileFloats = kTileRows * kPanel;

  // Steps [from, from + slice_) of one tile; `partial` keeps its sums from one slice to the next.
  ONNXFUSE_INLINE void RunTile(int64_t tile, int64_t panel, int64_t from, float* partial) const {
    const int64_t depth = Least(slice_, a_.depth - from), rows = Least(kTileRows, rows_.count - tile * kTileRows);
    const float* x = rows_.packed + (tile * a_.depth + from) * kTileRows;
    const T* weights = weights_ + (panel * a_.depth + from) * kPanel;
    float sums[kTileFloats];
    const bool is_last = from + depth == a_.depth;
    float* to = is_last ? sums : partial;
    const float* start = from > 0 ? partial : nullptr;
    constexpr int kThird = kTileRows / 3;
    if (rows > 2 * kThird) {
      Multiply<3 * kThird>(x, weights, depth, start, to);
    } else if (rows > kThird) {
      Multiply<2 * kThird>(x, weights, depth, start, to);
    } else {
      Multiply<kThird>(x, weights, depth, start, to);
    }
    const int64_t col = panel * kPanel;
    if (is_last) Finish(a_, sums, kPanel, rows_.first + tile * kTileRows, rows, col, Least(kPanel, a_.cols - col));
  }

  // to = start, or 0 where that is null, + x w.
  template <int kRows>
  ONNXFUSE_INLINE static void Multiply(const float* x, const T* weights, int64_t depth, const float* start, float* to) {
    Vec sum[kRows][kPanelVecs];
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kPanelVecs; ++v)
        sum[r][v] = start == nullptr ? Zero() : Load(start + r * kPanel + v * kLanes);
    }
    MultiplyAdd<kRows, kPanelVecs, Order::kColumns>(x, kTileRows, weights, kPanel, depth, sum);
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kPanelVecs; ++v) Store(to + r * kPanel + v * kLanes, sum[r][v]);
    }
  }

  const LinearArgs<T>& a_;
  const T* const weights_;
  const Rows& rows_;
  int64_t slices_, slice_;
};

template <typename T>
void PackTiles(const LinearArgs<T>& a, const Rows& rows, float* packed, const ParallelFor& parallel) {
  const double cost = 0.5 * static_cast<double>(a.depth * kTileRows);
  parallel(CeilDiv(rows.count, kTileRows), cost, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = tile * kTileRows;
      PackRows<kTileRows>(a.x + (rows.first + row) * a.depth, a.depth, Least(kTileRows, rows.count - row), a.depth,
                          packed + row * a.depth);
    }
  });
}

// All panels of some rows. Work is cut by panels, so that a thread reads few weights, and by rows where there are
// more than go in turn, or too few panels for all threads.
template <typename T>
void MultiplyRows(const LinearArgs<T>& a, const T* weights, const Rows& rows, const ParallelFor& parallel) {
  const int64_t tiles = CeilDiv(rows.count, kTileRows), panels = CeilDiv(a.cols, kPanel);
  const int64_t groups = CeilDiv(panels, kGroup);
  const int64_t wanted = parallel.threads == 1 ? 1 : CeilDiv(2 * parallel.threads, groups);
  const int64_t cuts = Most(CeilDiv(tiles, kMostTiles), Least(wanted, CeilDiv(tiles, 8)));
  const double products = static_cast<double>(rows.count * a.depth * Least(kGroup * kPanel, a.cols));
  parallel(groups * cuts, products / kProductsPerNs / static_cast<double>(cuts), [&](int64_t begin, int64_t end) {
    GemmRunner<T> runner(a, weights, rows);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t panel = i / cuts * kGroup, cut = i % cuts;
      runner.Run(panel, Least(panel + kGroup, panels), tiles * cut / cuts, tiles * (cut + 1) / cuts);
    }
  });
}

template <typename T>
void Gemm(const LinearArgs<T>& a, const T* weights, const ParallelFor& parallel) {
  const int64_t most = Most(1, kMostPacked / (a.depth * kTileRows)) * kTileRows;
  const int64_t count = Least(most, CeilDiv(a.rows, kTileRows) * kTileRows);
  float* packed = static_cast<float*>(Scratch(Slot::kShared, static_cast<size_t>(count * a.depth) * sizeof(float)));
  for (int64_t first = 0; first < a.rows; first += count) {
    const Rows rows{packed, first, Least(count, a.rows - first)};
    PackTiles(a, rows, packed, parallel);
    MultiplyRows(a, weights, rows, parallel);
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
