// The passes that have the host's memory hold what the device does not need for a while. Saved
// activations as Megatron-Core's fine-grained offloading has them: behind a layer's forward its
// tensors go out while the next layer works, and come back one layer ahead of its backward.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "engine/plan/blocks/blocks.h"
#include "engine/plan/passes/passes.h"
#include "engine/plan/passes/visits.h"

namespace moetune::plan {
namespace {

bool is_half_of_layer(const Segment& segment) {
  const std::vector<BlockKind> halves = halves_of(segment.dims);
  return std::ranges::find(halves, segment.block) != halves.end();
}

class Offloading {
 public:
  Offloading(StepProgram& program, const BlockContext& context, const spec::OffloadSet& modules)
      : program_(program), context_(context), modules_(modules) {}

  void run() {
    visits_ = visits_of(program_, [](const Item& item, const Segment& segment) {
      return item.layer >= 0 && is_half_of_layer(segment);
    });
    for (size_t k = 0; k < visits_.all.size(); ++k) {
      if (visits_.all[k].is_backward) backward_of_.emplace(place_of(visits_.all[k]), k);
    }
    find_saved();
    write();
  }

 private:
  using Place = std::pair<int32_t, int32_t>;  ///< frame and micro-batch
  /// What is offloaded of a layer, as its backward pass frees it.
  struct Saved {
    LayerDims dims;
    std::vector<Instr> frees;
  };

  static Place place_of(const Visit& visit) { return {visit.frame, visit.micro_batch}; }

  /// Of a buffer, or of the narrow copy that is kept of it: that goes with the buffer's module.
  static bool is_end_of_saved(const Instr& instr) {
    if (instr.verb != Verb::free) return false;
    const Space space = instr.refs.front().space;
    return instr.what == static_cast<uint8_t>(MemoryGroup::activations) &&
           (space == Space::frame || space == Space::narrow);
  }

  /// By the first backward visit of each frame: all micro-batches save the same.
  void find_saved() {
    std::map<int32_t, size_t> first_of;
    for (size_t i = 0; i < program_.items.size(); ++i) {
      const std::optional<size_t> k = visits_.of_item[i];
      if (!k || !visits_.all[*k].is_backward) continue;
      const int32_t frame = visits_.all[*k].frame;
      if (first_of.try_emplace(frame, *k).first->second != *k) continue;
      const Segment& segment = *program_.segments[static_cast<size_t>(program_.items[i].segment)];
      Saved& saved = saved_[frame];
      saved.dims = segment.dims;
      for (const Instr& instr : segment.code) {
        if (!is_end_of_saved(instr)) continue;
        const BufferRow& row = buffer_row(static_cast<Buf>(instr.refs.front().id));
        const std::optional<spec::Offload> module = offload_of(row, segment.dims);
        if (module && modules_.has(*module)) saved.frees.push_back(instr);
      }
    }
  }

  /// What is needed again before it could have gone stays: it goes while another layer runs.
  [[nodiscard]] bool goes_out(const Visit& visit) const {
    if (visit.is_backward || saved_.at(visit.frame).frees.empty()) return false;
    const size_t back = backward_of_.at(place_of(visit));
    const size_t needed = visits_.all[back].begin;
    const auto covers = [&](const Visit& other) {
      return other.begin >= visit.end && other.end <= needed;
    };
    const auto first = visits_.all.begin();
    return std::any_of(first + (&visit - visits_.all.data()) + 1,
                       first + static_cast<std::ptrdiff_t>(back), covers);
  }

  void write() {
    std::vector<Item> old = std::move(program_.items);
    program_.items.clear();
    for (size_t i = 0; i < old.size(); ++i) {
      if (const auto k = visits_.begins_at(i)) begin(visits_.all[*k]);
      program_.items.push_back(old[i]);
      if (const auto k = visits_.ends_with(i)) end(visits_.all[*k]);
    }
  }

  void begin(const Visit& visit) {
    fetch(visit);
    if (back_.contains(place_of(visit))) {
      run(Step::arrive, visit);
      back_.clear();
    }
    for (const size_t next : visit.behind) fetch(visits_.all[next]);
  }

  void end(const Visit& visit) {
    for (const Visit* sent : on_their_way_) {
      if (sent->end > visit.begin) continue;
      run(Step::leave, *sent);
      gone_.insert(place_of(*sent));
    }
    std::erase_if(on_their_way_, [&](const Visit* sent) { return sent->end <= visit.begin; });
    if (!goes_out(visit)) return;
    run(Step::send, visit);
    on_their_way_.push_back(&visit);
  }

  void fetch(const Visit& visit) {
    if (!visit.is_backward || gone_.erase(place_of(visit)) == 0) return;
    run(Step::fetch, visit);
    back_.insert(place_of(visit));
  }

  enum class Step : uint8_t { send, leave, fetch, arrive };

  void run(Step step, const Visit& visit) {
    const auto [place, is_new] = segments_.try_emplace({step, visit.frame});
    if (is_new) {
      place->second = static_cast<int32_t>(program_.segments.size());
      program_.segments.push_back(std::make_shared<const Segment>(segment(step, visit.frame)));
    }
    Item item;
    item.segment = place->second;
    item.layer = visit.layer;
    item.micro_batch = visit.micro_batch;
    item.frame = visit.frame;
    program_.items.push_back(item);
  }

  [[nodiscard]] Segment segment(Step step, int32_t frame) const {
    const Saved& saved = saved_.at(frame);
    BlockContext context = context_;
    context.dims = saved.dims;
    const bool is_out = step == Step::send || step == Step::leave;
    SegmentWriter w(context, BlockKind::offload, !is_out);
    const auto memory = [&](Verb verb) {
      for (const Instr& free : saved.frees) {
        Instr& instr = w.add(verb, Stream::compute);
        const Pass pass = instr.pass;
        instr = free;
        instr.verb = verb;
        instr.pass = pass;
      }
    };
    const auto copies = [&](Op op) {
      for (const Instr& free : saved.frees) {
        Instr& instr = w.add(Verb::copy, op_row(op).stream);
        instr.op = op;
        const Ref& freed = free.refs.front();
        const Ref moved = in(freed.space, static_cast<Buf>(freed.id));
        instr.refs = {is_out ? moved : out(moved)};
        instr.is_routed = free.is_routed;
        instr.cost = free.cost;
        instr.cost_per_row = free.cost_per_row;
      }
    };
    switch (step) {
      case Step::send:
        w.join(Stream::to_host, Stream::compute);
        copies(Op::to_host);
        break;
      case Step::leave:
        w.join(Stream::compute, Stream::to_host);
        memory(Verb::free);
        break;
      case Step::fetch:
        // The memory is that of a layer that was there before: it is fetched no earlier.
        memory(Verb::alloc);
        w.join(Stream::from_host, Stream::compute);
        copies(Op::from_host);
        break;
      case Step::arrive:
        w.join(Stream::compute, Stream::from_host);
        break;
    }
    return w.finish();
  }

  StepProgram& program_;
  const BlockContext& context_;
  const spec::OffloadSet& modules_;
  Visits visits_;
  std::map<Place, size_t> backward_of_;  ///< visits
  std::map<int32_t, Saved> saved_;       ///< by frame
  std::vector<const Visit*> on_their_way_;
  std::set<Place> gone_;  ///< in the host's memory alone
  std::set<Place> back_;  ///< fetched, and compute has not waited for them
  std::map<std::pair<Step, int32_t>, int32_t> segments_;
};

/// Elements of a bucket's state that the device keeps are the first ones.
int64_t kept_bytes(int64_t bytes, double ratio) {
  return std::llround(static_cast<double>(bytes) * (1 - ratio));
}

bool is_state(const Ref& ref) {
  return ref.space == Space::bucket && plan::is_state(static_cast<BucketPart>(ref.id));
}

/// Parts of buckets: which part, of which bucket.
using BucketParts = std::set<std::pair<uint8_t, int64_t>>;

/// The device keeps its share of the state; `gone`: what nothing is left of.
void keep_share(Segment& segment, double ratio, BucketParts& gone) {
  const auto is_alloc = [](const Instr& instr) {
    return instr.verb == Verb::alloc && is_state(instr.refs.front());
  };
  for (Instr& instr : segment.code) {
    if (!is_alloc(instr)) continue;
    instr.cost.bytes = kept_bytes(instr.cost.bytes, ratio);
    if (instr.cost.bytes == 0) gone.emplace(instr.refs.front().id, instr.refs.front().row);
  }
  std::erase_if(segment.code,
                [&](const Instr& instr) { return is_alloc(instr) && instr.cost.bytes == 0; });
}

/// Around an update: the state of the host's share arrives, and goes again.
Segment with_copies(const Segment& update, const StepProgram& program, const BlockContext& context,
                    double ratio) {
  const Precision& precision = program.precision;
  const int64_t state =
      base::size_of(precision.stat) + base::size_of(precision.m) + base::size_of(precision.v);
  int64_t num_owned = 0;
  for (const Instr& instr : update.code) {
    if (instr.op == Op::adamw) num_owned += instr.cost.bytes / update_bytes_per_element(precision);
  }
  const int64_t bytes = state * num_owned - kept_bytes(state * num_owned, ratio);
  const auto copy = [&](Op op) {
    SegmentWriter w(context, BlockKind::update, false);
    w.set_pass(Pass::update);
    const Stream stream = op_row(op).stream;
    w.join(stream, Stream::compute);
    Instr& instr = w.add(Verb::copy, stream);
    instr.op = op;
    instr.cost.bytes = bytes;
    w.join(Stream::compute, stream);
    return w.finish();
  };
  Segment made = copy(Op::from_host);
  append(made, update);
  append(made, copy(Op::to_host));
  return made;
}

}  // namespace

void offload(StepProgram& program, const BlockContext& context, const spec::OffloadSet& modules) {
  if (modules.empty()) return;
  Offloading(program, context, modules).run();
}

void offload_optimizer(StepProgram& program, const BlockContext& context, double ratio) {
  if (ratio <= 0) return;
  BucketParts gone;
  const auto change = [&](auto&& body) {
    for (std::shared_ptr<const Segment>& place : program.segments) {
      if (place->block != BlockKind::update) continue;
      Segment segment = *place;
      body(segment);
      place = std::make_shared<const Segment>(std::move(segment));
    }
  };
  change([&](Segment& segment) {
    keep_share(segment, ratio, gone);
    const bool has_update =
        std::ranges::any_of(segment.code, [](const Instr& instr) { return instr.op == Op::adamw; });
    if (has_update) segment = with_copies(segment, program, context, ratio);
  });
  // What has no memory on the device is no operand there.
  change([&](Segment& segment) {
    for (Instr& instr : segment.code) {
      std::erase_if(instr.refs, [&](const Ref& ref) {
        return is_state(ref) && gone.contains({ref.id, ref.row});
      });
    }
  });
}

}  // namespace moetune::plan
