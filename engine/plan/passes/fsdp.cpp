// The pass that shares weights and gradients out, too: ZeRO stage 3 (Rajbhandari et al. 2020), in
// units of a layer as Megatron-Core's FSDP and PyTorch's FSDP2 have them (Zhao et al. 2023, arXiv
// 2304.11277). Between uses a rank has shards. Before a unit runs its weights are gathered, one
// unit ahead; behind its last backward of a micro-batch its gradients are reduced to their shards
// while the next unit works. Beside pipeline stages FSDP2 keeps a stage's weights from its first
// forward to its last backward and reduces once a step (docs/torchtitan.md). Of woven steps each
// has its unit and the one ahead; a unit that both need at once is there once.
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

/// What begins and ends with one visit of a unit.
struct UnitVisit {
  Use use;
  size_t first_gradient = 0;  ///< item that adds to a gradient
  Buckets gathered;           ///< before it
  Buckets released;           ///< behind it
  Buckets new_gradients;      ///< before first_gradient
  Buckets reduced;            ///< behind it
};

/// How many that run at once have a bucket.
class Holders {
 public:
  /// Those of them that nobody had.
  Buckets take(const Buckets& buckets) {
    Buckets first;
    for (const size_t bucket : buckets) {
      if (counts_[bucket]++ == 0) first.push_back(bucket);
    }
    return first;
  }
  /// Those of them that nobody has any more.
  Buckets give_back(const Buckets& buckets) {
    Buckets last;
    for (const size_t bucket : buckets) {
      if (--counts_[bucket] == 0) last.push_back(bucket);
    }
    return last;
  }

 private:
  std::map<size_t, int> counts_;
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
    if (units_.empty()) return;
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

  /// A layer is one unit, whichever of its halves runs, and whichever piece of one.
  const Use& use_of(const Item& item, const Segment& segment) {
    const auto [place, is_new] = uses_.try_emplace({item.segment, item.layer});
    Use& use = place->second;
    if (!is_new) return use;
    const int32_t first = item.segment - segment.piece;
    for (int32_t piece = first; piece < first + segment.num_pieces; ++piece) {
      for (const Instr& instr : program_.segments[static_cast<size_t>(piece)]->code) {
        for (const Ref& ref : instr.refs) {
          if (instr.verb == Verb::acquire) add_buckets(ref, item.layer, use.weights);
          if (ref.space == Space::grad) add_buckets(ref, item.layer, use.gradients);
        }
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
    visits_ = visits_of(program_, is_visit);
    units_.resize(visits_.all.size());
    for (size_t k = 0; k < units_.size(); ++k) units_[k].first_gradient = visits_.all[k].end;
    for (size_t i = 0; i < program_.items.size(); ++i) {
      if (!visits_.of_item[i]) continue;
      UnitVisit& unit = units_[*visits_.of_item[i]];
      const Item& item = program_.items[i];
      const Use& use = use_of(item, *program_.segments[static_cast<size_t>(item.segment)]);
      for (const size_t bucket : use.weights) add(unit.use.weights, bucket);
      for (const size_t bucket : use.gradients) add(unit.use.gradients, bucket);
      if (!use.gradients.empty()) unit.first_gradient = std::min(unit.first_gradient, i);
    }
  }

  void find_weights() {
    if (keeps_stage_) {
      const auto weights = [](const UnitVisit& unit) { return unit.use.weights; };
      for_first_and_last(
          weights, [](size_t) { return 0; }, &UnitVisit::gathered, &UnitVisit::released);
      return;
    }
    for (size_t k = 0; k < units_.size(); ++k) {
      const Visit& visit = visits_.all[k];
      const auto stays = [&](size_t other, size_t bucket) {
        return visit.is_with(visits_.all[other]) && has(units_[other].use.weights, bucket);
      };
      for (const size_t bucket : units_[k].use.weights) {
        if (!visit.before || !stays(*visit.before, bucket)) units_[k].gathered.push_back(bucket);
        const auto stays_for = [&](size_t next) { return stays(next, bucket); };
        if (std::ranges::none_of(visit.behind, stays_for)) units_[k].released.push_back(bucket);
      }
    }
  }

  /// All gradients of a micro-batch are reduced together, where a unit is used more than once, too.
  void find_gradients() {
    const auto gradients = [](const UnitVisit& unit) { return unit.use.gradients; };
    const auto round = [&](size_t k) { return keeps_stage_ ? 0 : visits_.all[k].micro_batch; };
    for_first_and_last(gradients, round, &UnitVisit::new_gradients, &UnitVisit::reduced);
  }

  /// Of each bucket in each round the first visit and the last one that use it.
  template <typename BucketsOf, typename RoundOf>
  void for_first_and_last(BucketsOf&& buckets_of, RoundOf&& round_of, Buckets UnitVisit::*first,
                          Buckets UnitVisit::*last) {
    std::map<std::pair<int32_t, size_t>, size_t> last_of;
    for (size_t k = 0; k < units_.size(); ++k) {
      for (const size_t bucket : buckets_of(units_[k])) {
        const auto [place, is_new] = last_of.try_emplace({round_of(k), bucket}, k);
        if (is_new) (units_[k].*first).push_back(bucket);
        // Of two that run at once the later one may end first.
        if (visits_.all[k].end > visits_.all[place->second].end) place->second = k;
      }
    }
    for (const auto& [key, k] : last_of) add(units_[k].*last, key.second);
  }

  void write() {
    std::vector<Item> old = std::move(program_.items);
    program_.items.clear();
    size_t num_ended = 0;
    for (size_t i = 0; i < old.size(); ++i) {
      if (const auto k = visits_.begins_at(i)) begin(*k);
      if (const auto k = visits_.of_item[i]; k && units_[*k].first_gradient == i) {
        begin_gradients(*k);
      }
      if (num_ended == units_.size() && old[i].micro_batch < 0) {
        settle(old.size(), visits_.all.back());
      }
      program_.items.push_back(old[i]);
      if (const auto k = visits_.ends_with(i)) {
        end(*k);
        ++num_ended;
      }
    }
  }

  void begin(size_t k) {
    const Visit& visit = visits_.all[k];
    const auto is_early = [&](size_t bucket) {
      return visit.before && !has(units_[*visit.before].use.weights, bucket);
    };
    fetch(k, [&](size_t bucket) { return !is_early(bucket); });
    const auto is_on_its_way = [&](size_t bucket) { return has(gathered_, bucket); };
    if (std::ranges::any_of(units_[k].use.weights, is_on_its_way)) {
      run(arrive(), visit);
      gathered_.clear();
    }
    for (const size_t next : visit.behind) {
      fetch(next, [&](size_t bucket) { return !has(units_[k].use.weights, bucket); });
    }
  }

  /// Has those be there for a visit; what is there for another one is not gathered again.
  template <typename IsWanted>
  void fetch(size_t k, IsWanted&& is_wanted) {
    Buckets wanted;
    for (const size_t bucket : units_[k].gathered) {
      if (is_wanted(bucket)) wanted.push_back(bucket);
    }
    const Buckets missing = weights_.take(wanted);
    for (const size_t bucket : missing) add(gathered_, bucket);
    run(gather(missing, visits_.all[k]), visits_.all[k]);
  }

  void begin_gradients(size_t k) {
    const Visit& visit = visits_.all[k];
    // Where two micro-batches add to a gradient at once, as the depths of multi-token prediction do
    // that share a layer, it is reduced behind the last of them.
    const Buckets fresh = whole_gradients_.take(units_[k].new_gradients);
    // The same unit for another micro-batch.
    const auto is_fresh = [&](size_t bucket) { return has(fresh, bucket); };
    const bool is_on_its_way = std::ranges::any_of(
        reduced_, [&](const Reduced& sent) { return std::ranges::any_of(sent.buckets, is_fresh); });
    if (is_on_its_way) settle(visit.end, visit);
    run(gradients(fresh), visit);
  }

  void end(size_t k) {
    const Visit& visit = visits_.all[k];
    run(release(weights_.give_back(units_[k].released)), visit);
    settle(visit.begin, visit);
    const Buckets whole = whole_gradients_.give_back(units_[k].reduced);
    run(reduce(whole), visit);
    if (!whole.empty()) reduced_.push_back({whole, visit.end});
  }

  /// The gradients that are on their way since then or longer have arrived.
  void settle(size_t item, const Visit& place) {
    Buckets arrived;
    for (const Reduced& sent : reduced_) {
      if (sent.since > item) continue;
      for (const size_t bucket : sent.buckets) add(arrived, bucket);
    }
    std::erase_if(reduced_, [&](const Reduced& sent) { return sent.since <= item; });
    run(drop(arrived), place);
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
  /// it one unit ahead in its step.
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
  Visits visits_;
  std::vector<UnitVisit> units_;  ///< by visit
  Holders weights_;               ///< that are gathered
  Holders whole_gradients_;
  Buckets gathered_;  ///< weights that compute has not waited for
  struct Reduced {
    Buckets buckets;
    size_t since = 0;  ///< the item that they are behind
  };
  std::vector<Reduced> reduced_;  ///< gradients on their way
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
