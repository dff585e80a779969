// The table of call_work.h: one row a function of the backend, by the contracts of
// kernels/op_args.h.
#include "tests/fakes/recording/call_work.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace moetune::recording {
namespace {

/// How a function treats one member of its arguments.
enum class Does : uint8_t {
  reads,
  writes,
  updates,
  adds,  ///< updates where the call says `accumulate`, else writes
};

struct RoleRow {
  std::string_view role;
  Does does = Does::reads;
  std::string_view picked_by = {};  ///< the list of rows that are touched
};

struct FunctionRow {
  std::string_view name;
  std::vector<RoleRow> roles;
  /// Operands whose elements are what the function works on.
  std::vector<std::string_view> works_on = {};
  int64_t (*flops)(const Entry& call) = nullptr;
};

constexpr auto kReads = Does::reads;
constexpr auto kWrites = Does::writes;
constexpr auto kUpdates = Does::updates;
constexpr auto kAdds = Does::adds;

const Operand& at(const Entry& call, std::string_view role) {
  const Operand* found = call.find(role);
  MOETUNE_CHECK(found != nullptr, "{} without {}", call.name, role);
  return *found;
}

int64_t gemm_flops(const Entry& call) {
  const Operand& a = at(call, "a");
  const Operand& c = at(call, "c");
  return 2 * c.numel() * (call.number("trans_a").value() != 0 ? a.rows : a.cols);
}

/// A call whose experts got no rows has nothing of them.
int64_t grouped_flops(const Entry& call) {
  const Operand* x = call.find("x");
  const Operand* y = call.find("y");
  if (x == nullptr || y == nullptr) return 0;
  const Operand* rows = call.find("rows");
  return 2 * (rows != nullptr ? rows->rows : x->rows) * x->cols * y->cols;
}

/// (query, key) pairs that the call's queries see, position by position: keys up to their own, or
/// the last `window` of them. Keys without positions of their own lie from the first one on.
int64_t visible_pairs(const Entry& call) {
  const int64_t batch = call.number("batch").value();
  const int64_t window = call.number("window").value();
  const Operand* listed = call.find("key_positions");
  const int64_t num_keys = at(call, "k").rows / batch;
  int64_t pairs = 0;
  for (const int64_t query : at(call, "positions").values) {
    for (int64_t i = 0; i < num_keys; ++i) {
      const int64_t key = listed != nullptr ? listed->values[static_cast<size_t>(i)] : i;
      if (key <= query && (window == 0 || key > query - window)) ++pairs;
    }
  }
  return batch * pairs;
}

int64_t attention_flops_of(const Entry& call, int64_t each) {
  return each * visible_pairs(call) * at(call, "q").cols;
}
int64_t attention_flops(const Entry& call) { return attention_flops_of(call, 4); }
int64_t attention_backward_flops(const Entry& call) { return attention_flops_of(call, 10); }

const std::vector<FunctionRow>& functions() {
  static const std::vector<FunctionRow> kFunctions = {
      {"gemm", {{"a"}, {"b"}, {"c", kAdds}, {"bias"}}, {}, &gemm_flops},
      {"grouped_gemm.forward",
       {{"x", kReads, "rows"}, {"w"}, {"y", kWrites, "rows"}, {"rows"}, {"offsets"}},
       {},
       &grouped_flops},
      {"grouped_gemm.dgrad",
       {{"y", kReads, "rows"}, {"w"}, {"x", kWrites, "rows"}, {"rows"}, {"offsets"}},
       {},
       &grouped_flops},
      {"grouped_gemm.wgrad", {{"x"}, {"y"}, {"w", kUpdates}, {"offsets"}}, {}, &grouped_flops},
      {"rms_norm", {{"x"}, {"weight"}, {"out", kWrites}, {"rstd", kWrites}}, {"x"}},
      {"rms_norm_backward",
       {{"x"}, {"weight"}, {"rstd"}, {"dy"}, {"dx", kAdds}, {"dweight", kUpdates}},
       {"x"}},
      {"rope",
       {{"x", kUpdates}, {"cos", kReads, "positions"}, {"sin", kReads, "positions"}, {"positions"}},
       {"x"}},
      {"attention",
       {{"q"}, {"k"}, {"v"}, {"out", kWrites}, {"lse", kWrites}, {"positions"}, {"key_positions"}},
       {},
       &attention_flops},
      {"attention_backward",
       {{"q"},
        {"k"},
        {"v"},
        {"out"},
        {"lse"},
        {"positions"},
        {"key_positions"},
        {"dout"},
        {"dq", kAdds},
        {"dk", kAdds},
        {"dv", kAdds}},
       {},
       &attention_backward_flops},
      {"attention_merge",
       {{"out", kUpdates}, {"lse", kUpdates}, {"part_out"}, {"part_lse"}},
       {"out"}},
      {"gated_act",
       {{"x", kReads, "rows"}, {"probs", kReads, "rows"}, {"out", kWrites, "rows"}, {"rows"}},
       {"x"}},
      {"gated_act_backward",
       {{"x", kReads, "rows"},
        {"probs", kReads, "rows"},
        {"dout", kReads, "rows"},
        {"dx", kWrites, "rows"},
        {"dprobs", kWrites, "rows"},
        {"rows"}},
       {"x"}},
      // The probabilities take the place of the logits.
      {"router",
       {{"logits"},
        {"probs", kWrites},
        {"lse", kWrites},
        {"indices", kWrites},
        {"weights", kWrites},
        {"counts", kWrites},
        {"prob_sums", kWrites}},
       {"probs"}},
      {"router_backward",
       {{"probs"},
        {"lse"},
        {"indices"},
        {"weights"},
        {"dweights"},
        {"aux_scale"},
        {"dlogits", kWrites}},
       {"probs"}},
      {"aux_loss",
       {{"sums", kUpdates}, {"lse"}, {"load_balance", kUpdates}, {"z_loss", kUpdates}},
       {"sums", "lse"}},
      {"route_plan",
       {{"indices"},
        {"order", kWrites},
        {"position", kWrites},
        {"counts", kWrites},
        {"offsets", kWrites}},
       {"order"}},
      {"expand_experts", {{"indices"}, {"out", kWrites}}, {"out"}},
      // Follows the index or the position, not both.
      {"gather_rows", {{"x", kReads, "index"}, {"out", kWrites}, {"index"}, {"position"}}, {"out"}},
      {"scatter_rows", {{"x"}, {"out", kWrites, "index"}, {"index"}}, {"x"}},
      {"combine_rows", {{"x"}, {"out", kUpdates}, {"position"}}, {"x"}},
      {"embedding", {{"table", kReads, "tokens"}, {"tokens"}, {"out", kWrites}}, {"out"}},
      {"embedding_backward", {{"dtable", kUpdates, "tokens"}, {"tokens"}, {"dout"}}, {"dout"}},
      {"cross_entropy_stats", {{"logits"}, {"targets"}, {"stats", kWrites}}, {"logits"}},
      {"cross_entropy",
       {{"logits", kUpdates}, {"targets"}, {"loss_sum", kUpdates}, {"stats"}},
       {"logits"}},
      {"copy", {{"x"}, {"y", kAdds}}, {"y"}},
      {"bias_backward", {{"dy"}, {"dbias", kUpdates}}, {"dy"}},
      {"adamw",
       {{"weight", kWrites}, {"master", kUpdates}, {"m", kUpdates}, {"v", kUpdates}, {"grad"}},
       {"master"}},
      {"squared_norm", {{"data"}, {"result", kWrites}}, {"data"}},
      {"sum", {{"source"}, {"target", kWrites}}, {"target"}},
      {"fill_zero", {{"to", kWrites}}, {"to"}},
      {"copy_to_device", {{"to", kWrites}}},
      {"copy_to_host", {{"from"}}},
      {"copy_on_device", {{"to", kWrites}, {"from"}}},
      {"all_gather", {{"send"}, {"recv", kWrites}}},
      {"reduce_scatter", {{"send"}, {"recv", kWrites}}},
      {"all_reduce", {{"data", kUpdates}}},
      {"all_to_all",
       {{"send 0"},
        {"recv 0", kWrites},
        {"send 1"},
        {"recv 1", kWrites},
        {"send 2"},
        {"recv 2", kWrites}}},
      {"send", {{"data"}, {"slots", kWrites}}},
      {"recv", {{"data", kWrites}}},
  };
  return kFunctions;
}

const FunctionRow& row_of(const Entry& call) {
  for (const FunctionRow& row : functions()) {
    if (row.name == call.name) return row;
  }
  throw base::Error(
      fmt::format("tests/fakes/recording/call_work.cpp has no row for the call {}", text_of(call)));
}

const RoleRow& role_of(const FunctionRow& function, std::string_view role) {
  for (const RoleRow& row : function.roles) {
    if (row.role == role) return row;
  }
  throw base::Error(fmt::format("tests/fakes/recording/call_work.cpp does not know {} of {}", role,
                                function.name));
}

Access access_of(const RoleRow& row, const Entry& call) {
  switch (row.does) {
    case Does::reads:
      return Access::read;
    case Does::writes:
      return Access::write;
    case Does::updates:
      return Access::update;
    case Does::adds:
      break;
  }
  return call.number("accumulate").value_or(0) != 0 ? Access::update : Access::write;
}

int64_t touched_elements(const RoleRow& row, const Operand& operand, const Entry& call) {
  const Operand* list = row.picked_by.empty() ? nullptr : call.find(row.picked_by);
  return list == nullptr ? operand.numel() : std::min(operand.rows, list->rows) * operand.cols;
}

}  // namespace

Work work_of(const Entry& call) {
  const FunctionRow& function = row_of(call);
  Work work;
  for (const Operand& operand : call.operands) {
    const RoleRow& row = role_of(function, operand.role);
    const int64_t elements = touched_elements(row, operand, call);
    const int64_t times = access_of(row, call) == Access::update ? 2 : 1;
    work.bytes += times * elements * operand.element_bytes();
    const bool is_worked_on = std::find(function.works_on.begin(), function.works_on.end(),
                                        operand.role) != function.works_on.end();
    if (is_worked_on) work.elements += elements;
  }
  work.flops = function.flops != nullptr ? function.flops(call) : -1;
  return work;
}

std::vector<std::pair<const Operand*, Access>> accesses_of(const Entry& call) {
  const FunctionRow& function = row_of(call);
  std::vector<std::pair<const Operand*, Access>> accesses;
  for (const Operand& operand : call.operands) {
    accesses.emplace_back(&operand, access_of(role_of(function, operand.role), call));
  }
  return accesses;
}

}  // namespace moetune::recording
