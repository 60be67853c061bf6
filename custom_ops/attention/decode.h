// Attention of a few queries against many keys: keys and values are read once, straight from where they are, and shared
// by all heads of a group. Bound by memory, so the keys are split over threads where heads are too few for them.
#pragma once

#include "custom_ops/_runtime/multiply.h"
#include "custom_ops/_runtime/scratch.h"
#include "custom_ops/attention/scores.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr int kFewRows = 8;        // more queries than this, heads of a group counted, are worth a tile
inline constexpr int kFewRowsBlock = 64;  // keys at a time, a multiple of kLanes
inline constexpr int kRowsAtOnce = kVectorRegisters == 32 ? 4 : 2;
inline constexpr int kKeysAtOnce = 4;       // divides kLanes
inline constexpr int64_t kLeastKeys = 256;  // keys to a split

// The part of the softmax that one range of keys gives to each row: enough to merge it with the others.
struct Partial {
  float most[kFewRows];
  float total[kFewRows];
  float* sums;  // [rows][value_stride]
};

// All queries of one batch and key head, against keys [begin, end).
template <typename T>
class FewRowsRunner {
 public:
  ONNXFUSE_INLINE FewRowsRunner(const AttentionArgs<T>& a, int64_t batch, int64_t kv_head, float* memory)
      : a_(a), rows_(static_cast<int>(a.q_heads / a.kv_heads * a.queries)), stride_(RoundUp(a.head_size, 16)),
        keys_(KeysOf(a, batch, kv_head)), values_(ValuesOf(a, batch, kv_head)), q_(memory),
        scores_(memory + kFewRows * stride_) {
    is_plain_ = a.mask_kind == AttentionMask::kNone && a.softcap == 0;
    const Vec scale = Set(is_plain_ ? a.scale * kLog2E : a.scale);
    for (int r = 0; r < rows_; ++r) {
      const int64_t head = kv_head * (a.q_heads / a.kv_heads) + r / a.queries, query = r % a.queries;
      by_[r] = VisibleKeys(a, query);
      mask_at_[r] = MaskOffset(a, batch, head, query);
      const T* q = a.q + batch * a.q_strides.batch + head * a.q_strides.head + query * a.q_strides.seq;
      ForEachVec(a.head_size, [&](int64_t i, int lanes) { Store(q_ + r * stride_ + i, LoadN(q + i, lanes) * scale); });
    }
  }

  // Floats of memory that a runner needs.
  static int64_t Floats(const AttentionArgs<T>& a) { return kFewRows * (RoundUp(a.head_size, 16) + kFewRowsBlock); }

  void Run(int64_t begin, int64_t end, Partial& out) {
    const int64_t value_stride = RoundUp(a_.value_size, 16);
    int64_t first = INT64_MAX, last = -1;
    for (int r = 0; r < rows_; ++r) {
      out.most[r] = -kInfinity;
      out.total[r] = 0;
      if (by_[r].first > by_[r].last) continue;
      first = Least(first, by_[r].first);
      last = Most(last, by_[r].last);
    }
    for (int64_t i = 0; i < rows_ * value_stride; i += kLanes) Store(out.sums + i, Zero());
    begin = Most(begin, first);  // past the end where no row sees a key
    end = Least(end, last + 1);
    while (begin < end) {
      // A block does not span the border of past and current keys, so its rows are evenly spaced.
      int64_t stop = Least(begin + kFewRowsBlock, end);
      if (keys_.IsPast(begin)) stop = Least(stop, keys_.past_count);
      Block(begin, static_cast<int>(stop - begin), value_stride, out);
      begin = stop;
    }
  }

 private:
  ONNXFUSE_INLINE void Block(int64_t key, int count, int64_t value_stride, Partial& out) {
    for (int row = 0; row < rows_; row += kRowsAtOnce) {
      ForRows(row, [&]<int kRows>() { Scores<kRows>(row, key, count); });
    }
    float keep[kFewRows];
    for (int r = 0; r < rows_; ++r) keep[r] = Softmax(r, key, count, out);
    const T* values = values_.Row(key);
    const int64_t stride = values_.IsPast(key) ? values_.size : values_.stride;
    for (int row = 0; row < rows_; row += kRowsAtOnce) {
      float* sums = out.sums + row * value_stride;
      ForRows(row, [&]<int kRows>() { Accumulate<kRows>(row, keep + row, values, stride, count, sums, value_stride); });
    }
  }

  // body.operator()<n>() for the n rows from `row` on, at most kRowsAtOnce.
  template <typename Body>
  ONNXFUSE_INLINE void ForRows(int row, Body&& body) {
    const int rows = rows_ - row < kRowsAtOnce ? rows_ - row : kRowsAtOnce;
    if constexpr (kRowsAtOnce == 4) {
      if (rows == 4) body.template operator()<4>();
      if (rows == 3) body.template operator()<3>();
    }
    if (rows == 2) body.template operator()<2>();
    if (rows == 1) body.template operator()<1>();
  }

  // scores_[r][j] = q[r] . k[key + j], for kRows rows and count keys.
  template <int kRows>
  void Scores(int row, int64_t key, int count) {
    const float* q = q_ + row * stride_;
    float* scores = scores_ + row * kFewRowsBlock;
    if (keys_.dim_stride != 1 && !keys_.IsPast(key)) return ScoresOfColumns<kRows>(q, key, count, scores);
    const T* k = keys_.Row(key);
    const int64_t k_stride = keys_.IsPast(key) ? keys_.size : keys_.stride;
    for (int from = 0; from < count; from += kLanes) {
      Vec sums[kRows][kLanes];
      for (int j = 0; j < kLanes; j += kKeysAtOnce) {
        // Past the last key the last is taken again; its scores are not used.
        const T* rows[kKeysAtOnce];
        for (int i = 0; i < kKeysAtOnce; ++i) rows[i] = k + Least(from + j + i, count - 1) * k_stride;
        Dots<kRows>(q, rows, j, sums);
      }
      for (int r = 0; r < kRows; ++r) Store(scores + r * kFewRowsBlock + from, SumEach(sums[r]));
    }
  }

  // sums[r][j + i] = lane by lane products of q[r] and rows[i].
  template <int kRows>
  ONNXFUSE_INLINE void Dots(const float* q, const T* const (&rows)[kKeysAtOnce], int j, Vec (&sums)[kRows][kLanes]) {
    Vec sum[kRows][kKeysAtOnce];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kKeysAtOnce; ++i) sum[r][i] = Zero();
    }
    ForEachVec(a_.head_size, [&](int64_t d, int lanes) {
      Vec k[kKeysAtOnce];
#pragma GCC unroll 4
      for (int i = 0; i < kKeysAtOnce; ++i) k[i] = LoadN(rows[i] + d, lanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Vec left = LoadN(q + r * stride_ + d, lanes);
#pragma GCC unroll 4
        for (int i = 0; i < kKeysAtOnce; ++i) sum[r][i] = Fma(left, k[i], sum[r][i]);
      }
    });
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kKeysAtOnce; ++i) sums[r][j + i] = sum[r][i];
    }
  }

  // Scores where the keys lie one beside the other: [head_size, keys].
  template <int kRows>
  void ScoresOfColumns(const float* q, int64_t key, int count, float* scores) {
    const T* k = keys_.Row(key);
    ForEachVec(count, [&](int64_t j, int lanes) {
      Vec sum[kRows];
      for (int r = 0; r < kRows; ++r) sum[r] = Zero();
      for (int64_t d = 0; d < a_.head_size; ++d) {
        const Vec right = LoadN(k + d * keys_.dim_stride + j, lanes);
        for (int r = 0; r < kRows; ++r) sum[r] = Fma(Set(q[r * stride_ + d]), right, sum[r]);
      }
      for (int r = 0; r < kRows; ++r) Store(scores + r * kFewRowsBlock + j, sum[r]);
    });
  }

  // Adjusts one row of scores, turns it into probabilities, updates the running softmax; returns what to keep of sums.
  ONNXFUSE_INLINE float Softmax(int row, int64_t key, int count, Partial& out) {
    float* s = scores_ + row * kFewRowsBlock;
    switch (a_.mask_kind) {
      case AttentionMask::kBool: Adjust<uint8_t>(row, key, count, s); break;
      case AttentionMask::kHalf: Adjust<Half>(row, key, count, s); break;
      case AttentionMask::kBFloat16: Adjust<BFloat16>(row, key, count, s); break;
      default: Adjust<float>(row, key, count, s);
    }
    Vec largest = Set(out.most[row]);
    ForEachVec(count, [&](int64_t j, int) { largest = Max(largest, Load(s + j)); });
    const float most = ReduceMax(largest);
    const Vec shift = Set(most == -kInfinity ? 0.0f : most), factor = Set(is_plain_ ? 1.0f : kLog2E);
    const float keep = First(ExpTwo((Set(out.most[row]) - shift) * factor));
    Vec total = Zero();
    ForEachVec(count, [&](int64_t j, int) {
      const Vec p = ExpTwo((Load(s + j) - shift) * factor);
      total = total + p;
      Store(s + j, p);
    });
    out.most[row] = most;
    out.total[row] = out.total[row] * keep + ReduceSum(total);
    return keep;
  }

  // Softcap, mask, and -inf for keys that the row does not see and for lanes past the last key.
  template <typename M>
  ONNXFUSE_INLINE void Adjust(int row, int64_t key, int count, float* s) {
    const M* mask = static_cast<const M*>(a_.mask);
    const bool is_replaced = a_.mask_kind == AttentionMask::kBool;
    const int64_t first = by_[row].first - key, last = Least(by_[row].last - key, count - 1);
    const Vec cap = Set(a_.softcap);
    ForEachVec(count, [&](int64_t j, int lanes) {
      Vec x = Load(s + j);
      if (a_.softcap > 0) x = cap * Tanh(x / cap);
      if (mask != nullptr) {
        const M* at = mask + mask_at_[row] + (key + j) * a_.mask_column;
        const Vec value = a_.mask_column == 1 ? LoadMaskValues(at, lanes) : Set(MaskValue(*at));
        x = is_replaced ? Select(value != Zero(), x, Set(a_.mask_value)) : x + value;
      }
      const int hidden = static_cast<int>(Most(0, Least(first - j, kLanes)));
      const int seen = static_cast<int>(Most(0, Least(last + 1 - j, kLanes)));
      Store(s + j, Select(FirstMask(seen) & !FirstMask(hidden), x, Set(-kInfinity)));
    });
  }

  // sums[r] = sums[r] * keep[r] + p[r] v, for kRows rows.
  template <int kRows>
  void Accumulate(int row, const float* keep, const T* values, int64_t stride, int count, float* sums,
                  int64_t value_stride) {
    constexpr int kVecs = kVectorRegisters / 2 / kRows < 8 ? kVectorRegisters / 2 / kRows : 8;
    const float* p = scores_ + row * kFewRowsBlock;
    int64_t d = 0;
    for (; d + kVecs * kLanes <= a_.value_size; d += kVecs * kLanes) {
      AccumulateVecs<kRows, kVecs>(p, keep, values + d, stride, count, kLanes, sums + d, value_stride);
    }
    ForEachVec(a_.value_size - d, [&](int64_t i, int lanes) {
      AccumulateVecs<kRows, 1>(p, keep, values + d + i, stride, count, lanes, sums + d + i, value_stride);
    });
  }

  template <int kRows, int kVecs>
  ONNXFUSE_INLINE void AccumulateVecs(const float* p, const float* keep, const T* values, int64_t stride, int count,
                                      int lanes, float* sums, int64_t value_stride) {
    Vec sum[kRows][kVecs];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVecs; ++v) sum[r][v] = Load(sums + r * value_stride + v * kLanes) * Set(keep[r]);
    }
    for (int j = 0; j < count; ++j) {
      Vec right[kVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) right[v] = kVecs == 1 ? LoadN(values, lanes) : Load(values + v * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Vec left = Set(p[r * kFewRowsBlock + j]);
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) sum[r][v] = Fma(left, right[v], sum[r][v]);
      }
      values += stride;
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVecs; ++v) Store(sums + r * value_stride + v * kLanes, sum[r][v]);
    }
  }

  const AttentionArgs<T>& a_;
  const int rows_;
  const int64_t stride_;
  const Rows<T> keys_, values_;
  float* const q_;       // [rows][stride]
  float* const scores_;  // [rows][kFewRowsBlock]
  bool is_plain_;
  Visible by_[kFewRows];
  int64_t mask_at_[kFewRows];
};

// Adds `part` to `whole`, which covers other keys of the same rows.
ONNXFUSE_INLINE void Merge(int rows, int64_t value_stride, float to_log2, const Partial& part, Partial& whole) {
  for (int r = 0; r < rows; ++r) {
    const float most = whole.most[r] > part.most[r] || whole.most[r] != whole.most[r] ? whole.most[r] : part.most[r];
    const float shift = most == -kInfinity ? 0.0f : most;
    const Vec keep = ExpTwo(Set((whole.most[r] - shift) * to_log2)),
              add = ExpTwo(Set((part.most[r] - shift) * to_log2));
    whole.most[r] = most;
    whole.total[r] = First(Set(whole.total[r]) * keep + Set(part.total[r]) * add);
    float* sums = whole.sums + r * value_stride;
    for (int64_t i = 0; i < value_stride; i += kLanes) {
      Store(sums + i, Load(sums + i) * keep + Load(part.sums + r * value_stride + i) * add);
    }
  }
}

template <typename T>
void Decode(const AttentionArgs<T>& a, const ParallelFor& parallel) {
  const int64_t keys = a.past_keys + a.new_keys, heads = a.batch * a.kv_heads, value_stride = RoundUp(a.value_size, 16);
  const int rows = static_cast<int>(a.q_heads / a.kv_heads * a.queries);
  const int64_t wanted = (2 * parallel.threads + heads - 1) / heads;
  const int64_t splits = parallel.threads == 1 ? 1 : Most(1, Least(wanted, keys / kLeastKeys));
  const int64_t partial_floats = rows * value_stride;
  float* sums = static_cast<float*>(Scratch(Slot::kShared, static_cast<size_t>(heads * splits * partial_floats) * 4 +
                                                               static_cast<size_t>(heads * splits) * sizeof(Partial)));
  auto* partials = reinterpret_cast<Partial*>(sums + heads * splits * partial_floats);
  const double bytes =
      static_cast<double>(keys * (a.head_size + a.value_size)) * sizeof(T) / static_cast<double>(splits);
  parallel(heads * splits, bytes / 10, [&](int64_t begin, int64_t end) {
    auto* memory = static_cast<float*>(Scratch(Slot::kThread, static_cast<size_t>(FewRowsRunner<T>::Floats(a)) * 4));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / splits, split = i % splits;
      partials[i].sums = sums + i * partial_floats;
      FewRowsRunner<T>(a, head / a.kv_heads, head % a.kv_heads, memory)
          .Run(keys * split / splits, keys * (split + 1) / splits, partials[i]);
    }
  });
  const float to_log2 = a.mask_kind == AttentionMask::kNone && a.softcap == 0 ? 1.0f : kLog2E;
  for (int64_t head = 0; head < heads; ++head) {
    Partial& whole = partials[head * splits];
    for (int64_t split = 1; split < splits; ++split)
      Merge(rows, value_stride, to_log2, partials[head * splits + split], whole);
    for (int r = 0; r < rows; ++r) {
      const AttentionStrides& s = a.y_strides;
      const int64_t q_head = head % a.kv_heads * (a.q_heads / a.kv_heads) + r / a.queries;
      FinishRow(a, whole.sums + r * value_stride, true, WithSink(a, q_head, whole.most[r], to_log2, whole.total[r]),
                a.y + head / a.kv_heads * s.batch + q_head * s.head + r % a.queries * s.seq);
    }
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
