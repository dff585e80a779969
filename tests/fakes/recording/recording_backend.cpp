// One function writes; the others name what they were given.
#include "tests/fakes/recording/recording_backend.h"

#include <cstring>
#include <iterator>

#include "kernels/base/error.h"

namespace moetune::recording {
namespace {

/// Far enough from each other for anything that a test trains.
constexpr int64_t kFirstAddress = int64_t{1} << 44;
constexpr int64_t kRangeBytes = int64_t{1} << 40;
constexpr int64_t kPageBytes = int64_t{64} << 10;

char* address(int64_t value) { return reinterpret_cast<char*>(value); }
int64_t number_of(const void* address) { return reinterpret_cast<int64_t>(address); }

class AddressRange final : public kernels::DeviceRange {
 public:
  explicit AddressRange(int64_t number) { base_ = address(kFirstAddress + number * kRangeBytes); }
  void grow(int64_t bytes) override {
    usable_bytes_ = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
};

Operand number_at(std::string_view role, const double* data) {
  return flat(role, data, base::DType::f64, 1);
}

}  // namespace

Entry& RecordingBackend::write(std::string_view function, std::initializer_list<Operand> operands,
                               std::initializer_list<Number> numbers) {
  Entry& entry = tape_.emplace_back();
  entry.name = function;
  entry.stream = stream_;
  for (const Operand& each : operands) {
    if (each.data != nullptr) entry.operands.push_back(each);
  }
  entry.numbers = numbers;
  return entry;
}

Operand RecordingBackend::positions_at(std::string_view role, const kernels::Tensor& tensor) const {
  Operand made = operand(role, tensor);
  if (made.data == nullptr) return made;
  const int64_t at = number_of(made.data);
  const auto after = uploaded_.upper_bound(at);
  MOETUNE_CHECK(after != uploaded_.begin(), "{} were never written", role);
  const auto& [start, bytes] = *std::prev(after);
  MOETUNE_CHECK(at + made.bytes() <= start + static_cast<int64_t>(bytes.size()),
                "{} end behind what was written", role);
  made.values.resize(static_cast<size_t>(made.numel()));
  std::memcpy(made.values.data(), bytes.data() + (at - start), static_cast<size_t>(made.bytes()));
  return made;
}

void* RecordingBackend::allocate(int64_t /*bytes*/) {
  return address(kFirstAddress + num_ranges_++ * kRangeBytes);
}

std::unique_ptr<kernels::DeviceRange> RecordingBackend::make_range(int64_t /*most_bytes*/) {
  return std::make_unique<AddressRange>(num_ranges_++);
}

void RecordingBackend::fill_zero(void* pointer, int64_t bytes) {
  write("fill_zero", {bytes_at("to", pointer, bytes)});
}

void RecordingBackend::copy_to_device(void* device, const void* host, int64_t bytes) {
  write("copy_to_device", {bytes_at("to", device, bytes)});
  const auto* from = static_cast<const char*>(host);
  uploaded_[number_of(device)].assign(from, from + bytes);
}

void RecordingBackend::copy_to_host(void* host, const void* device, int64_t bytes) {
  write("copy_to_host", {bytes_at("from", device, bytes)});
  std::memset(host, 0, static_cast<size_t>(bytes));
  if (answer_) answer_(num_fetches_++, host, bytes);
}

void RecordingBackend::copy_on_device(void* to, const void* from, int64_t bytes) {
  write("copy_on_device", {bytes_at("to", to, bytes), bytes_at("from", from, bytes)});
}

kernels::DeviceEvent RecordingBackend::record_event() {
  write("record_event", {}, {{"event", ++num_events_}});
  return {address(num_events_)};
}

void RecordingBackend::wait_event(const kernels::DeviceEvent& event) {
  write("wait_event", {}, {{"event", reinterpret_cast<int64_t>(event.native)}});
}

void RecordingBackend::synchronize() { write("synchronize", {}).stream = -1; }

void RecordingBackend::begin_capture() { write("begin_capture", {}); }

int RecordingBackend::end_capture() {
  write("end_capture", {}, {{"graph", num_graphs_}});
  return static_cast<int>(num_graphs_++);
}

void RecordingBackend::launch_graph(int graph) { write("launch_graph", {}, {{"graph", graph}}); }

void RecordingBackend::gemm(const kernels::GemmArgs& args) {
  write("gemm",
        {operand("a", args.a), operand("b", args.b), operand("c", args.c),
         operand("bias", args.bias)},
        {{"trans_a", args.trans_a}, {"trans_b", args.trans_b}, {"accumulate", args.accumulate}});
}

void RecordingBackend::grouped_gemm(const kernels::GroupedGemmArgs& args) {
  constexpr std::string_view kNames[] = {"grouped_gemm.forward", "grouped_gemm.dgrad",
                                         "grouped_gemm.wgrad"};
  write(kNames[static_cast<size_t>(args.mode)],
        {operand("x", args.x), operand("y", args.y), operand("w", args.w),
         operand("rows", args.rows), operand("offsets", args.offsets)});
}

void RecordingBackend::rms_norm(const kernels::RmsNormArgs& args) {
  write("rms_norm",
        {operand("x", args.x), operand("weight", args.weight), operand("out", args.out),
         operand("rstd", args.rstd)},
        {{"heads", args.heads}});
}

void RecordingBackend::rms_norm_backward(const kernels::RmsNormBackwardArgs& args) {
  write("rms_norm_backward",
        {operand("x", args.x), operand("weight", args.weight), operand("rstd", args.rstd),
         operand("dy", args.dy), operand("dx", args.dx), operand("dweight", args.dweight)},
        {{"heads", args.heads}, {"accumulate", args.accumulate_dx}});
}

void RecordingBackend::rope(const kernels::RopeArgs& args) {
  write("rope",
        {operand("x", args.x), operand("cos", args.cos), operand("sin", args.sin),
         operand("positions", args.positions)},
        {{"heads", args.heads}, {"inverse", args.inverse}});
}

void RecordingBackend::attention(const kernels::AttentionArgs& args) {
  write("attention",
        {operand("q", args.q), operand("k", args.k), operand("v", args.v), operand("out", args.out),
         operand("lse", args.lse), positions_at("positions", args.positions),
         positions_at("key_positions", args.key_positions)},
        {{"batch", args.batch},
         {"heads", args.heads},
         {"kv_heads", args.kv_heads},
         {"window", args.window}});
}

void RecordingBackend::attention_backward(const kernels::AttentionBackwardArgs& args) {
  const kernels::AttentionArgs& forward = args.forward;
  write("attention_backward",
        {operand("q", forward.q), operand("k", forward.k), operand("v", forward.v),
         operand("out", forward.out), operand("lse", forward.lse),
         positions_at("positions", forward.positions),
         positions_at("key_positions", forward.key_positions), operand("dout", args.dout),
         operand("dq", args.dq), operand("dk", args.dk), operand("dv", args.dv)},
        {{"batch", forward.batch},
         {"heads", forward.heads},
         {"kv_heads", forward.kv_heads},
         {"window", forward.window},
         {"accumulate", args.accumulate}});
}

void RecordingBackend::attention_merge(const kernels::AttentionMergeArgs& args) {
  write("attention_merge",
        {operand("out", args.out), operand("lse", args.lse), operand("part_out", args.part_out),
         operand("part_lse", args.part_lse)},
        {{"heads", args.heads}});
}

void RecordingBackend::gated_act(const kernels::GatedActArgs& args) {
  write("gated_act", {operand("x", args.x), operand("probs", args.probs), operand("out", args.out),
                      operand("rows", args.rows)});
}

void RecordingBackend::gated_act_backward(const kernels::GatedActBackwardArgs& args) {
  write("gated_act_backward", {operand("x", args.forward.x), operand("probs", args.forward.probs),
                               operand("dout", args.dout), operand("dx", args.dx),
                               operand("dprobs", args.dprobs), operand("rows", args.forward.rows)});
}

void RecordingBackend::router(const kernels::RouterArgs& args) {
  write("router",
        {operand("logits", args.logits), operand("probs", args.probs), operand("lse", args.lse),
         operand("indices", args.indices), operand("weights", args.weights),
         operand("counts", args.counts), operand("prob_sums", args.prob_sums)});
}

void RecordingBackend::router_backward(const kernels::RouterBackwardArgs& args) {
  write("router_backward",
        {operand("probs", args.probs), operand("lse", args.lse), operand("indices", args.indices),
         operand("weights", args.weights), operand("dweights", args.dweights),
         operand("aux_scale", args.aux_scale), operand("dlogits", args.dlogits)});
}

void RecordingBackend::aux_loss(const kernels::AuxLossArgs& args) {
  write("aux_loss",
        {operand("sums", args.sums), operand("lse", args.lse),
         number_at("load_balance", args.load_balance), number_at("z_loss", args.z_loss)});
}

void RecordingBackend::route_plan(const kernels::RoutePlanArgs& args) {
  write("route_plan",
        {operand("indices", args.indices), operand("order", args.order),
         operand("position", args.position), operand("counts", args.counts),
         operand("offsets", args.offsets)},
        {{"num_chunks", args.num_chunks}});
}

void RecordingBackend::expand_experts(const kernels::ExpandExpertsArgs& args) {
  write("expand_experts", {operand("indices", args.indices), operand("out", args.out)},
        {{"copies", args.copies}, {"local_experts", args.local_experts}});
}

void RecordingBackend::gather_rows(const kernels::GatherRowsArgs& args) {
  write("gather_rows",
        {operand("x", args.x), operand("out", args.out), operand("index", args.index),
         operand("position", args.position)},
        {{"divisor", args.divisor}});
}

void RecordingBackend::scatter_rows(const kernels::ScatterRowsArgs& args) {
  write("scatter_rows",
        {operand("x", args.x), operand("out", args.out), operand("index", args.index)});
}

void RecordingBackend::combine_rows(const kernels::CombineRowsArgs& args) {
  write("combine_rows",
        {operand("x", args.x), operand("out", args.out), operand("position", args.position)},
        {{"topk", args.topk}});
}

void RecordingBackend::embedding(const kernels::EmbeddingArgs& args) {
  write("embedding",
        {operand("table", args.table), operand("tokens", args.tokens), operand("out", args.out)},
        {{"first_row", args.first_row}, {"vocabulary", args.vocabulary}});
}

void RecordingBackend::embedding_backward(const kernels::EmbeddingBackwardArgs& args) {
  write(
      "embedding_backward",
      {operand("dtable", args.dtable), operand("tokens", args.tokens), operand("dout", args.dout)},
      {{"first_row", args.first_row}, {"vocabulary", args.vocabulary}});
}

void RecordingBackend::cross_entropy_stats(const kernels::CrossEntropyStatsArgs& args) {
  write("cross_entropy_stats",
        {operand("logits", args.logits), operand("targets", args.targets),
         operand("stats", args.stats)},
        {{"first_col", args.first_col}});
}

void RecordingBackend::cross_entropy(const kernels::CrossEntropyArgs& args) {
  write("cross_entropy",
        {operand("logits", args.logits), operand("targets", args.targets),
         number_at("loss_sum", args.loss_sum), operand("stats", args.stats)},
        {{"first_col", args.first_col}});
}

void RecordingBackend::copy(const kernels::CopyArgs& args) {
  write("copy", {operand("x", args.x), operand("y", args.y)}, {{"accumulate", args.accumulate}});
}

void RecordingBackend::bias_backward(const kernels::BiasBackwardArgs& args) {
  write("bias_backward", {operand("dy", args.dy), operand("dbias", args.dbias)});
}

void RecordingBackend::adamw(const kernels::AdamWArgs& args) {
  Entry& entry = write("adamw", {});
  for (const kernels::AdamWArgs::Slice& slice : args.slices) {
    entry.operands.push_back(flat("weight", slice.weight, args.weight_dtype, slice.numel));
    entry.operands.push_back(flat("master", slice.master, args.dtype, slice.numel));
    entry.operands.push_back(flat("m", slice.m, args.m_dtype, slice.numel));
    entry.operands.push_back(flat("v", slice.v, args.v_dtype, slice.numel));
    entry.operands.push_back(flat("grad", slice.grad, args.dtype, slice.numel));
  }
}

void RecordingBackend::squared_norm(const kernels::SquaredNormArgs& args) {
  Entry& entry = write("squared_norm", {number_at("result", args.result)});
  for (const kernels::SquaredNormArgs::Slice& slice : args.slices) {
    entry.operands.push_back(flat("data", slice.data, args.dtype, slice.numel));
  }
}

void RecordingBackend::sum(const kernels::SumArgs& args) {
  Entry& entry = write("sum", {flat("target", args.target, args.dtype, args.numel)});
  for (const void* source : args.sources) {
    entry.operands.push_back(flat("source", source, args.dtype, args.numel));
  }
}

}  // namespace moetune::recording
