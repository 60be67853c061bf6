// Attention of many queries: tiles of queries, one pass over the keys for each, online softmax.
#pragma once

#include "custom_ops/_runtime/scratch.h"
#include "custom_ops/attention/products.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr int kMostChunks = 4;  // chunks of queries to a tile
inline constexpr int64_t kMostRows = kMostChunks * kChunk;
inline constexpr int kMostBlockKeys = 128;     // keys to a block
inline constexpr int64_t kBlockFloats = 8192;  // of keys, and of values, to a block: 32 KB, so that L1 and L2 hold them

// Keys to a block. More make the second product's loop longer, fewer keep the block near.
ONNXFUSE_INLINE int64_t BlockKeys(int64_t head_size, int64_t value_size) {
  const int64_t fitting = kBlockFloats / Most(1, Most(head_size, value_size)) / 8 * 8;
  return Most(16, Least(fitting, kMostBlockKeys));
}

// One thread's memory for a tile.
struct Workspace {
  float* queries;  // [chunks][head_size][kChunk]
  float* keys;     // [block_keys][head_size padded]
  float* values;   // [block_keys][value_size padded]
  float* scores;   // [block_keys][kChunk]
  float* sums;     // [chunks * kChunk][value_size padded]
  int64_t key_stride, value_stride, block_keys;
  Chunk chunks[kMostChunks];
  Running running[kMostChunks];
};

ONNXFUSE_INLINE Workspace* NewWorkspace(int64_t head_size, int64_t value_size) {
  const int64_t key_stride = RoundUp(head_size, 16), value_stride = RoundUp(value_size, 16);
  const int64_t block_keys = BlockKeys(head_size, value_size);
  const int64_t parts[] = {kMostChunks * kChunk * head_size, block_keys * key_stride, block_keys * value_stride,
                           block_keys * kChunk, kMostChunks * kChunk * value_stride};
  int64_t floats = 0;
  for (int64_t part : parts) floats += RoundUp(part, 16);
  constexpr int64_t kHead = (sizeof(Workspace) + 63) / 64 * 64;
  char* memory = static_cast<char*>(Scratch(Slot::kThread, static_cast<size_t>(kHead + floats * 4)));
  auto* w = reinterpret_cast<Workspace*>(memory);
  float* next = reinterpret_cast<float*>(memory + kHead);
  float** pointers[] = {&w->queries, &w->keys, &w->values, &w->scores, &w->sums};
  for (int i = 0; i < 5; ++i) {
    *pointers[i] = next;
    next += RoundUp(parts[i], 16);
  }
  w->key_stride = key_stride;
  w->value_stride = value_stride;
  w->block_keys = block_keys;
  return w;
}

// Rows [begin, end) of one batch and key head. A row is a query of one of the heads that share the key head: row r is
// query r % queries of the (r / queries)th of them.
struct Tile {
  int64_t batch, kv_head, begin, end;
};

template <typename T>
class TileRunner {
 public:
  ONNXFUSE_INLINE TileRunner(const AttentionArgs<T>& a, const Tile& tile, Workspace* w)
      : a_(a), tile_(tile), w_(*w), chunks_(static_cast<int>((tile.end - tile.begin + kChunk - 1) / kChunk)) {
    is_plain_ = a.mask_kind == AttentionMask::kNone && a.softcap == 0;
    to_log2_ = is_plain_ ? 1.0f : kLog2E;
  }

  void Run() {
    Visible keys{INT64_MAX, -1};
    for (int c = 0; c < chunks_; ++c) {
      StartChunk(c);
      const Visible& seen = w_.chunks[c].by_any;
      if (seen.first <= seen.last) keys = {Least(keys.first, seen.first), Most(keys.last, seen.last)};
    }
    const Rows<T> key_rows = KeysOf(a_, tile_.batch, tile_.kv_head);
    const Rows<T> value_rows = ValuesOf(a_, tile_.batch, tile_.kv_head);
    for (int64_t begin = keys.first; begin <= keys.last; begin += w_.block_keys) {
      const int64_t end = Least(begin + w_.block_keys, keys.last + 1);
      Block block{w_.keys, w_.values, w_.key_stride, w_.value_stride};
      ReadRows(key_rows, begin, end, 1, w_.keys, &block.keys, &block.key_stride);
      ReadRows(value_rows, begin, end, kLanes, w_.values, &block.values, &block.value_stride);
      for (int c = 0; c < chunks_; ++c) RunBlock(c, begin, end, block);
    }
    for (int c = 0; c < chunks_; ++c) Finish(c);
  }

 private:
  ONNXFUSE_INLINE int64_t HeadOf(int64_t row) const {
    return tile_.kv_head * (a_.q_heads / a_.kv_heads) + row / a_.queries;
  }
  ONNXFUSE_INLINE int64_t QueryOf(int64_t row) const { return row % a_.queries; }

  ONNXFUSE_INLINE void StartChunk(int c) {
    Chunk& chunk = w_.chunks[c];
    const int64_t first = tile_.begin + c * kChunk;
    chunk.count = static_cast<int>(Least(kChunk, tile_.end - first));
    chunk.vecs = (chunk.count + kLanes - 1) / kLanes;
    chunk.by_any = {INT64_MAX, -1};
    chunk.by_all = {0, INT64_MAX};
    chunk.has_one_mask = true;
    for (int i = 0; i < kChunk; ++i) {
      const int64_t row = first + Least(i, chunk.count - 1);
      const Visible keys = VisibleKeys(a_, QueryOf(row));
      chunk.by[i] = keys;
      if (keys.first <= keys.last) {
        chunk.by_any = {Least(chunk.by_any.first, keys.first), Most(chunk.by_any.last, keys.last)};
      }
      chunk.by_all = {Most(chunk.by_all.first, keys.first), Least(chunk.by_all.last, keys.last)};
      chunk.mask_at[i] = MaskOffset(a_, tile_.batch, HeadOf(row), QueryOf(row));
      chunk.has_one_mask = chunk.has_one_mask && chunk.mask_at[i] == chunk.mask_at[0];
    }
    if (chunk.by_any.last < 0) chunk.by_any.first = 0;
    PackQueries(c, first, chunk);
    Running& running = w_.running[c];
    for (int i = 0; i < kChunk; i += kLanes) {
      Store(running.most + i, Set(-kInfinity));
      Store(running.total + i, Zero());
    }
    running.is_started = false;
  }

  ONNXFUSE_INLINE void PackQueries(int c, int64_t first, const Chunk& chunk) {
    const Vec scale = Set(is_plain_ ? a_.scale * kLog2E : a_.scale);
    float* out = w_.queries + int64_t{c} * kChunk * a_.head_size;
    for (int i = 0; i < chunk.vecs * kLanes; i += kLanes) {
      const T* rows[kLanes];
      for (int r = 0; r < kLanes; ++r) rows[r] = i + r < chunk.count ? QueryRow(first + i + r) : nullptr;
      ForEachVec(a_.head_size,
                 [&](int64_t d, int width) { TransposeRows(rows, d, width, scale, out + d * kChunk + i, kChunk); });
    }
  }

  ONNXFUSE_INLINE const T* QueryRow(int64_t row) const {
    const AttentionStrides& s = a_.q_strides;
    return a_.q + tile_.batch * s.batch + HeadOf(row) * s.head + QueryOf(row) * s.seq;
  }

  // Keys [begin, end), which lie in `block`, for one chunk of queries.
  ONNXFUSE_INLINE void RunBlock(int c, int64_t begin, int64_t end, Block block) {
    const Chunk& chunk = w_.chunks[c];
    const int64_t first = Most(begin, chunk.by_any.first);
    const int count = static_cast<int>(Least(end, chunk.by_any.last + 1) - first);
    if (count <= 0) return;
    block.keys += (first - begin) * block.key_stride;
    block.values += (first - begin) * block.value_stride;
    Running& running = w_.running[c];
    alignas(64) float most[kChunk];
    const bool is_mask_far = a_.mask_column == 1 && !chunk.has_one_mask;
    const float* queries = w_.queries + int64_t{c} * kChunk * a_.head_size;
    ForEachVecGroup(chunk.vecs, [&]<int kVecs>(int vec) {
      // A few rows of the mask at a time: all at once they would hold up what follows.
      auto fetch_mask = [&](int key, int next) {
        if (!is_mask_far) return;
        const int begin = vec * kLanes, lanes = kVecs * kLanes, end = begin + lanes * next / count;
        PrefetchMask(a_.mask, MaskElement(), chunk, begin + lanes * key / count, end < chunk.count ? end : chunk.count,
                     first, count);
      };
      ScoreBlock<kVecs>(block, count, queries + vec * kLanes, a_.head_size, w_.scores + vec * kLanes,
                        most + vec * kLanes, fetch_mask);
    });
    const bool is_whole = is_plain_ && first >= chunk.by_all.first && first + count - 1 <= chunk.by_all.last;
    if (!is_whole) Adjust(chunk, first, count, most);
    Exponentiate(chunk.vecs, count, w_.scores, most, to_log2_, running);
    const int value_vecs = static_cast<int>(RoundUp(a_.value_size, kLanes) / kLanes);
    float* sums = w_.sums + int64_t{c} * kChunk * w_.value_stride;
    ForEachVecGroup(value_vecs, [&]<int kVecs>(int vec) {
      AddBlock<kVecs>(block, vec, count, w_.scores, chunk.count, running, sums, w_.value_stride);
    });
    running.is_started = true;
  }

  ONNXFUSE_INLINE int64_t MaskElement() const {
    return a_.mask_kind == AttentionMask::kBool ? 1 : a_.mask_kind == AttentionMask::kFloat ? 4 : 2;
  }

  void Adjust(const Chunk& chunk, int64_t first, int keys, float* most) {
    switch (a_.mask_kind) {
      case AttentionMask::kBool: return AdjustScores<uint8_t>(a_, chunk, first, keys, w_.scores, most);
      case AttentionMask::kHalf: return AdjustScores<Half>(a_, chunk, first, keys, w_.scores, most);
      case AttentionMask::kBFloat16: return AdjustScores<BFloat16>(a_, chunk, first, keys, w_.scores, most);
      default: return AdjustScores<float>(a_, chunk, first, keys, w_.scores, most);
    }
  }

  ONNXFUSE_INLINE void Finish(int c) {
    const Chunk& chunk = w_.chunks[c];
    const Running& running = w_.running[c];
    for (int i = 0; i < chunk.count; ++i) {
      const int64_t row = tile_.begin + c * kChunk + i;
      const AttentionStrides& s = a_.y_strides;
      const float total = WithSink(a_, HeadOf(row), running.most[i], to_log2_, running.total[i]);
      FinishRow(a_, w_.sums + (c * kChunk + i) * w_.value_stride, running.is_started, total,
                a_.y + tile_.batch * s.batch + HeadOf(row) * s.head + QueryOf(row) * s.seq);
    }
  }

  const AttentionArgs<T>& a_;
  const Tile tile_;
  Workspace& w_;
  const int chunks_;
  bool is_plain_;
  float to_log2_;
};

// How the rows of all heads are cut into tiles.
struct Tiling {
  int64_t spans;  // of one key head: heads with few queries share a span, so that their rows fill a tile together
  int64_t span_rows;
  int64_t tiles;      // of one span
  int64_t tile_rows;  // at most

  template <typename T>
  ONNXFUSE_INLINE static Tiling Of(const AttentionArgs<T>& a, int threads) {
    constexpr int64_t kTilesPerThread = 4;  // so that a thread that is late does not hold up the rest for long
    const int64_t group = a.q_heads / a.kv_heads, spans = a.queries < kChunk ? 1 : group,
                  rows = group * a.queries / spans;
    const int64_t all_spans = a.batch * a.kv_heads * spans;
    const int64_t least = threads == 1 ? 1 : (kTilesPerThread * threads + all_spans - 1) / all_spans;
    const int64_t tiles = Most((rows + kMostRows - 1) / kMostRows, Least(least, (rows + kChunk - 1) / kChunk));
    const int64_t tile_rows = RoundUp((rows + tiles - 1) / tiles, kLanes);
    return {spans, rows, (rows + tile_rows - 1) / tile_rows, tile_rows};
  }

  // Tile i of all. Early and late tiles alternate: where there is a diagonal these see fewer keys than those.
  ONNXFUSE_INLINE Tile At(int64_t i, int64_t kv_heads) const {
    const int64_t at = i % tiles, tile = at % 2 == 0 ? at / 2 : tiles - 1 - at / 2;
    const int64_t span = i / tiles % spans, head = i / tiles / spans;
    const int64_t first = span * span_rows + tile * tile_rows;
    return {head / kv_heads, head % kv_heads, first, Least(first + tile_rows, (span + 1) * span_rows)};
  }
};

template <typename T>
void Prefill(const AttentionArgs<T>& a, const ParallelFor& parallel) {
  const Tiling tiling = Tiling::Of(a, parallel.threads);
  const int64_t keys = a.past_keys + a.new_keys;
  const double flops = 2.0 * static_cast<double>(tiling.tile_rows * keys * (a.head_size + a.value_size));
  constexpr double kFlopsPerNanosecond = 64;
  parallel(a.batch * a.kv_heads * tiling.spans * tiling.tiles, flops / kFlopsPerNanosecond,
           [&](int64_t begin, int64_t end) {
             Workspace* workspace = NewWorkspace(a.head_size, a.value_size);
             for (int64_t i = begin; i < end; ++i) TileRunner<T>(a, tiling.At(i, a.kv_heads), workspace).Run();
           });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
