// The pass that shares weights and gradients out, too: ZeRO stage 3 (Rajbhandari et al. 2020), in
// units of a layer as Megatron-Core's FSDP and PyTorch's FSDP2 have them (Zhao et al. 2023, arXiv
// 2304.11277). Between uses a rank has shards. Before a unit runs its weights are gathered, one
// unit ahead; behind its last backward of a micro-batch its gradients are reduced to their shards
// while the next unit works. Beside pipeline stages FSDP2 keeps a stage's weights from its first
// forward to its last backward and reduces once a step (docs/torchtitan.md).
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "engine/plan/passes/passes.h"
#include "engine/plan/passes/visits.h"

namespace moetune::plan {
namespace {

using Buckets = std::vector<size_t>;  ///< ascending

bool has(const Buckets& buckets, size_t bucket) {
  return std::binary_search(buckets.begin(), buckets.end(), bucket);
}

void add(Buckets& buckets, size_t bucket) {
  const auto place = std::lower_bound(buckets.begin(), buckets.end(), bucket);
  if (place == buckets.end() || *place != bucket) buckets.insert(place, bucket);
}

/// What items use of sharded buckets.
struct Use {
  Buckets weights;
  Buckets gradients;
};

/// One visit of a unit.
struct UnitVisit {
  Visit place;
  Use use;
  size_t first_gradient = 0;  ///< item that adds to a gradient
  // What begins and ends with it:
  Buckets gathered;       ///< before it
  Buckets released;       ///< behind it
  Buckets new_gradients;  ///< before first_gradient
  Buckets reduced;        ///< behind it
};

class UnitShards {
 public:
  UnitShards(StepProgram& program, const BlockContext& context, bool keeps_stage)
      : program_(program), context_(context), keeps_stage_(keeps_stage) {
    for (size_t i = 0; i < program.params.buckets.size(); ++i) {
      if (program.params.buckets[i].is_sharded)
        by_layer_[program.params.buckets[i].layer].push_back(i);
    }
  }

  void run() {
    find_visits();
    if (visits_.empty()) return;
    find_weights();
    find_gradients();
    write();
  }

 private:
  /// The sharded buckets of a parameter that an item of `layer` uses.
  void add_buckets(const Ref& ref, int64_t layer, Buckets& buckets) const {
    for (const ParamDesc& param : program_.params.params) {
      const bool is_seen = param.layer == layer || param.layer < 0;
      const auto bucket = static_cast<size_t>(param.bucket);
      if (static_cast<uint8_t>(param.kind) != ref.id || !is_seen) continue;
      if (program_.params.buckets[bucket].is_sharded) add(buckets, bucket);
    }
  }

  /// A layer is one unit, whichever of its halves runs.
  const Use& use_of(const Item& item, const Segment& segment) {
    const auto [place, is_new] = uses_.try_emplace({item.segment, item.layer});
    Use& use = place->second;
    if (!is_new) return use;
    for (const Instr& instr : segment.code) {
      for (const Ref& ref : instr.refs) {
        if (instr.verb == Verb::acquire) add_buckets(ref, item.layer, use.weights);
        if (ref.space == Space::grad) add_buckets(ref, item.layer, use.gradients);
      }
    }
    const auto of_layer = by_layer_.find(item.layer);
    const bool is_of_unit = item.layer >= 0 && of_layer != by_layer_.end() && !use.weights.empty();
    if (is_of_unit) {
      for (const size_t bucket : of_layer->second) add(use.weights, bucket);
    }
    return use;
  }

  void find_visits() {
    const auto is_visit = [&](const Item& item, const Segment& segment) {
      return !use_of(item, segment).weights.empty();
    };
    for (const Visit& place : visits_of(program_, is_visit)) {
      UnitVisit& visit = visits_.emplace_back();
      visit.place = place;
      visit.first_gradient = place.end;
      for (size_t i = place.begin; i < place.end; ++i) {
        const Item& item = program_.items[i];
        const Use& use = use_of(item, *program_.segments[static_cast<size_t>(item.segment)]);
        for (const size_t bucket : use.weights) add(visit.use.weights, bucket);
        for (const size_t bucket : use.gradients) add(visit.use.gradients, bucket);
        if (!use.gradients.empty()) visit.first_gradient = std::min(visit.first_gradient, i);
      }
    }
  }

  void find_weights() {
    if (keeps_stage_) {
      const auto weights = [](const UnitVisit& visit) { return visit.use.weights; };
      for_first_and_last(
          weights, [](size_t) { return 0; }, &UnitVisit::gathered, &UnitVisit::released);
      return;
    }
    for (size_t k = 0; k < visits_.size(); ++k) {
      const auto stays = [&](size_t first, size_t bucket) {
        if (first >= visits_.size() - 1) return false;
        const UnitVisit& before = visits_[first];
        const UnitVisit& behind = visits_[first + 1];
        return before.place.is_with(behind.place) && has(before.use.weights, bucket) &&
               has(behind.use.weights, bucket);
      };
      for (const size_t bucket : visits_[k].use.weights) {
        if (k == 0 || !stays(k - 1, bucket)) visits_[k].gathered.push_back(bucket);
        if (!stays(k, bucket)) visits_[k].released.push_back(bucket);
      }
    }
  }

  /// All gradients of a micro-batch are reduced together, where a unit is used more than once, too.
  void find_gradients() {
    const auto gradients = [](const UnitVisit& visit) { return visit.use.gradients; };
    const auto round = [&](size_t k) { return keeps_stage_ ? 0 : visits_[k].place.micro_batch; };
    for_first_and_last(gradients, round, &UnitVisit::new_gradients, &UnitVisit::reduced);
  }

  /// Of each bucket in each round the first visit and the last one that use it.
  template <typename BucketsOf, typename RoundOf>
  void for_first_and_last(BucketsOf&& buckets_of, RoundOf&& round_of, Buckets UnitVisit::*first,
                          Buckets UnitVisit::*last) {
    std::map<std::pair<int32_t, size_t>, size_t> last_of;
    for (size_t k = 0; k < visits_.size(); ++k) {
      for (const size_t bucket : buckets_of(visits_[k])) {
        const auto [place, is_new] = last_of.try_emplace({round_of(k), bucket}, k);
        if (is_new) (visits_[k].*first).push_back(bucket);
        place->second = k;
      }
    }
    for (const auto& [key, k] : last_of) add(visits_[k].*last, key.second);
  }

  void write() {
    std::vector<Item> old = std::move(program_.items);
    program_.items.clear();
    size_t k = 0;
    for (size_t i = 0; i < old.size(); ++i) {
      const bool is_visited = k < visits_.size();
      if (is_visited && visits_[k].place.begin == i) begin(k);
      if (is_visited && visits_[k].first_gradient == i) begin_gradients(visits_[k]);
      if (!is_visited && old[i].micro_batch < 0) settle(visits_.back().place);
      program_.items.push_back(old[i]);
      if (is_visited && visits_[k].place.end == i + 1) end(k++);
    }
  }

  void begin(size_t k) {
    const UnitVisit& visit = visits_[k];
    const Buckets before = k == 0 ? Buckets{} : visits_[k - 1].use.weights;
    const auto is_gathered_before = [&](size_t bucket) { return k > 0 && !has(before, bucket); };
    Buckets late = visit.gathered;
    std::erase_if(late, is_gathered_before);
    run(gather(late, visit.place), visit.place);
    if (!visit.gathered.empty()) run(arrive(), visit.place);
    if (k + 1 == visits_.size()) return;
    Buckets next = visits_[k + 1].gathered;
    std::erase_if(next, [&](size_t bucket) { return has(visit.use.weights, bucket); });
    run(gather(next, visits_[k + 1].place), visits_[k + 1].place);
  }

  void begin_gradients(const UnitVisit& visit) {
    const auto is_on_its_way = [&](size_t bucket) { return has(reduced_, bucket); };
    // The same unit for another micro-batch.
    if (std::ranges::any_of(visit.new_gradients, is_on_its_way)) settle(visit.place);
    run(gradients(visit.new_gradients), visit.place);
  }

  void end(size_t k) {
    const UnitVisit& visit = visits_[k];
    run(release(visit.released), visit.place);
    settle(visit.place);
    run(reduce(visit.reduced), visit.place);
    reduced_ = visit.reduced;
  }

  /// The gradients that are on their way have arrived.
  void settle(const Visit& place) {
    run(drop(reduced_), place);
    reduced_.clear();
  }

  void run(int32_t segment, const Visit& place) {
    if (segment < 0) return;
    Item item;
    item.segment = segment;
    item.layer = place.layer;
    item.micro_batch = place.micro_batch;
    program_.items.push_back(item);
  }

  // Segments, each made once. -1: there is nothing to do.

  template <typename Write>
  int32_t segment(const char* what, Pass pass, const Buckets& buckets, Write&& write) {
    const auto [place, is_new] = segments_.try_emplace({what, pass, buckets});
    if (is_new) {
      SegmentWriter w(context_, BlockKind::shards, false);
      w.set_pass(pass);
      write(w);
      place->second = static_cast<int32_t>(program_.segments.size());
      program_.segments.push_back(std::make_shared<const Segment>(w.finish()));
    }
    return place->second;
  }
  template <typename Write>
  int32_t of_buckets(const char* what, Pass pass, const Buckets& buckets, Write&& write) {
    return buckets.empty() ? -1 : segment(what, pass, buckets, std::forward<Write>(write));
  }

  void memory(SegmentWriter& w, Verb verb, const Buckets& buckets, BucketPart part) const {
    const MemoryGroup group =
        part == BucketPart::gathered ? MemoryGroup::weights : MemoryGroup::gradients;
    for (const size_t bucket : buckets) {
      Instr& instr = w.add(verb, Stream::compute);
      instr.what = static_cast<uint8_t>(group);
      instr.cost.bytes = bytes(bucket, part);
      instr.refs = {out(bucket_part(bucket, part))};
    }
  }
  [[nodiscard]] int64_t bytes(size_t bucket, BucketPart part) const {
    return program_.params.buckets[bucket].numel * base::size_of(type_of(part, program_.precision));
  }
  [[nodiscard]] Group group(size_t bucket) const { return program_.params.buckets[bucket].group; }

  /// The memory is that of a unit that was used before: so the gathering waits for it, which keeps
  /// it one unit ahead.
  int32_t gather(const Buckets& buckets, const Visit& place) {
    const Pass pass = place.is_backward ? Pass::backward : Pass::forward;
    return of_buckets("gather", pass, buckets, [&](SegmentWriter& w) {
      memory(w, Verb::alloc, buckets, BucketPart::gathered);
      w.join(Stream::weights, Stream::compute);
      for (const size_t bucket : buckets) {
        w.comm(Op::shard_gather, spec::CollectiveKind::all_gather,
               bytes(bucket, BucketPart::gathered),
               {bucket_part(bucket, BucketPart::weight),
                out(bucket_part(bucket, BucketPart::gathered))})
            .group = group(bucket);
      }
    });
  }

  int32_t arrive() {
    return segment("arrive", Pass::forward, {},
                   [](SegmentWriter& w) { w.join(Stream::compute, Stream::weights); });
  }

  int32_t release(const Buckets& buckets) {
    return of_buckets("release", Pass::forward, buckets, [&](SegmentWriter& w) {
      memory(w, Verb::free, buckets, BucketPart::gathered);
    });
  }

  int32_t gradients(const Buckets& buckets) {
    return of_buckets("gradients", Pass::backward, buckets, [&](SegmentWriter& w) {
      memory(w, Verb::alloc, buckets, BucketPart::whole_grad);
      Instr& zero = w.priced(Op::zero_grads, {}, {});
      for (const size_t bucket : buckets) {
        zero.cost.bytes += bytes(bucket, BucketPart::whole_grad);
        zero.refs.push_back(out(bucket_part(bucket, BucketPart::whole_grad)));
      }
    });
  }

  int32_t reduce(const Buckets& buckets) {
    return of_buckets("reduce", Pass::backward, buckets, [&](SegmentWriter& w) {
      w.join(Stream::data, Stream::compute);
      for (const size_t bucket : buckets) {
        Instr& instr = w.comm(Op::shard_reduce, spec::CollectiveKind::reduce_scatter,
                              bytes(bucket, BucketPart::whole_grad),
                              {bucket_part(bucket, BucketPart::whole_grad),
                               inout(bucket_part(bucket, BucketPart::grad))});
        instr.group = group(bucket);
        instr.accumulate = true;
      }
    });
  }

  int32_t drop(const Buckets& buckets) {
    return of_buckets("drop", Pass::backward, buckets, [&](SegmentWriter& w) {
      w.join(Stream::compute, Stream::data);
      memory(w, Verb::free, buckets, BucketPart::whole_grad);
    });
  }

  StepProgram& program_;
  const BlockContext& context_;
  bool keeps_stage_;
  std::map<int64_t, Buckets> by_layer_;
  std::map<std::pair<int32_t, int32_t>, Use> uses_;  ///< by segment and layer
  std::vector<UnitVisit> visits_;
  Buckets reduced_;  ///< gradients on their way
  std::map<std::tuple<std::string, Pass, Buckets>, int32_t> segments_;
};

/// The reductions that each rank would do with whole gradients at the end of the step.
void drop_reductions(StepProgram& program) {
  std::erase_if(program.items, [&](const Item& item) {
    const Segment& segment = *program.segments[static_cast<size_t>(item.segment)];
    if (segment.block != BlockKind::update || segment.code.empty()) return false;
    const Instr& last = segment.code.back();
    return last.op == Op::grad_reduce &&
           program.params.buckets[static_cast<size_t>(last.refs.front().row)].is_sharded;
  });
}

}  // namespace

void fsdp(StepProgram& program, const BlockContext& context, spec::Fsdp kind) {
  for (BucketDesc& bucket : program.params.buckets) {
    bucket.is_sharded = bucket.has_gradient && program.layout.group_size(bucket.group) > 1;
  }
  distributed_optimizer(program, context);
  drop_reductions(program);
  const bool keeps_stage = kind == spec::Fsdp::torch && program.layout.pp > 1;
  UnitShards(program, context, keeps_stage).run();
}

}  // namespace moetune::plan
