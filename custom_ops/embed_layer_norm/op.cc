// EmbedLayerNorm for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/embed_layer_norm/kernel.h"

namespace onnxfuse {
namespace {

enum Operand { kIds, kTable, kIds2, kTable2, kIds3, kTable3, kScale, kBias };

// Elements from one index to the next of each axis of `first`, 0 where `ids` is broadcast along it.
std::vector<int64_t> BroadcastSteps(const Call& call, const char* name, const Tensor& first, const Tensor& ids) {
  std::vector<int64_t> steps(first.shape.size(), 0);
  int64_t step = 1;
  for (int64_t back = 1; back <= ids.rank(); ++back) {
    const int64_t size = ids.shape[static_cast<size_t>(ids.rank() - back)], axis = first.rank() - back;
    if (axis < 0 || (size != 1 && size != first.shape[static_cast<size_t>(axis)]))
      call.Fail(name, " must broadcast to ids ", first.shape, "; got ", ids.shape);
    steps[static_cast<size_t>(axis)] = size == 1 ? 0 : step;
    step *= size;
  }
  return steps;
}

int64_t PlaceOf(int64_t row, const std::vector<int64_t>& shape, const std::vector<int64_t>& steps) {
  int64_t place = 0;
  for (size_t axis = shape.size(); axis-- > 0; row /= shape[axis]) place += row % shape[axis] * steps[axis];
  return place;
}

// For each row of the result the row of a table that `ids`, broadcast to the first ones, says. Fails where that is
// outside of the table.
std::vector<int64_t> RowsOf(const Call& call, const char* name, const Tensor& first, const Tensor& ids,
                            const Tensor& table) {
  std::vector<int64_t> rows;
  if (!ids.is_given) return rows;
  const std::vector<int64_t> steps = BroadcastSteps(call, name, first, ids);
  const int64_t size = table.shape[0];
  rows.resize(static_cast<size_t>(first.Count()));
  for (size_t row = 0; row < rows.size(); ++row) {
    const size_t at = static_cast<size_t>(PlaceOf(static_cast<int64_t>(row), first.shape, steps));
    const int64_t index = ids.type == Type::kInt32 ? ids.As<int32_t>()[at] : ids.As<int64_t>()[at];
    rows[row] = index < 0 ? index + size : index;
    if (rows[row] < 0 || rows[row] >= size)
      call.Fail("an index of ", name, " must be inside its table of ", size, " rows; got ", index);
  }
  return rows;
}

template <typename T>
void Run(const Call& call, const std::vector<int64_t> (&rows)[3]) {
  const Tensor y = call.Output(0), sum = call.Output(1);
  auto embedding = [&](int which, Operand table) {
    return Embedding<T>{call.Input(table).template As<T>(), rows[which].data()};
  };
  EmbedLayerNormArgs<T> args;
  args.rows = y.Rows();
  args.cols = y.Columns();
  args.first = embedding(0, kTable);
  args.second = embedding(1, kTable2);
  args.third = embedding(2, kTable3);
  args.scale = call.Input(kScale).As<T>();
  args.bias = call.Input(kBias).As<T>();
  args.y = y.As<T>();
  args.sum = sum.is_given ? sum.As<T>() : nullptr;
  args.epsilon = call.FloatOf("epsilon");
  EmbedLayerNormCpu(args, call.Parallel());
}

void Compute(const Call& call) {
  const Tensor& ids = call.Input(kIds);
  if (call.Input(kIds3).is_given != call.Input(kTable3).is_given)
    call.Fail("ids_3 and table_3 must both be given, or neither");
  const std::vector<int64_t> rows[3] = {RowsOf(call, "ids", ids, ids, call.Input(kTable)),
                                        RowsOf(call, "ids_2", ids, call.Input(kIds2), call.Input(kTable2)),
                                        RowsOf(call, "ids_3", ids, call.Input(kIds3), call.Input(kTable3))};
  ForFloatType(call.Input(kTable).type, [&]<typename T>() { Run<T>(call, rows); });
}

const Register kEmbedLayerNorm({
    .signature = "EmbedLayerNorm(ids: I[...], table: T[v, n], ids_2: I, table_2: T[v2, n], ids_3: I?, "
                 "table_3: T[v3, n]?, scale: T[n]?, bias: T[n]?) -> (y: T[..., n], sum: T[..., n]?)",
    .types = {{"T", FloatTypes()}, {"I", {Type::kInt64, Type::kInt32}}},
    .attributes = {Float("epsilon", 1e-5f, 0.0f)},
    .compute = &Compute,
});

}  // namespace
}  // namespace onnxfuse
