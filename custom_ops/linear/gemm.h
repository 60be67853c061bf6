// Linear of more rows than few_rows.h takes: tiles of sums in registers, x copied to where their loops read it.
//
// Nothing of the weights is kept but where they are transposed. Few tiles wait for them: they are read where they lie,
// some steps of many columns at a time, so many streams that the processor fetches well, and the steps that come next
// are asked for. Many tiles share a panel of some steps, which the first packs as it goes; all of them fetch a little of
// the weights that come after these panels.
#pragma once

#include "custom_ops/_runtime/scratch.h"
#include "custom_ops/linear/epilogue.h"
#include "custom_ops/linear/pack.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr int64_t kChunk = 256;            // steps of the depth whose panel, 32 KB at most, stays in L1
inline constexpr int64_t kXStride = kChunk + 16;  // so that rows of a tile lie in sets of their own
inline constexpr int64_t kFewSteps = kTileRows > 6 ? 16 : 32;  // steps at a time of few tiles: so many streams
inline constexpr int64_t kNearSteps = 128;                     // where the weights are in L2, or packed
inline constexpr int64_t kNearBytes = 1 << 19;
inline constexpr int64_t kFewPanels = 96;                // and panels, so that their sums stay in L2
inline constexpr int64_t kFewTileRows = 4 * kTileRows;   // rows of few tiles
inline constexpr int64_t kNearTileRows = 2 * kTileRows;  // where the weights are in L2
inline constexpr int64_t kSoon = 16;             // steps between the fetch into L1 of what is packed, and its use
inline constexpr int64_t kGroup = 8;             // panels whose weights are fetched ahead at a time
inline constexpr int64_t kMostTiles = 24;        // in turn, so that their rows and sums stay in L2
inline constexpr int64_t kMostCopied = 1 << 22;  // floats of x that are copied at a time
inline constexpr int64_t kPiece = 32;            // steps between fetches ahead
inline constexpr int64_t kSameSet = 4096;        // steps after which an address comes back to the same set of a cache
inline constexpr double kProductsPerNs = 64.0;   // of one thread

// Weights of panel p and step k: at + p * panel_step + k * stride. Columns past the last are there only where packed.
template <typename T>
struct Weights {
  const T* at;
  int64_t stride, panel_step;
  bool is_packed;
};

// packed: null where they are read where they lie.
template <typename T>
ONNXFUSE_INLINE Weights<T> WeightsOf(const LinearArgs<T>& a, const T* packed) {
  if (packed != nullptr) return {packed, kPanel, kPanel * a.depth, true};
  return {a.weight, a.cols, kPanel, false};
}

template <typename T>
ONNXFUSE_INLINE bool IsNear(const LinearArgs<T>& a) {
  return a.depth * a.cols * static_cast<int64_t>(sizeof(T)) <= kNearBytes;
}
template <typename T>
ONNXFUSE_INLINE bool IsFew(const LinearArgs<T>& a, int64_t rows) {
  return rows <= (IsNear(a) ? kNearTileRows : kFewTileRows);
}

// How rows are cut into tiles: all full but the last two, which share what is left, so that none has very few.
class Tiles {
 public:
  explicit Tiles(int64_t rows) : rows_(rows), count_(CeilDiv(rows, kTileRows)) {
    const int64_t left = rows - Most(0, count_ - 2) * kTileRows;
    last_ = count_ < 2 ? rows : left - CeilDiv(CeilDiv(left, 2), kRowStep) * kRowStep;
  }
  int64_t count() const { return count_; }
  int64_t First(int64_t tile) const {
    if (tile == count_) return rows_;
    return tile + 1 == count_ ? rows_ - last_ : tile * kTileRows;
  }
  int64_t Rows(int64_t tile) const { return First(tile + 1) - First(tile); }

 private:
  int64_t rows_, count_, last_;
};

// Some rows of x: where they lie, or copied as floats chunk after chunk of the depth, [tiles][kTileRows][kXStride].
struct Rows {
  const float* x;
  int64_t stride;  // from one row of a tile to the next
  int64_t first;
  Tiles tiles;
  bool is_copied;

  // `row` counts from the tile's first and may be before it.
  const float* At(int64_t tile, int64_t row, int64_t step) const {
    if (is_copied) return x + ((step / kChunk * tiles.count() + tile) * kTileRows + row) * kXStride + step % kChunk;
    return x + (tiles.First(tile) + row) * stride + step;
  }
};

// Fetches memory into L2, a little at a time: `count` stretches of so many bytes, `stride` bytes apart.
class Ahead {
 public:
  ONNXFUSE_INLINE Ahead(const void* at, int64_t count, int64_t bytes, int64_t stride)
      : at_(static_cast<const char*>(at)), count_(count), lines_(CeilDiv(bytes, 64)), stride_(stride), left_(lines_) {}
  ONNXFUSE_INLINE int64_t lines() const { return count_ * lines_; }
  ONNXFUSE_INLINE void Fetch(int64_t lines) {
    for (; lines > 0 && count_ > 0; --lines) {
      __builtin_prefetch(at_ + (lines_ - left_) * 64, 0, 2);
      if (--left_ == 0) {
        --count_;
        at_ += stride_;
        left_ = lines_;
      }
    }
  }

 private:
  const char* at_;
  int64_t count_, lines_, stride_, left_;
};

// Where a tile's loop reads weights: from a packed panel; where they lie; or the same, packing them as it goes.
enum class Read { kPacked, kPlain, kPacking };

// Some steps of a product of one tile and one panel.
template <typename T>
struct Steps {
  const float* x;
  int64_t x_stride;
  float* packed;     // the panel, from its first step; of Read::kPacked and kPacking
  const T* w;        // of the others
  int64_t w_stride;  // of w
  int64_t ahead;     // elements from what is read to what is fetched for later; 0: nothing
  int64_t count;
  const float* start;  // sums so far, or null
};

// sum[r][v] += x w over `count` steps. Three rows' distances and a pointer for each four rows are all that is held.
template <int kRows, Read kRead, typename T>
ONNXFUSE_INLINE void AddProducts(const Steps<T>& s, int64_t from, int64_t count, Vec (&sum)[kRows][kPanelVecs]) {
  constexpr int kFours = (kRows + 3) / 4;
  const float* four[kFours];
  for (int i = 0; i < kFours; ++i) four[i] = s.x + 4 * i * s.x_stride + from;
  const int64_t off[4] = {0, s.x_stride, 2 * s.x_stride, 3 * s.x_stride};
  const T* w = s.w + from * s.w_stride;
  float* packed = s.packed + from * kPanel;
  for (int64_t k = 0; k < count; ++k, w += s.w_stride, packed += kPanel) {
    Vec right[kPanelVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kPanelVecs; ++v) {
      right[v] = kRead == Read::kPacked ? Load(packed + v * kLanes) : Load(w + v * kLanes);
      if constexpr (kRead == Read::kPacking) {
        __builtin_prefetch(w + kSoon * s.w_stride + v * kLanes, 0, 3);
        Store(packed + v * kLanes, right[v]);
      }
      if constexpr (kRead == Read::kPlain) __builtin_prefetch(w + s.ahead + v * kLanes, 0, 2);
    }
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
      const Vec left = Set(four[r / 4][off[r % 4]]);
#pragma GCC unroll 8
      for (int v = 0; v < kPanelVecs; ++v) sum[r][v] = Fma(left, right[v], sum[r][v]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kFours; ++i) ++four[i];
  }
}

// Where the sums of a tile go.
template <typename T>
struct Sums {
  float* kept;  // [rows][kPanel], or null where they are finished in registers
  T* y;
  const T *bias, *residual;  // of the tile's first row, or null
  int64_t stride, first_row, last_row;
  float alpha, least, most;
};

template <int kRows, typename T>
ONNXFUSE_INLINE void Put(const Sums<T>& to, Vec (&sum)[kRows][kPanelVecs]) {
  const Vec alpha = Set(to.alpha), least = Set(to.least), most = Set(to.most);
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kPanelVecs; ++v) {
      if (to.kept != nullptr) {
        Store(to.kept + r * kPanel + v * kLanes, sum[r][v]);
      } else if (r >= to.first_row && r < to.last_row) {
        const int64_t at = r * to.stride + v * kLanes;
        Vec y = sum[r][v] * alpha;
        if (to.bias != nullptr) y = y + Load(to.bias + v * kLanes);
        if (to.residual != nullptr) y = y + Load(to.residual + at);
        Store(to.y + at, Min(most, Max(least, y)));
      }
    }
  }
}

// to = start + x w; `fetched` lines are fetched ahead for each piece.
template <int kRows, Read kRead, typename T>
void MultiplyTile(const Steps<T>& s, const Sums<T>& to, Ahead* ahead, int64_t fetched) {
  Vec sum[kRows][kPanelVecs];
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kPanelVecs; ++v)
      sum[r][v] = s.start == nullptr ? Zero() : Load(s.start + r * kPanel + v * kLanes);
  }
  if (fetched == 0) {
    AddProducts<kRows, kRead>(s, 0, s.count, sum);
  } else {
    for (int64_t k = 0; k < s.count; k += kPiece) {
      ahead->Fetch(fetched);
      AddProducts<kRows, kRead>(s, k, Least(kPiece, s.count - k), sum);
    }
  }
  Put(to, sum);
}

// Some tiles times some panels.
template <typename T>
class GemmRunner {
 public:
  ONNXFUSE_INLINE GemmRunner(const LinearArgs<T>& args, const Weights<T>& weights, const Rows& rows, bool is_few)
      : a_(args), w_(weights), rows_(rows), is_few_(is_few), is_near_(IsNear(args)) {
    steps_ = !is_few ? kChunk : is_near_ || weights.is_packed ? kNearSteps : kFewSteps;
  }

  // Panels [panel, last_panel), tiles [tile, last_tile). next_panel: where the next run begins.
  void Run(int64_t panel, int64_t last_panel, int64_t tile, int64_t last_tile, int64_t next_panel) {
    const int64_t panels = last_panel - panel, tiles = last_tile - tile;
    const int64_t kept = a_.depth > steps_ ? kTileFloats : 0;  // of each tile, from one slice of the depth to the next
    const int64_t floats = kChunk * kPanel + kept * tiles * panels;
    packed_ = static_cast<float*>(Scratch(Slot::kThread, static_cast<size_t>(floats) * sizeof(float)));
    for (int64_t from = 0; from < a_.depth; from += steps_) {
      const int64_t steps = Least(steps_, a_.depth - from);
      Ahead ahead = from + steps == a_.depth ? Next(next_panel, 0) : Next(panel, from + steps);
      const int64_t fetched = CeilDiv(ahead.lines(), tiles * panels * CeilDiv(steps, kPiece));
      float* sums = packed_ + kChunk * kPanel;
      for (int64_t p = panel; p < last_panel; ++p) {
        const bool is_whole = w_.is_packed || (p + 1) * kPanel <= a_.cols;
        if (!is_whole) PackColumns(At(p, from), w_.stride, a_.cols - p * kPanel, steps, packed_);
        Read read = !is_whole ? Read::kPacked : is_few_ ? Read::kPlain : Read::kPacking;
        for (int64_t t = tile; t < last_tile; ++t, sums += kept) {
          RunTile({t, p, from, steps}, read, sums, &ahead, fetched);
          if (read == Read::kPacking) read = Read::kPacked;
        }
      }
    }
  }

 private:
  static constexpr int64_t kTileFloats = kTileRows * kPanel;

  struct Block {
    int64_t tile, panel, from, steps;
  };

  ONNXFUSE_INLINE const T* At(int64_t panel, int64_t step) const {
    return w_.at + panel * w_.panel_step + step * w_.stride;
  }

  // What many tiles multiply with next.
  ONNXFUSE_INLINE Ahead Next(int64_t panel, int64_t step) const {
    const int64_t left = a_.cols - panel * kPanel;
    if (is_few_ || is_near_ || left <= 0) return {nullptr, 0, 0, 0};
    const int64_t cols = Least(kGroup * kPanel, left), steps = Least(steps_, a_.depth - step);
    constexpr int64_t kSize = sizeof(T);
    if (w_.is_packed) return {At(panel, step), CeilDiv(cols, kPanel), steps * kPanel * kSize, w_.panel_step * kSize};
    return {At(panel, step), steps, cols * kSize, w_.stride * kSize};
  }

  // `partial` keeps a tile's sums from one slice of the depth to the next.
  ONNXFUSE_INLINE void RunTile(const Block& b, Read read, float* partial, Ahead* ahead, int64_t fetched) const {
    const int64_t rows = rows_.tiles.Rows(b.tile), col = b.panel * kPanel, cols = Least(kPanel, a_.cols - col);
    const int64_t made = Most(kTileRows - 3 * kRowStep, CeilDiv(rows, kRowStep) * kRowStep);
    const int64_t before = rows_.is_copied ? 0 : made - rows;  // rows of the tile before, made once more
    const int64_t row = rows_.first + rows_.tiles.First(b.tile), first = (row - before) * a_.cols + col;
    const bool is_last = b.from + b.steps == a_.depth, is_first_tile = b.tile == 0;
    const int64_t ahead_by = is_first_tile && b.from + 2 * b.steps <= a_.depth ? b.steps * w_.stride : 0;
    const Steps<T> steps{
        rows_.At(b.tile, -before, b.from), rows_.stride, packed_, At(b.panel, b.from), w_.stride, ahead_by, b.steps,
        b.from > 0 ? partial : nullptr};
    float sums[kTileFloats];
    Sums<T> to{partial, nullptr, nullptr, nullptr, a_.cols, before, before + rows, a_.alpha, 0, 0};
    const bool is_put = is_last && cols == kPanel && a_.unrounded == nullptr && IsClamp(a_, &to.least, &to.most);
    if (is_last) to.kept = is_put ? nullptr : sums;
    if (is_put) {
      to.y = a_.y + first;
      to.bias = a_.bias == nullptr ? nullptr : a_.bias + col;
      to.residual = a_.residual == nullptr ? nullptr : a_.residual + first;
    }
    if (made == kTileRows) {
      Multiply<kTileRows>(steps, read, to, ahead, fetched);
    } else if (made == kTileRows - kRowStep) {
      Multiply<kTileRows - kRowStep>(steps, read, to, ahead, fetched);
    } else if (made == kTileRows - 2 * kRowStep) {
      Multiply<kTileRows - 2 * kRowStep>(steps, read, to, ahead, fetched);
    } else {
      Multiply<kTileRows - 3 * kRowStep>(steps, read, to, ahead, fetched);
    }
    if (is_last && !is_put) Finish(a_, sums + before * kPanel, kPanel, row, rows, col, cols);
  }

  template <int kRows>
  ONNXFUSE_INLINE static void Multiply(const Steps<T>& steps, Read read, const Sums<T>& to, Ahead* ahead,
                                       int64_t fetched) {
    if (read == Read::kPacked) return MultiplyTile<kRows, Read::kPacked>(steps, to, ahead, fetched);
    if (read == Read::kPlain) return MultiplyTile<kRows, Read::kPlain>(steps, to, ahead, fetched);
    MultiplyTile<kRows, Read::kPacking>(steps, to, ahead, fetched);
  }

  const LinearArgs<T>& a_;
  const Weights<T> w_;
  const Rows& rows_;
  const bool is_few_, is_near_;
  int64_t steps_;
  float* packed_ = nullptr;  // a panel
};

// One tile of x: its rows side by side, zeros for those it has not.
template <typename T>
void CopyTile(const LinearArgs<T>& a, const Rows& rows, int64_t tile, float* copied) {
  const int64_t count = rows.tiles.Rows(tile), first = rows.first + rows.tiles.First(tile);
  for (int64_t from = 0; from < a.depth; from += kChunk) {
    const int64_t steps = Least(kChunk, a.depth - from);
    float* to = copied + (rows.At(tile, 0, from) - rows.x);
    for (int64_t r = 0; r < kTileRows; ++r, to += kXStride) {
      const T* x = a.x + (first + r) * a.depth + from;
      ForEachVec(steps, [&](int64_t i, int lanes) { StoreN(to + i, r < count ? LoadN(x + i, lanes) : Zero(), lanes); });
    }
  }
}

template <typename T>
void CopyTiles(const LinearArgs<T>& a, const Rows& rows, float* copied, const ParallelFor& parallel) {
  const double cost = 0.1 * static_cast<double>(a.depth * kTileRows);
  parallel(rows.tiles.count(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) CopyTile(a, rows, tile, copied);
  });
}

// How a product is cut: groups of panels, and each into so many cuts of its tiles of rows.
struct Cuts {
  int64_t panels, group, tiles, cuts;
};

// Runs [begin, end) of all of them.
template <typename Runner>
ONNXFUSE_INLINE void RunInTurn(int64_t begin, int64_t end, const Cuts& c, Runner& runner) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t panel = i / c.cuts * c.group, cut = i % c.cuts;
    const int64_t next = i + 1 < end ? (i + 1) / c.cuts * c.group : c.panels;
    runner.Run(panel, Least(panel + c.group, c.panels), c.tiles * cut / c.cuts, c.tiles * (cut + 1) / c.cuts, next);
  }
}

// All panels of some rows. Work is cut by panels, so that a thread reads few weights, and by rows where there are
// more than go in turn, or too few panels for all threads.
template <typename T>
void MultiplyRows(const LinearArgs<T>& a, const Weights<T>& weights, const Rows& rows, const ParallelFor& parallel) {
  const int64_t tiles = rows.tiles.count(), panels = CeilDiv(a.cols, kPanel), threads = parallel.threads;
  const bool is_few = IsFew(a, rows.tiles.First(tiles));
  const int64_t group = !is_few        ? kGroup
                        : threads == 1 ? kFewPanels
                                       : Most(1, Least(kFewPanels, panels / (2 * threads)));
  const int64_t groups = CeilDiv(panels, group);
  const int64_t wanted = threads == 1 ? 1 : CeilDiv(2 * threads, groups);
  const int64_t cuts = is_few ? 1 : Most(CeilDiv(tiles, kMostTiles), Least(wanted, CeilDiv(tiles, 8)));
  const double products = static_cast<double>(rows.tiles.First(tiles) * a.depth * Least(group * kPanel, a.cols));
  parallel(groups * cuts, products / kProductsPerNs / static_cast<double>(cuts), [&](int64_t begin, int64_t end) {
    GemmRunner<T> runner(a, weights, rows, is_few);
    RunInTurn(begin, end, {panels, group, tiles, cuts}, runner);
  });
}

// packed: null where weights are read where they lie. Rows of few tiles are copied, so that those that fill up a tile
// are there, rows of other types than float, and rows that would all lie in the same sets of the caches; others are read
// where they lie.
template <typename T>
void Gemm(const LinearArgs<T>& a, const T* packed, const ParallelFor& parallel) {
  const Weights<T> weights = WeightsOf(a, packed);
  if constexpr (sizeof(T) == sizeof(float)) {
    if (!IsFew(a, a.rows) && a.depth % kSameSet != 0)
      return MultiplyRows(a, weights, Rows{a.x, a.depth, 0, Tiles(a.rows), false}, parallel);
  }
  const int64_t floats = CeilDiv(a.depth, kChunk) * kXStride;  // of one row
  const int64_t most = Most(1, kMostCopied / (floats * kTileRows)) * kTileRows;
  const int64_t count = Least(most, a.rows);
  const int64_t size = CeilDiv(count, kTileRows) * kTileRows * floats;
  float* x = static_cast<float*>(Scratch(Slot::kShared, static_cast<size_t>(size) * sizeof(float)));
  for (int64_t first = 0; first < a.rows; first += count) {
    const Rows rows{x, kXStride, first, Tiles(Least(count, a.rows - first)), true};
    CopyTiles(a, rows, x, parallel);
    MultiplyRows(a, weights, rows, parallel);
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
