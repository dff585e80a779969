// The pass that has the experts' rows exchanged by a dispatcher other than the all-to-all that the
// block writes. Tokens leave as they are, so that nothing is packed for sending and the rows that
// come back are summed where they are read:
//   allgather         all tokens to all ranks, sums of the results back (reduce-scatter),
//   deepep, hybridep  one kernel in two stages: a token goes once to each node that has one of its
//                     experts, to the rank of the sender's place there, which passes it on to each
//                     rank of its node that has one. Back the same way, summed on each stage.
// HybridEP's kernel also writes rows where the experts read them, expert by expert. What a kernel
// does beside sending is kept as its packing. How many copies a token has follows from balanced
// routing (spec::dispatch_bytes).
#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/plan/passes/passes.h"
#include "engine/spec/planned_links.h"

namespace moetune::plan {
namespace {

using spec::CollectiveKind;
using spec::Dispatcher;

bool is_buffer(const Ref& ref, Buf buffer) {
  return ref.space == Space::frame && ref.id == static_cast<uint8_t>(buffer);
}
bool is_on_wire(const Ref& ref) {
  return is_buffer(ref, Buf::send_rows) || is_buffer(ref, Buf::send_probs) ||
         is_buffer(ref, Buf::recv_rows) || is_buffer(ref, Buf::recv_probs);
}

/// What an operation that only moves rows has in the place of a buffer of the wire: an exchange
/// that reads what it writes reads what it has read, and the other way round.
struct Moved {
  uint8_t wire = 0;
  bool is_written = false;  ///< the wire is, by the operation
  Ref other;
};

class Rewriter {
 public:
  Rewriter(const BlockContext& context, Dispatcher dispatcher, const spec::Placement& placement)
      : context_(context), dispatcher_(dispatcher), placement_(placement) {}

  void run(Segment& segment) {
    for (const Instr& instr : segment.code) {
      if (is_fused(instr)) note(instr);
    }
    set_sizes(segment.dims);
    std::vector<Instr> code;
    for (Instr& instr : segment.code) {
      if (is_fused(instr)) {
        pack(instr, code);
        continue;
      }
      if (is_exchange_of_rows(instr)) exchange(instr, segment.num_chunks);
      code.push_back(std::move(instr));
    }
    segment.code = std::move(code);
  }

 private:
  [[nodiscard]] bool is_fused(const Instr& instr) const {
    if (instr.verb != Verb::op) return false;
    return is_before_sending(instr.op) ||
           (dispatcher_ == Dispatcher::hybridep && is_after_receiving(instr.op));
  }

  void note(const Instr& instr) {
    for (size_t i = 0; i < 2; ++i) {
      if (is_on_wire(instr.refs[i]))
        moved_.push_back({instr.refs[i].id, i == 1, instr.refs[1 - i]});
    }
  }

  /// What writes to the wire is done with what is sent next, what reads from it with what was sent
  /// last. Who gathers all packs nothing.
  void pack(const Instr& instr, std::vector<Instr>& code) {
    if (dispatcher_ == Dispatcher::allgather) return;
    Packing& packing = is_on_wire(instr.refs[1])
                           ? ahead_
                           : std::find_if(code.rbegin(), code.rend(), is_exchange_of_rows)->packing;
    packing.bytes += instr.cost.bytes;
    packing.bytes_per_row += instr.cost_per_row.bytes;
  }

  void set_sizes(LayerDims& dims) const {
    const spec::ExpertTraffic all = traffic(1);
    const auto tokens = static_cast<double>(dims.tokens);
    const auto copies = [&](int64_t num_parts) {
      return spec::expected_parts(all.num_experts, all.top_k, num_parts);
    };
    dims.sends_tokens = true;
    if (dispatcher_ == Dispatcher::allgather) {
      dims.arriving_tokens = dims.tokens * dims.expert_ranks;
      return;
    }
    if (dispatcher_ == Dispatcher::deepep) {
      dims.arriving_tokens = std::llround(tokens * copies(placement_.num_ranks));
    }
    const auto num_nodes = static_cast<double>(placement_.num_nodes);
    dims.passed_tokens =
        std::llround(tokens * copies(placement_.num_nodes) * (num_nodes - 1) / num_nodes);
  }

  [[nodiscard]] spec::ExpertTraffic traffic(int64_t token_bytes) const {
    const LayerDims& d = context_.dims;
    return {d.tokens, token_bytes, d.expert_slices(), d.slots_per_token()};
  }

  void exchange(Instr& instr, int64_t num_chunks) {
    const LayerDims& d = context_.dims;
    const bool is_on_the_way_out = is_to_experts(instr);
    bool has_probs = false;
    for (Ref& ref : instr.refs) {
      has_probs |= is_buffer(ref, Buf::send_probs);
      const auto moved = std::ranges::find_if(moved_, [&](const Moved& each) {
        return is_on_wire(ref) && each.wire == ref.id &&
               each.is_written == (ref.access == Access::read);
      });
      if (moved != moved_.end()) ref = moved->other;
    }
    // A token has the weights of all its experts with it.
    const int64_t token_bytes =
        d.expert_hidden() * base::size_of(context_.precision.element) +
        (has_probs ? d.slots_per_token() * base::size_of(context_.precision.stat) : 0);
    instr.is_routed = false;
    instr.cost_per_row = {};
    instr.packing = std::exchange(ahead_, {});
    if (dispatcher_ == Dispatcher::allgather) {
      instr.kind = is_on_the_way_out ? CollectiveKind::all_gather : CollectiveKind::reduce_scatter;
      instr.cost.bytes = d.expert_ranks * d.tokens * token_bytes / num_chunks;
      return;
    }
    const spec::LinkBytes bytes =
        spec::dispatch_bytes(dispatcher_, placement_, traffic(token_bytes));
    const auto of_chunk = [&](double all) {
      return std::llround(all / static_cast<double>(num_chunks));
    };
    instr.is_by_node = true;
    instr.cost.bytes = of_chunk(bytes.intra);
    instr.across_bytes = of_chunk(bytes.inter);
    if (placement_.num_nodes > 1) instr.refs.push_back(inout(Buf::node_rows));
  }

  const BlockContext& context_;
  Dispatcher dispatcher_;
  spec::Placement placement_;
  std::vector<Moved> moved_;
  Packing ahead_;
};

}  // namespace

void dispatchers(Segment& segment, const BlockContext& context, Dispatcher dispatcher,
                 const spec::Placement& placement) {
  if (segment.block != BlockKind::moe || segment.dims.expert_ranks == 1) return;
  if (dispatcher == Dispatcher::alltoall) return;
  Rewriter(context, dispatcher, placement).run(segment);
}

}  // namespace moetune::plan
