// Stand-ins for the compiled kernels of Attention, Linear and GatedLinear: what custom_ops/*/kernel_triton.py says they do, as plain
// as can be. One thread of a block does all of the block's work.
//
// Arguments are read by name, in whatever order a kernel's list has them. Those that are fixed in a kernel are read as
// what they are fixed to: a kernel that is started where that is wrong gives wrong numbers.
#pragma once
#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum Type { kNone, kBool, kFloat, kFloat16, kBFloat16 };

struct Arguments {
  const char* const* names;  // of values, and then of constants
  void* const* values;
  const void* const* constants;
  int value_count;

  const void* Find(const char* name) const {
    for (int i = 0; names[i] != nullptr; ++i) {
      if (strcmp(names[i], name) == 0) return i < value_count ? values[i] : constants[i - value_count];
    }
    abort();
  }
  long Whole(const char* name) const { return *static_cast<const int*>(Find(name)); }
  double Real(const char* name) const { return *static_cast<const float*>(Find(name)); }
  char* Address(const char* name) const { return *static_cast<char* const*>(Find(name)); }
};

inline double Load(const char* memory, long at, Type type) {
  if (type == kBool) return reinterpret_cast<const unsigned char*>(memory)[at];
  if (type == kFloat) return reinterpret_cast<const float*>(memory)[at];
  if (type == kFloat16) return static_cast<double>(reinterpret_cast<const _Float16*>(memory)[at]);
  const unsigned bits = static_cast<unsigned>(reinterpret_cast<const unsigned short*>(memory)[at]) << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

inline void Store(char* memory, long at, Type type, double value) {
  if (type == kFloat) reinterpret_cast<float*>(memory)[at] = static_cast<float>(value);
  if (type == kFloat16) reinterpret_cast<_Float16*>(memory)[at] = static_cast<_Float16>(value);
  if (type != kBFloat16) return;
  const float narrow = static_cast<float>(value);
  unsigned bits;
  memcpy(&bits, &narrow, sizeof(bits));
  const bool is_nan = value != value;
  reinterpret_cast<unsigned short*>(memory)[at] =
      static_cast<unsigned short>(is_nan ? 0x7FC0u : (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline long CeilDiv(long a, long b) { return (a + b - 1) / b; }
inline double Infinity() { return __builtin_inf(); }
inline double Power(double score, double top) { return exp(score - (top == -Infinity() ? 0.0 : top)); }

// One row of scores on its way through softmax: what is left to do is a division.
struct Row {
  static constexpr int kMostColumns = 1024;
  double top = -Infinity(), total = 0, sums[kMostColumns] = {};

  // v: the value of column c is value(c).
  template <typename Value>
  void Take(double score, long columns, const Value& value) {
    const double next = score > top || score != score ? score : top, decay = Power(top, next),
                 power = Power(score, next);
    total = (top == -Infinity() ? 0 : total * decay) + power;
    for (long c = 0; c < columns; ++c) sums[c] = (top == -Infinity() ? 0 : sums[c] * decay) + power * value(c);
    top = next;
  }
  double Result(long column, bool is_cleared) const { return is_cleared && !(total > 0) ? 0.0 : sums[column] / total; }
};

struct Attention {
  const Arguments& a;
  Type type, mask;

  long At(const char* name, long i) const { return i == 0 ? 0 : a.Whole(name) * i; }

  double Score(long batch, long head, long query, long key) const {
    const long beyond = key - query - a.Whole("diagonal");
    if (beyond > a.Whole("right") || beyond < -a.Whole("left")) return -Infinity();
    const long kv_head = head / a.Whole("group");
    const long q = At("q_batch", batch) + At("q_head", head) + At("q_row", query);
    const long k = At("k_batch", batch) + At("k_head", kv_head) + At("k_row", key);
    const char *queries = a.Address("q"), *keys = a.Address("k");
    const long size = a.Whole("head_size"), column = a.Whole("k_column");
    double s = 0;
    for (long d = 0; d < size; ++d) s += Load(queries, q + d, type) * Load(keys, k + d * column, type);
    s *= a.Real("scale");
    if (a.Real("softcap") > 0) s = a.Real("softcap") * tanh(s / a.Real("softcap"));
    if (mask == kNone) return s;
    const long at = At("mask_batch", batch) + At("mask_head", head) + At("mask_row", query) + At("mask_column", key);
    const double m = Load(a.Address("mask"), at, mask);
    return mask != kBool ? s + m : m != 0 ? s : a.Real("mask_value");
  }

  void Take(Row* row, long batch, long head, long query, long first, long last, long column, long columns) const {
    const long kv_head = head / a.Whole("group");
    for (long key = first; key < last; ++key) {
      const long v = At("v_batch", batch) + At("v_head", kv_head) + At("v_row", key) + column;
      const char* values = a.Address("v");
      row->Take(Score(batch, head, query, key), columns, [&](long c) { return Load(values, v + c, type); });
    }
  }

  void TakeSink(Row* row, long head, long columns) const {
    if (a.Whole("has_sink") != 0) row->Take(Load(a.Address("sink"), head, type), columns, [](long) { return 0.0; });
  }

  void StoreRow(const Row& row, long batch, long head, long query, long column, long columns, bool is_cleared) const {
    const long y = At("y_batch", batch) + At("y_head", head) + At("y_row", query) + column;
    char* to = a.Address("y");
    for (long c = 0; c < columns; ++c) Store(to, y + c, type, row.Result(c, is_cleared));
  }

  // y of tile_q queries of a head, and of tile_v columns (0: of all).
  void Tile(long tile_q, long tile_v) const {
    const long queries = a.Whole("queries"), size = a.Whole("value_size"), width = tile_v == 0 ? size : tile_v;
    const long tiles = CeilDiv(queries, tile_q), parts = CeilDiv(size, width), heads = a.Whole("heads");
    const long block = blockIdx.x, place = block / (tiles * parts), column = block / tiles % parts * width;
    const long columns = column + width < size ? width : size - column;
    for (long query = block % tiles * tile_q; query < queries && query < (block % tiles + 1) * tile_q; ++query) {
      Row row;
      TakeSink(&row, place % heads, columns);
      Take(&row, place / heads, place % heads, query, 0, a.Whole("keys"), column, columns);
      const bool is_cleared = a.Whole("zero_masked_rows") != 0 || a.Whole("keys") == 0;
      StoreRow(row, place / heads, place % heads, query, column, columns, is_cleared);
    }
  }

  // What split_keys keys give to tile_q rows of the queries of all heads that share them.
  void Split(long tile_q) const {
    const long queries = a.Whole("queries"), group = a.Whole("group"), heads = a.Whole("heads"),
               size = a.Whole("value_size");
    const long splits = a.Whole("splits"), tiles = CeilDiv(group * queries, tile_q), block = blockIdx.x;
    const long part = block % splits, tile = block / splits % tiles, kv_head = block / splits / tiles % (heads / group);
    const long batch = block / splits / tiles / (heads / group), first = part * a.Whole("split_keys");
    const long last = first + a.Whole("split_keys") < a.Whole("keys") ? first + a.Whole("split_keys") : a.Whole("keys");
    for (long member = tile * tile_q; member < group * queries && member < (tile + 1) * tile_q; ++member) {
      const long head = kv_head * group + member / queries, query = member % queries;
      const long place = ((batch * heads + head) * queries + query) * splits + part;
      Row row;
      Take(&row, batch, head, query, first, last, 0, size);
      for (long c = 0; c < size; ++c) Store(a.Address("partial"), place * size + c, kFloat, row.sums[c]);
      Store(a.Address("stats"), place * 2, kFloat, row.top);
      Store(a.Address("stats"), place * 2 + 1, kFloat, row.total);
    }
  }

  // A row of y from its parts.
  void Combine() const {
    const long queries = a.Whole("queries"), heads = a.Whole("heads"), splits = a.Whole("splits");
    const long size = a.Whole("value_size"), block = blockIdx.x, head = block / queries % heads;
    Row row;
    TakeSink(&row, head, size);
    for (long part = 0; part < splits; ++part) {
      const long place = block * splits + part;
      const double total = Load(a.Address("stats"), place * 2 + 1, kFloat);
      if (total == 0) continue;
      // As one key with the score log(sum of powers), and the mean of the values.
      row.Take(Load(a.Address("stats"), place * 2, kFloat) + log(total), size,
               [&](long c) { return Load(a.Address("partial"), place * size + c, kFloat) / total; });
    }
    StoreRow(row, block / queries / heads, head, block % queries, 0, size, a.Whole("zero_masked_rows") != 0);
  }

  // tile_rows rows of past and then new keys or values.
  void Join(long tile_rows) const {
    const long past = a.Whole("past_rows"), all = past + a.Whole("fresh_rows"), size = a.Whole("size");
    const long tiles = CeilDiv(all, tile_rows), block = blockIdx.x, place = block / tiles, heads = a.Whole("heads");
    for (long row = block % tiles * tile_rows; row < all && row < (block % tiles + 1) * tile_rows; ++row) {
      const long fresh =
          At("fresh_batch", place / heads) + At("fresh_head", place % heads) + At("fresh_row", row - past);
      for (long c = 0; c < size; ++c) {
        const double value = row < past ? Load(a.Address("past"), (place * past + row) * size + c, type)
                                        : Load(a.Address("fresh"), fresh + At("fresh_column", c), type);
        Store(a.Address("present"), (place * all + row) * size + c, type, value);
      }
    }
  }
};

inline double Activated(const Arguments& a, double v) {
  const double low = a.Real("activation_alpha"), high = a.Real("activation_beta");
  const auto between = [](double x, double least, double most) { return x < least ? least : x > most ? most : x; };
  switch (a.Whole("activation")) {
    case 0: return v;
    case 1: return v > 0 ? v : 0;
    case 2: return v < 0 ? low * v : v;
    case 3: return between(v, low, high);
    case 4: return 0.5 * v * (1 + erf(v * 0.70710678118654752));
    case 5: return 0.5 * v * (1 + tanh(0.79788456080286536 * (v + 0.044715 * v * v * v)));
    case 6: return v / (1 + exp(-low * v));
    case 7: return 1 / (1 + exp(-v));
    case 8: return tanh(v);
    case 9: return v * between(v / 6 + 0.5, 0, 1);
    case 10: return v > 0 ? v * v : 0;
    case 11: return between(low * v + high, 0, 1);
  }
  abort();
}

// Blocks of tile_m rows and tile_n columns of a product's y, and its sums.
struct Product {
  const Arguments& a;
  Type type;

  template <typename Element>
  void ForBlock(long block, long tile_m, long tile_n, const Element& element) const {
    const long rows = a.Whole("rows"), columns = a.Whole("columns"), across = CeilDiv(columns, tile_n);
    const long first_row = block / across * tile_m, first_column = block % across * tile_n;
    for (long r = first_row; r < rows && r < first_row + tile_m; ++r) {
      for (long c = first_column; c < columns && c < first_column + tile_n; ++c) element(r, c);
    }
  }

  double Sum(long row, long column, long begin, long end) const {
    const char *x = a.Address("x"), *weight = a.Address("weight");
    const long depth = a.Whole("depth"), down = a.Whole("weight_depth"), first = column * a.Whole("weight_column");
    double v = 0;
    for (long k = begin; k < end; ++k) v += Load(x, row * depth + k, type) * Load(weight, first + k * down, type);
    return v;
  }
};

struct Linear : Product {
  void Finish(long row, long column, double v) const {
    const long place = row * a.Whole("columns") + column;
    v *= a.Real("alpha");
    if (a.Whole("has_bias") != 0) v += Load(a.Address("bias"), column, type);
    const double residual = a.Whole("has_residual") != 0 ? Load(a.Address("residual"), place, type) : 0;
    const bool is_last = a.Whole("residual_last") != 0;
    v = Activated(a, is_last ? v : v + residual) + (is_last ? residual : 0);
    Store(a.Address("y"), place, type, v);
  }

  void Tile(long tile_m, long tile_n) const {
    ForBlock(blockIdx.x, tile_m, tile_n, [&](long r, long c) { Finish(r, c, Sum(r, c, 0, a.Whole("depth"))); });
  }

  // Sums over split_depth of the depth, into partial[splits, rows, columns].
  void Split(long tile_m, long tile_n) const {
    const long splits = a.Whole("splits"), part = blockIdx.x % splits, begin = part * a.Whole("split_depth");
    const long end = begin + a.Whole("split_depth"), depth = a.Whole("depth"), columns = a.Whole("columns");
    ForBlock(blockIdx.x / splits, tile_m, tile_n, [&](long r, long c) {
      const double sum = Sum(r, c, begin, end < depth ? end : depth);
      Store(a.Address("partial"), (part * a.Whole("rows") + r) * columns + c, kFloat, sum);
    });
  }

  // `size` elements of y.
  void Combine(long size) const {
    const long all = a.Whole("rows") * a.Whole("columns");
    for (long at = blockIdx.x * size; at < all && at < (blockIdx.x + 1) * size; ++at) {
      double v = 0;
      for (long part = 0; part < a.Whole("splits"); ++part) v += Load(a.Address("partial"), part * all + at, kFloat);
      Finish(at / a.Whole("columns"), at % a.Whole("columns"), v);
    }
  }
};

struct GatedLinear : Product {
  double Half(long row, long column) const {
    const double bias = a.Whole("has_bias") != 0 ? Load(a.Address("bias"), column, type) : 0;
    return Sum(row, column, 0, a.Whole("depth")) + bias;
  }

  double Gate(double v) const {
    switch (a.Whole("activation")) {
      case 0: return v / (1 + exp(-a.Real("activation_alpha") * v));
      case 1: return 0.5 * v * (1 + erf(v * 0.70710678118654752));
      case 2: return 0.5 * v * (1 + tanh(0.79788456080286536 * (v + 0.044715 * v * v * v)));
      case 3: return 1 / (1 + exp(-v));
      case 4: return v > 0 ? v : 0;
    }
    abort();
  }

  void Tile(long tile_m, long tile_n) const {
    ForBlock(blockIdx.x, tile_m, tile_n, [&](long r, long c) {
      const double gate = Gate(Half(r, a.Whole("gate_column") + c)), up = Half(r, a.Whole("up_column") + c);
      Store(a.Address("y"), r * a.Whole("columns") + c, type, gate * up);
    });
  }
};
