// Follows a program in the order of its items, binds each instruction's work to rows, and finds
// what it waits for.
#include "engine/plan/listing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/plan/player.h"

namespace moetune::plan {
namespace {

bool is_launch(const Instr& instr) {
  return instr.verb == Verb::op || instr.verb == Verb::comm || instr.verb == Verb::send ||
         instr.verb == Verb::recv || instr.verb == Verb::upload || instr.verb == Verb::copy;
}

bool is_listed(const Instr& instr) {
  if (instr.verb == Verb::record || instr.verb == Verb::wait) return !instr.device_only;
  if (instr.verb != Verb::mark) return true;
  const auto what = static_cast<Mark>(instr.what);
  return what == Mark::graph_open || what == Mark::graph_close;
}

class Lister {
 public:
  Lister(const StepProgram& program, const Bindings& bindings)
      : program_(program), bindings_(bindings) {}

  std::vector<ListedInstr> run() {
    for (const auto* items : {&program_.setup, &program_.items}) {
      for (const Item& item : *items) add(item);
    }
    return std::move(list_);
  }

 private:
  void add(const Item& item) {
    const Segment& segment = *program_.segments[static_cast<size_t>(item.segment)];
    std::vector<std::vector<int64_t>>& recorded = recorded_[lane_of(segment)];
    if (segment.begins()) recorded.assign(static_cast<size_t>(segment.num_events), {});
    for (const Instr& instr : segment.code) {
      if (!is_listed(instr)) continue;
      ListedInstr listed{&item, &segment, &instr, cost_of(item, segment, instr)};
      // The end of a stream: its last launch, and what the next one would wait for besides.
      std::vector<int64_t>& end = stream_ends_[static_cast<size_t>(instr.stream)];
      if (instr.verb == Verb::record) recorded[static_cast<size_t>(instr.event)] = end;
      if (instr.verb == Verb::fetch) listed.waits_for = end;
      if (instr.verb == Verb::wait) {
        listed.waits_for = recorded[static_cast<size_t>(instr.event)];
        for (const int64_t number : listed.waits_for) {
          if (std::find(end.begin(), end.end(), number) == end.end()) end.push_back(number);
        }
      }
      if (is_launch(instr)) end = {static_cast<int64_t>(list_.size())};
      if (instr.verb == Verb::alloc && instr.refs.front().space == Space::table) {
        table_bytes_[instr.refs.front().id] = instr.cost.bytes;
      }
      list_.push_back(listed);
    }
  }

  [[nodiscard]] OpCost cost_of(const Item& item, const Segment& segment, const Instr& instr) const {
    const Route* route = instr.is_routed ? &bindings_.at(item.layer, item.micro_batch) : nullptr;
    const auto bound = [&] {
      return route == nullptr ? instr.cost
                              : cost_at(instr, route->received(segment.is_backward, instr.chunk));
    };
    switch (instr.verb) {
      case Verb::op:
      case Verb::copy:
      case Verb::host:
        return bound();
      case Verb::comm:
      case Verb::send:
      case Verb::recv:
        return {0, sent_bytes(program_, segment, instr, route)};
      case Verb::alloc:
      case Verb::free:
        return {0, profiler::aligned_bytes(bound().bytes)};
      case Verb::upload:
        return {0, uploaded_bytes(item, segment, instr)};
      default:
        return {};
    }
  }

  /// Scalars are cleared on the device.
  [[nodiscard]] int64_t uploaded_bytes(const Item& item, const Segment& segment,
                                       const Instr& instr) const {
    int64_t bytes = 0;
    LayerDims dims = segment.dims;
    for (const Ref& ref : instr.refs) {
      if (ref.space == Space::table) {
        const auto size = table_bytes_.find(ref.id);
        bytes += size == table_bytes_.end() ? 0 : size->second;
      } else if (ref.space == Space::frame) {
        if (dims.expert_ranks > 1) {
          dims.received_rows = bindings_.at(item.layer, item.micro_batch).num_received;
        }
        bytes += buffer_bytes(buffer_row(static_cast<Buf>(ref.id)), dims, program_.precision);
      }
    }
    return bytes;
  }

  const StepProgram& program_;
  const Bindings& bindings_;
  std::array<std::vector<int64_t>, kNumStreams> stream_ends_;
  std::array<std::vector<std::vector<int64_t>>, kNumLanes> recorded_;  ///< by event
  std::map<uint8_t, int64_t> table_bytes_;
  std::vector<ListedInstr> list_;
};

std::string place_text(const Item& item) {
  std::string text;
  if (item.layer >= 0) text = fmt::format("layer {}", item.layer);
  if (item.micro_batch >= 0) {
    text += fmt::format("{}micro-batch {}", text.empty() ? "" : ", ", item.micro_batch);
  }
  return text.empty() ? "step" : text;
}

/// A kind of parameter is one of layers or one outside of them, and multi-token prediction uses
/// both.
bool is_seen_from(const ParamDesc& param, const Item& item) {
  return param.layer == item.layer || param.layer < 0;
}

/// The parameters among the operands that the item's layer has.
std::string parameters_text(const StepProgram& program, const Item& item, const Instr& instr) {
  std::vector<std::string_view> names;
  for (const Ref& ref : instr.refs) {
    for (const ParamDesc& param : program.params.params) {
      if (static_cast<uint8_t>(param.kind) != ref.id || !is_seen_from(param, item)) continue;
      const std::string_view name = param.name;
      names.push_back(name.substr(name.rfind('.') + 1));
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string mark_text(const Instr& instr) {
  switch (static_cast<Mark>(instr.what)) {
    case Mark::graph_open:
      return fmt::format("graph {} begins", spec::name_of(instr.scope));
    case Mark::graph_close:
      return fmt::format("graph {} ends", spec::name_of(instr.scope));
    case Mark::observe_route:
      return "observers of the router";
    case Mark::observe_logits:
      return "observers of the logits";
    default:
      return "of a pass";
  }
}

bool are_alike(const OpCost& a, const OpCost& b) {
  return a.flops == b.flops && a.bytes == b.bytes;
}

bool are_alike(Ref a, Ref b) {
  if (a.space == Space::bucket && b.space == Space::bucket) a.row = b.row;
  return a == b;
}

bool are_alike(const Instr& a, const Instr& b) {
  const auto head = [](const Instr& i) {
    return std::tie(i.verb, i.op, i.pass, i.stream, i.group, i.kind, i.scope, i.what, i.accumulate,
                    i.device_only, i.is_for_slot, i.is_routed, i.chunk, i.event, i.peer);
  };
  return head(a) == head(b) && are_alike(a.cost, b.cost) &&
         are_alike(a.cost_per_row, b.cost_per_row) &&
         std::ranges::equal(a.refs, b.refs,
                            [](const Ref& x, const Ref& y) { return are_alike(x, y); });
}

}  // namespace

std::vector<ListedInstr> list_instructions(const StepProgram& program, const Bindings& bindings) {
  return Lister(program, bindings).run();
}

std::string item_title(const StepProgram& program, const Item& item) {
  const Segment& segment = *program.segments[static_cast<size_t>(item.segment)];
  std::string text = fmt::format("{}: {}", place_text(item), name_of(segment.block));
  if (is_of_model(segment.block)) {
    const bool is_again = !segment.is_backward && !segment.code.empty() &&
                          segment.code.front().pass == Pass::recompute;
    text += segment.is_backward ? " backward" : is_again ? " recomputed" : " forward";
    if (segment.num_pieces == 1) return text;
    return text + fmt::format(", piece {} of {}", segment.piece + 1, segment.num_pieces);
  }
  // What the update and passes do is one op an item.
  std::vector<std::string_view> ops;
  for (const Instr& instr : segment.code) {
    if (instr.op != Op::count && instr.op != Op::host_sync) ops.emplace_back(op_row(instr.op).name);
  }
  if (!ops.empty()) text += fmt::format(", {}", fmt::join(ops, ", "));
  return text;
}

std::string subject_of(const StepProgram& program, const Item& item, const Instr& instr) {
  if (instr.op != Op::count) return op_row(instr.op).name;
  switch (instr.verb) {
    case Verb::alloc:
    case Verb::free:
      return name_of(program, item, instr.refs.front());
    case Verb::acquire:
    case Verb::release:
      return parameters_text(program, item, instr);
    case Verb::upload:
      return static_cast<Upload>(instr.what) == Upload::step ? "tokens and targets" : "index lists";
    case Verb::mark:
      return mark_text(instr);
    default:
      return {};
  }
}

std::string name_of(const StepProgram& program, const Item& item, const Ref& ref) {
  const auto of_params = [&](const char* what) {
    for (const ParamDesc& param : program.params.params) {
      if (static_cast<uint8_t>(param.kind) == ref.id && is_seen_from(param, item)) {
        return what + param.name;
      }
    }
    return fmt::format("{}parameter of kind {}", what, ref.id);
  };
  switch (ref.space) {
    case Space::none:
      return "nothing";
    case Space::weight:
      return of_params("");
    case Space::grad:
      return of_params("gradient of ");
    case Space::bucket:
      return program.params.buckets[static_cast<size_t>(ref.row)].name;
    case Space::table:
      return tables_of({}, 0, 0)[ref.id].name;
    case Space::scalar:
      return "sums of the step";
    case Space::slots:
      return fmt::format("messages {} to stage {}", ref.id != 0 ? "back" : "on", ref.row);
    case Space::narrow:
      return fmt::format("{} (narrow copy)", buffer_row(static_cast<Buf>(ref.id)).name);
    case Space::next:
      return fmt::format("{} (of the next layer)", buffer_row(static_cast<Buf>(ref.id)).name);
    default:
      return buffer_row(static_cast<Buf>(ref.id)).name;
  }
}

bool are_alike(const Segment& a, const Segment& b) {
  return a.block == b.block && a.is_backward == b.is_backward &&
         std::ranges::equal(a.code, b.code,
                            [](const Instr& x, const Instr& y) { return are_alike(x, y); });
}

}  // namespace moetune::plan
