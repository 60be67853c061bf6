// Linear of more rows than few_rows.h takes: tiles of sums in registers, x laid out as their loops read it.
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

inline constexpr int64_t kChunk = 192;  // steps of the depth: a panel of them, and a tile's rows, stay in L1
inline constexpr int64_t kFewSteps = kTileRows > 6 ? 16 : 32;  // steps at a time of few tiles: so many streams
inline constexpr int64_t kNearSteps = kChunk / 2;              // where the weights are in L2, or packed
inline constexpr int64_t kNearBytes = 1 << 19;
inline constexpr int64_t kFewPanels = 96;                // and panels, so that their sums stay in L2
inline constexpr int64_t kFewTileRows = 4 * kTileRows;   // rows of few tiles
inline constexpr int64_t kNearTileRows = 2 * kTileRows;  // where the weights are in L2
inline constexpr int64_t kSoon = 16;              // steps between the fetch into L1 of what is packed, and its use
inline constexpr int64_t kGroup = 8;              // panels whose weights are fetched ahead at a time
inline constexpr int64_t kMostTiles = 40;         // in turn, so that their rows and sums stay in L2
inline constexpr int64_t kMostLaidOut = 1 << 22;  // floats of x at a time
inline constexpr int64_t kPiece = 32;             // steps between fetches ahead
inline constexpr double kProductsPerNs = 64.0;    // of one thread

// Weights of panel p and step k: at + p * panel_step + k * stride. Columns past the last are there only where packed.
template <typename T>
struct Weights {
  const T* at;
  int64_t stride, panel_step;
  bool is_packed;
};

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

// Some rows of x as floats, chunk after chunk of the depth: [chunks][tiles][kChunk][kTileRows]; zeros for rows that a
// tile has not.
template <typename T>
struct Rows {
  const LinearArgs<T>& a;
  float* x;
  int64_t first;
  Tiles tiles;

  const T* From(int64_t tile, int64_t step) const { return a.x + (first + tiles.First(tile)) * a.depth + step; }
  float* At(int64_t tile, int64_t step) const {
    return x + ((step / kChunk * tiles.count() + tile) * kChunk + step % kChunk) * kTileRows;
  }
  // Steps of one chunk.
  void LayOut(int64_t tile, int64_t step, int64_t steps) const {
    PackRows<kTileRows>(From(tile, step), a.depth, tiles.Rows(tile), steps, At(tile, step));
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
  const float* x;    // [count][kTileRows]
  float* packed;     // the panel, from its first step; of Read::kPacked and kPacking
  const T* w;        // of the others
  int64_t w_stride;  // of w
  int64_t ahead;     // elements from what is read to what is fetched for later; 0: nothing
  int64_t count;
  const float* start;  // sums so far, or null
};

// sum[r][v] += x w over `count` steps.
template <int kRows, Read kRead, typename T>
ONNXFUSE_INLINE void AddProducts(const Steps<T>& s, int64_t from, int64_t count, Vec (&sum)[kRows][kPanelVecs]) {
  const float* x = s.x + from * kTileRows;
  const T* w = s.w + from * s.w_stride;
  float* packed = s.packed + from * kPanel;
  for (int64_t k = 0; k < count; ++k, x += kTileRows, w += s.w_stride, packed += kPanel) {
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
      const Vec left = Set(x[r]);
#pragma GCC unroll 8
      for (int v = 0; v < kPanelVecs; ++v) sum[r][v] = Fma(left, right[v], sum[r][v]);
    }
  }
}

// Where the sums of a tile go.
template <typename T>
struct Sums {
  float* kept;  // [rows][kPanel], or null where they are finished in registers
  T* y;
  const T *bias, *residual;  // of the tile's first row, or null
  int64_t stride, rows;
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
      } else if (r < to.rows) {
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
  ONNXFUSE_INLINE GemmRunner(const Weights<T>& weights, const Rows<T>& rows, bool is_few)
      : a_(rows.a), w_(weights), rows_(rows), is_few_(is_few), is_near_(IsNear(a_)) {
    steps_ = !is_few ? kChunk : is_near_ || weights.is_packed ? kNearSteps : kFewSteps;
  }

  // Panels [panel, last_panel), tiles [tile, last_tile). next_panel: where the next run begins. lays_out: each tile of x is
  // laid out before the first panel needs it.
  void Run(int64_t panel, int64_t last_panel, int64_t tile, int64_t last_tile, int64_t next_panel, bool lays_out) {
    const int64_t panels = last_panel - panel, tiles = last_tile - tile;
    const int64_t kept = a_.depth > steps_ ? kTileFloats : 0;  // of each tile, from one slice of the depth to the next
    const int64_t floats = kChunk * kPanel + kept * tiles * panels;
    packed_ = static_cast<float*>(Scratch(Slot::kThread, static_cast<size_t>(floats) * sizeof(float)));
    for (int64_t from = 0; from < a_.depth; from += steps_) {
      const int64_t steps = Least(steps_, a_.depth - from);
      Ahead ahead = from + steps == a_.depth ? Next(next_panel, 0) : Next(panel, from + steps);
      const int64_t pieces = CeilDiv(steps, kPiece), fetching = tiles * (lays_out ? Most(1, panels - 1) : panels);
      const int64_t fetched = CeilDiv(ahead.lines(), fetching * pieces);
      float* sums = packed_ + kChunk * kPanel;
      for (int64_t p = panel; p < last_panel; ++p) {
        const bool is_whole = w_.is_packed || (p + 1) * kPanel <= a_.cols;
        if (!is_whole) PackColumns(At(p, from), w_.stride, a_.cols - p * kPanel, steps, packed_);
        Read read = !is_whole ? Read::kPacked : is_few_ ? Read::kPlain : Read::kPacking;
        for (int64_t t = tile; t < last_tile; ++t, sums += kept) {
          if (lays_out && p == panel) {
            rows_.LayOut(t, from, steps);
            Ahead next = t + 1 < last_tile ? NextRows(t + 1, from) : NextRows(tile, from + steps);
            RunTile({t, p, from, steps}, read, sums, &next, CeilDiv(next.lines(), pieces));
          } else {
            RunTile({t, p, from, steps}, read, sums, &ahead, fetched);
          }
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

  // What is laid out next.
  ONNXFUSE_INLINE Ahead NextRows(int64_t tile, int64_t step) const {
    if (step == a_.depth) return {nullptr, 0, 0, 0};
    constexpr int64_t kSize = sizeof(T);
    return {rows_.From(tile, step), rows_.tiles.Rows(tile), Least(steps_, a_.depth - step) * kSize, a_.depth * kSize};
  }

  // `partial` keeps a tile's sums from one slice of the depth to the next.
  ONNXFUSE_INLINE void RunTile(const Block& b, Read read, float* partial, Ahead* ahead, int64_t fetched) const {
    const int64_t rows = rows_.tiles.Rows(b.tile), col = b.panel * kPanel, cols = Least(kPanel, a_.cols - col);
    const int64_t made = Most(kTileRows - 3 * kRowStep, CeilDiv(rows, kRowStep) * kRowStep);
    const int64_t row = rows_.first + rows_.tiles.First(b.tile), first = row * a_.cols + col;
    const bool is_last = b.from + b.steps == a_.depth, is_first_tile = b.tile == 0;
    const int64_t ahead_by = is_first_tile && b.from + 2 * b.steps <= a_.depth ? b.steps * w_.stride : 0;
    const Steps<T> steps{rows_.At(b.tile, b.from),      packed_, At(b.panel, b.from), w_.stride, ahead_by, b.steps,
                         b.from > 0 ? partial : nullptr};
    float sums[kTileFloats];
    Sums<T> to{partial, nullptr, nullptr, nullptr, a_.cols, rows, a_.alpha, 0, 0};
    const bool is_put = is_last && cols == kPanel && IsClamp(a_, &to.least, &to.most);
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
    if (is_last && !is_put) Finish(a_, sums, kPanel, row, rows, col, cols);
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
  const Rows<T>& rows_;
  const bool is_few_, is_near_;
  int64_t steps_;
  float* packed_ = nullptr;  // a panel
};

// All panels of some rows. Work is cut by panels, so that a thread reads few weights, and by rows where there are
// more than go in turn, or too few panels for all threads. One thread lays out x as it goes, several do so before.
template <typename T>
void MultiplyRows(const Weights<T>& weights, const Rows<T>& rows, const ParallelFor& parallel) {
  const LinearArgs<T>& a = rows.a;
  const int64_t tiles = rows.tiles.count(), panels = CeilDiv(a.cols, kPanel), threads = parallel.threads;
  const bool is_few = IsFew(a, rows.tiles.First(tiles));
  const int64_t group = !is_few        ? kGroup
                        : threads == 1 ? kFewPanels
                                       : Most(1, Least(kFewPanels, panels / (2 * threads)));
  const int64_t groups = CeilDiv(panels, group);
  const int64_t wanted = threads == 1 ? 1 : CeilDiv(2 * threads, groups);
  const int64_t cuts = is_few ? 1 : Most(CeilDiv(tiles, kMostTiles), Least(wanted, CeilDiv(tiles, 8)));
  const double products = static_cast<double>(rows.tiles.First(tiles) * a.depth * Least(group * kPanel, a.cols));
  auto run = [&](int64_t begin, int64_t end) {
    GemmRunner<T> runner(weights, rows, is_few);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t panel = i / cuts * group, cut = i % cuts, next = i + 1 < end ? (i + 1) / cuts * group : panels;
      runner.Run(panel, Least(panel + group, panels), tiles * cut / cuts, tiles * (cut + 1) / cuts, next,
                 threads == 1 && panel == 0);
    }
  };
  if (threads == 1) return run(0, groups * cuts);
  parallel(tiles, 0.1 * static_cast<double>(a.depth * kTileRows), [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      for (int64_t step = 0; step < a.depth; step += kChunk) rows.LayOut(tile, step, Least(kChunk, a.depth - step));
    }
  });
  parallel(groups * cuts, products / kProductsPerNs / static_cast<double>(cuts),
           [&](int64_t begin, int64_t end) { run(begin, end); });
}

// packed: null where weights are read where they lie.
template <typename T>
void Gemm(const LinearArgs<T>& a, const T* packed, const ParallelFor& parallel) {
  const Weights<T> weights = packed != nullptr ? Weights<T>{packed, kPanel, kPanel * a.depth, true}
                                               : Weights<T>{a.weight, a.cols, kPanel, false};
  const int64_t floats = CeilDiv(a.depth, kChunk) * kChunk;  // of one row
  const int64_t count = Least(Most(1, kMostLaidOut / (floats * kTileRows)) * kTileRows, a.rows);
  const int64_t size = CeilDiv(count, kTileRows) * kTileRows * floats;
  float* x = static_cast<float*>(Scratch(Slot::kShared, static_cast<size_t>(size) * sizeof(float)));
  for (int64_t first = 0; first < a.rows; first += count) {
    MultiplyRows(weights, Rows<T>{a, x, first, Tiles(Least(count, a.rows - first))}, parallel);
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
