// Fully sharded data parallelism: what is gathered and scattered, when, and how long it is there.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>

#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(fsdp_pass)

namespace {

using spec::Fsdp;
using testing::error_of;
using testing::ModelSpec;
using testing::num_ranks;

constexpr Planned planned_with(Fsdp fsdp, bool is_woven = false) {
  Planned planned;
  planned.fsdp = fsdp;
  planned.overlaps_micro_batches = is_woven;
  return planned;
}
constexpr Planned kMegatron = planned_with(Fsdp::megatron);
constexpr Planned kTorch = planned_with(Fsdp::torch);
constexpr Planned kWoven = planned_with(Fsdp::megatron, true);

const char* const kLayouts[] = {
    R"({"data_parallel_size": 2})",
    R"({"data_parallel_size": 2, "overlap_grad_reduce": true, "recompute": "norm,core_attn"})",
    R"({"data_parallel_size": 2, "recompute": "full"})",
    R"({"context_parallel_size": 2, "micro_batch_size": 2})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2})",
    R"({"data_parallel_size": 2, "pipeline_model_parallel_size": 2})",
    R"({"data_parallel_size": 2, "pipeline_model_parallel_size": 2, "recompute": "full",
        "virtual_pipeline_model_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2})",
};
const char* const kExpertLayouts[] = {
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "recompute": "moe_act"})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
        "recompute": "full"})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2})",
};
/// Of those with experts, such as overlap over micro-batches takes.
const char* const kWovenLayouts[] = {
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 2})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
        "ep_chunks_backward": 3, "recompute": "norm,core_attn,moe_act"})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 2, "pipeline_model_parallel_size": 2,
        "virtual_pipeline_model_parallel_size": 2, "overlap_grad_reduce": true})",
};

std::vector<std::string> layouts_for(const ModelSpec& model) {
  std::vector<std::string> all(std::begin(kLayouts), std::end(kLayouts));
  if (model.num_experts > 0) {
    all.insert(all.end(), std::begin(kExpertLayouts), std::end(kExpertLayouts));
  }
  return all;
}

/// body(trial, planned) for all models and layouts.
void for_all(const std::function<void(const spec::TrialSpec&, const Planned&)>& body) {
  for (const auto& [name, model] : testing::small_models()) {
    for (const std::string& knobs : layouts_for(model)) {
      for (const Planned& planned : {kMegatron, kTorch}) {
        BOOST_TEST_CONTEXT(name << " " << knobs << " " << spec::name_of(planned.fsdp)) {
          body(testing::trial_of(model, knobs), planned);
        }
      }
    }
  }
  for (const auto& [name, model] : testing::small_models()) {
    if (model.num_experts == 0) continue;
    for (const char* knobs : kWovenLayouts) {
      for (const Fsdp fsdp : {Fsdp::megatron, Fsdp::torch}) {
        BOOST_TEST_CONTEXT(name << " " << knobs << " woven, " << spec::name_of(fsdp)) {
          body(testing::trial_of(model, knobs), planned_with(fsdp, true));
        }
      }
    }
  }
}

bool is_part(const Ref& ref, BucketPart part) {
  return ref.space == Space::bucket && ref.id == static_cast<uint8_t>(part);
}

BOOST_AUTO_TEST_CASE(programs_with_shards_hold_what_all_hold) {
  for_all([](const spec::TrialSpec& trial, const Planned& planned) {
    for (int rank = 0; rank < num_ranks(trial); ++rank) {
      BOOST_TEST(error_of(compile(trial, rank, planned)) == "");
    }
  });
}

BOOST_AUTO_TEST_CASE(ranks_with_shards_do_all_that_their_programs_say) {
  for_all([](const spec::TrialSpec& trial, const Planned& planned) {
    testing::play_all(trial, planned);
  });
}

/// What the compute stream has waited for, as a device sees it: no collective's result is read
/// before it has ended, and no memory is written again that a stream may still read.
class Ordering {
 public:
  explicit Ordering(const StepProgram& program) : program_(program) {}

  /// How many gathered buckets were used.
  int run() {
    for (const Item& item : program_.items) {
      const Segment& segment = *program_.segments[static_cast<size_t>(item.segment)];
      std::vector<Clock>& events = events_[lane_of(segment)];
      if (segment.begins()) events.assign(static_cast<size_t>(segment.num_events), {});
      for (const Instr& instr : segment.code) step(item, segment, instr);
    }
    return num_used_;
  }

 private:
  using Clock = std::array<int64_t, static_cast<size_t>(Stream::count)>;

  Clock& clock(Stream stream) { return clocks_[static_cast<size_t>(stream)]; }
  static void raise(Clock& clock, const Clock& other) {
    for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
  }
  [[nodiscard]] Clock seen_by(Stream stream) const {
    Clock seen = clocks_[static_cast<size_t>(stream)];
    seen[static_cast<size_t>(stream)] = launched_[static_cast<size_t>(stream)];
    return seen;
  }

  void step(const Item& item, const Segment& segment, const Instr& instr) {
    const auto stream = static_cast<size_t>(instr.stream);
    std::vector<Clock>& events = events_[lane_of(segment)];
    switch (instr.verb) {
      case Verb::record:
        events[static_cast<size_t>(instr.event)] = seen_by(instr.stream);
        return;
      case Verb::wait:
        return raise(clock(instr.stream), events[static_cast<size_t>(instr.event)]);
      case Verb::op:
        ++launched_[stream];
        return;
      case Verb::comm:
        ++launched_[stream];
        if (instr.op == Op::shard_gather) {
          gathered_[instr.refs[1].row] = launched_[stream];
          // Compute has done with what was there before.
          BOOST_TEST(clocks_[stream][0] >= freed_at_);
        }
        if (instr.op == Op::shard_reduce) {
          BOOST_TEST(clocks_[stream][0] == launched_[0], "gradients are not all there");
          reduced_[instr.refs[0].row] = launched_[stream];
        }
        return;
      case Verb::free:
        if (is_part(instr.refs.front(), BucketPart::gathered)) freed_at_ = launched_[0];
        if (is_part(instr.refs.front(), BucketPart::whole_grad)) {
          const auto data = static_cast<size_t>(Stream::data);
          BOOST_TEST(clocks_[0][data] >= reduced_.at(instr.refs.front().row));
        }
        return;
      case Verb::acquire:
        for (const ParamDesc& param : program_.params.params) {
          const bool is_its = param.layer == item.layer || param.layer < 0;
          const bool is_used = std::ranges::any_of(instr.refs, [&](const Ref& ref) {
            return ref.id == static_cast<uint8_t>(param.kind);
          });
          if (!is_its || !is_used) continue;
          if (!program_.params.buckets[static_cast<size_t>(param.bucket)].is_sharded) continue;
          ++num_used_;
          BOOST_TEST(clocks_[0][static_cast<size_t>(Stream::weights)] >= gathered_.at(param.bucket),
                     name_of(segment.block) << " does not wait for " << param.name);
        }
        return;
      default:
        return;
    }
  }

  const StepProgram& program_;
  std::array<Clock, static_cast<size_t>(Stream::count)> clocks_{};
  Clock launched_{};
  std::array<std::vector<Clock>, kNumLanes> events_;
  std::map<int64_t, int64_t> gathered_;  ///< by bucket, which launch of its stream
  std::map<int64_t, int64_t> reduced_;
  int64_t freed_at_ = 0;
  int num_used_ = 0;
};

BOOST_AUTO_TEST_CASE(compute_waits_for_the_weights_and_collectives_for_compute) {
  for_all([](const spec::TrialSpec& trial, const Planned& planned) {
    BOOST_TEST(Ordering(compile(trial, num_ranks(trial) - 1, planned)).run() > 0);
  });
}

/// Bytes of parts of buckets that are there only at times.
struct Held {
  int64_t now = 0;
  int64_t most = 0;
  std::set<int64_t> buckets;

  void change(const Instr& instr) {
    const bool is_alloc = instr.verb == Verb::alloc;
    now += is_alloc ? instr.cost.bytes : -instr.cost.bytes;
    most = std::max(most, now);
    if (is_alloc) buckets.insert(instr.refs.front().row);
  }
};
Held held_of(const StepProgram& program, BucketPart part) {
  Held held;
  for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
    const bool is_memory = instr.verb == Verb::alloc || instr.verb == Verb::free;
    if (is_memory && is_part(instr.refs.front(), part)) held.change(instr);
  });
  return held;
}

int64_t numel_of_sharded(const StepProgram& program) {
  int64_t numel = 0;
  for (const BucketDesc& bucket : program.params.buckets) {
    if (bucket.is_sharded) numel += bucket.numel;
  }
  return numel;
}

BOOST_AUTO_TEST_CASE(what_is_gathered_goes_again) {
  for_all([](const spec::TrialSpec& trial, const Planned& planned) {
    const StepProgram program = compile(trial, 0, planned);
    for (const BucketPart part : {BucketPart::gathered, BucketPart::whole_grad}) {
      const Held held = held_of(program, part);
      BOOST_TEST(held.now == 0);
      BOOST_TEST(held.most > 0);
      for (size_t i = 0; i < program.params.buckets.size(); ++i) {
        BOOST_TEST(held.buckets.contains(static_cast<int64_t>(i)) ==
                   program.params.buckets[i].is_sharded);
      }
    }
  });
}

int64_t num_alone(const StepProgram& program) {
  return std::ranges::count_if(program.params.buckets, [&](const BucketDesc& bucket) {
    return program.layout.group_size(bucket.group) == 1;
  });
}

ModelSpec eight_layers() {
  ModelSpec model = testing::small_gpt_oss();
  testing::set_layers(model, testing::layers_of(spec::Mixer::gqa, 8, 0));
  return model;
}

// Of eight alike layers two are there at once, and the gradients of two: those that are added to
// and those that are reduced.
BOOST_AUTO_TEST_CASE(two_units_are_there_at_once) {
  for (const char* knobs : {kLayouts[0], kLayouts[2], kLayouts[5], kExpertLayouts[1]}) {
    const StepProgram program = compile(testing::trial_of(eight_layers(), knobs), 0, kMegatron);
    int64_t of_layer = 0;
    for (const BucketDesc& bucket : program.params.buckets) {
      if (bucket.layer == 0 && bucket.is_sharded) of_layer += bucket.numel;
    }
    BOOST_TEST(num_alone(program) == 0);
    BOOST_TEST(held_of(program, BucketPart::gathered).most == 2 * 2 * of_layer);
    BOOST_TEST(held_of(program, BucketPart::whole_grad).most == 4 * 2 * of_layer);
  }
}

struct Sums {
  int64_t gathered = 0;
  int64_t reduced = 0;
};
Sums sums_of(const StepProgram& program) {
  Sums sums;
  for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
    if (instr.verb != Verb::comm) return;
    if (instr.op == Op::shard_gather) sums.gathered += instr.cost.bytes;
    if (instr.op == Op::shard_reduce) sums.reduced += instr.cost.bytes;
    BOOST_TEST((instr.op != Op::param_gather && instr.op != Op::grad_reduce));
  });
  return sums;
}

BOOST_AUTO_TEST_CASE(units_are_gathered_twice_and_reduced_once_a_micro_batch) {
  ModelSpec model = testing::small_gpt_oss();
  for (const char* recompute : {"", R"(, "recompute": "full")"}) {
    for (const char* sizes : {R"("data_parallel_size": 2)",
                              R"("data_parallel_size": 2, "pipeline_model_parallel_size": 2)"}) {
      const spec::TrialSpec trial =
          testing::trial_of(model, std::string("{") + sizes + recompute + "}");
      for (int stage = 0; stage < layout_of(trial.knobs).pp; ++stage) {
        const StepProgram program = compile(trial, 2 * stage, kMegatron);
        // Head and loss take their gradients at once.
        int64_t of_head = 0;
        for (const ParamDesc& param : program.params.params) {
          const bool is_head = param.kind == ParamKind::head || param.kind == ParamKind::final_norm;
          const BucketDesc& bucket = program.params.buckets[static_cast<size_t>(param.bucket)];
          if (is_head) of_head += bucket.numel;
        }
        const int64_t numel = numel_of_sharded(program);
        constexpr int64_t kMicroBatches = 4;
        BOOST_TEST(sums_of(program).gathered == 2 * kMicroBatches * (2 * numel - of_head));
        BOOST_TEST(sums_of(program).reduced == 4 * kMicroBatches * numel);
      }
    }
  }
}

// Of two steps that are woven each has its unit and the one ahead. Reduced is as much as without.
BOOST_AUTO_TEST_CASE(woven_steps_have_two_units_each) {
  ModelSpec model = eight_layers();
  for (const bool is_tied : {false, true}) {
    model.ties_embeddings = is_tied;
    const spec::TrialSpec trial = testing::trial_of(model, kWovenLayouts[0]);
    const StepProgram plain = compile(trial, 0, kMegatron);
    const StepProgram woven = compile(trial, 0, kWoven);
    BOOST_TEST(error_of(woven) == "");
    int64_t of_layer = 0;
    for (const BucketDesc& bucket : woven.params.buckets) {
      if (bucket.layer == 0 && bucket.is_sharded) of_layer += bucket.numel;
    }
    BOOST_TEST(held_of(plain, BucketPart::gathered).most == 2 * 2 * of_layer);
    BOOST_TEST(held_of(woven, BucketPart::gathered).most == 4 * 2 * of_layer);
    BOOST_TEST(held_of(woven, BucketPart::whole_grad).most ==
               held_of(plain, BucketPart::whole_grad).most);
    // A unit that both need at once comes once.
    BOOST_TEST(sums_of(woven).gathered < sums_of(plain).gathered);
    BOOST_TEST(sums_of(woven).reduced == sums_of(plain).reduced);
  }
}

// PyTorch's FSDP2 beside pipeline stages.
BOOST_AUTO_TEST_CASE(a_stage_stays_gathered_where_nothing_is_resharded) {
  const spec::TrialSpec trial = testing::trial_of(testing::small_gpt_oss(), kLayouts[5]);
  for (const int rank : {0, 2}) {
    const StepProgram program = compile(trial, rank, kTorch);
    const int64_t numel = numel_of_sharded(program);
    BOOST_TEST(held_of(program, BucketPart::gathered).most == 2 * numel);
    BOOST_TEST(held_of(program, BucketPart::whole_grad).most == 4 * numel);
    BOOST_TEST(sums_of(program).gathered == 2 * numel);
    BOOST_TEST(sums_of(program).reduced == 4 * numel);
  }
  // Without them it does as the other one.
  const spec::TrialSpec flat = testing::trial_of(testing::small_gpt_oss(), kLayouts[0]);
  BOOST_TEST(sums_of(compile(flat, 0, kTorch)).gathered ==
             sums_of(compile(flat, 0, kMegatron)).gathered);
}

BOOST_AUTO_TEST_CASE(a_rank_has_shards_from_the_start) {
  const StepProgram program =
      compile(testing::trial_of(testing::small_gpt_oss(), kExpertLayouts[1]), 1, kMegatron);
  std::map<std::pair<int64_t, uint8_t>, int64_t> bytes;
  for (const Instr& instr :
       program.segments[static_cast<size_t>(program.setup.front().segment)]->code) {
    const Ref& ref = instr.refs.front();
    if (ref.space == Space::bucket) bytes[{ref.row, ref.id}] = instr.cost.bytes;
  }
  for (size_t i = 0; i < program.params.buckets.size(); ++i) {
    const BucketDesc& bucket = program.params.buckets[i];
    const int64_t own = bucket.numel / program.layout.group_size(bucket.group);
    const auto of = [&](BucketPart part) {
      return bytes.at({static_cast<int64_t>(i), static_cast<uint8_t>(part)});
    };
    BOOST_TEST(bucket.is_sharded);
    BOOST_TEST(of(BucketPart::weight) == 2 * own);
    BOOST_TEST(of(BucketPart::grad) == 4 * own);
    BOOST_TEST(of(BucketPart::master) == 4 * own);
  }
  // What the update reads and writes lies within the shards.
  for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
    for (const Ref& ref : instr.refs) {
      if (ref.space != Space::bucket || ref.num_cols == 0) continue;
      const BucketDesc& bucket = program.params.buckets[static_cast<size_t>(ref.row)];
      BOOST_TEST(ref.col >= 0);
      BOOST_TEST(ref.col + ref.num_cols <= bucket.own_numel, op_label(instr.op, instr.pass));
    }
  });
}

BOOST_AUTO_TEST_CASE(a_program_with_nothing_planned_is_the_engines_own) {
  for (const char* knobs : kLayouts) {
    const spec::TrialSpec trial = testing::trial_of(testing::small_gpt_oss(), knobs);
    const StepProgram program = compile(trial, 0, Planned{});
    const StepProgram own = compile(trial, 0);
    BOOST_TEST(program.items.size() == own.items.size());
    for_each(program, [&](const Item&, const Segment& segment, const Instr& instr) {
      BOOST_TEST((is_of_model(segment.block) || segment.block == BlockKind::update));
      BOOST_TEST((instr.verb != Verb::copy && instr.stream <= Stream::copy));
    });
    // On one rank there is nobody to share with.
    const spec::TrialSpec alone = testing::trial_of(testing::small_gpt_oss());
    BOOST_TEST(compile(alone, 0, kMegatron).items.size() == compile(alone, 0).items.size());
  }
}

/// The program with one instruction of its shards left out.
StepProgram without(const StepProgram& program, size_t segment, size_t at) {
  StepProgram made = program;
  Segment copy = *program.segments[segment];
  copy.code.erase(copy.code.begin() + static_cast<std::ptrdiff_t>(at));
  made.segments[segment] = std::make_shared<const Segment>(std::move(copy));
  return made;
}

BOOST_AUTO_TEST_CASE(a_shard_that_is_used_as_if_it_were_whole_is_found) {
  for (const char* knobs : {kLayouts[2], kLayouts[5]}) {
    const StepProgram program =
        compile(testing::trial_of(testing::small_gpt_oss(), knobs), 0, kMegatron);
    int num_left_out = 0;
    for (size_t s = 0; s < program.segments.size(); ++s) {
      const Segment& segment = *program.segments[s];
      if (segment.block != BlockKind::shards) continue;
      for (size_t at = 0; at < segment.code.size(); ++at) {
        const Verb verb = segment.code[at].verb;
        if (verb != Verb::alloc && verb != Verb::free && verb != Verb::record) continue;
        ++num_left_out;
        BOOST_TEST(error_of(without(program, s, at)) != "", name_of(verb));
      }
    }
    BOOST_TEST(num_left_out > 10);
  }
}

/// A step of two replicas whose operations take `op_ns` each and whose links move a byte a
/// nanosecond.
int64_t step_ns(const Planned& planned, int64_t op_ns) {
  spec::TrialSpec trial = testing::trial_of(testing::small_gpt_oss(), kLayouts[0]);
  trial.hardware = {};
  trial.hardware.devices_per_node = 2;
  trial.hardware.intra_node = {0, 1e9};
  std::vector<StepProgram> programs;
  std::vector<BalancedBindings> bindings;
  for (int rank = 0; rank < 2; ++rank) {
    programs.push_back(compile(trial, rank, planned));
    bindings.emplace_back(trial, rank);
  }
  return play(trial.hardware, {{&programs[0], &bindings[0]}, {&programs[1], &bindings[1]}},
              [&](const Position&, const Instr& instr, const OpCost&) {
                // The update and zeros are as long for all.
                return instr.op == Op::core_attn ? op_ns : 0;
              })
      .step_ns;
}

/// On four ranks whose products take `product_ns` each and whose links take `latency_ns` a
/// transfer.
int64_t step_with_experts_ns(const Planned& planned, int64_t product_ns, int64_t latency_ns) {
  spec::TrialSpec trial = testing::trial_of(eight_layers(), kWovenLayouts[0]);
  trial.training.global_batch_size *= 4;
  trial.hardware = {};
  trial.hardware.devices_per_node = 4;
  trial.hardware.launch_ns = trial.hardware.sync_ns = 0;
  trial.hardware.intra_node = {latency_ns, 1e15};
  const testing::RanksOfStep step(trial, planned);
  return play(trial.hardware, step.played(),
              [&](const Position&, const Instr& instr, const OpCost&) {
                const Work work = op_row(instr.op).work;
                const bool is_product = work == Work::grouped || work == Work::attention;
                return is_product ? product_ns : int64_t{0};
              })
      .step_ns;
}

BOOST_AUTO_TEST_CASE(woven_steps_hide_rows_and_weights_on_their_way) {
  const auto exposed = [](const Planned& planned) {
    return step_with_experts_ns(planned, 20000, 1000) - step_with_experts_ns(planned, 20000, 0);
  };
  // Counts of rows are waited for, and the first forward and the last backward are beside nothing.
  BOOST_TEST(4 * exposed(kWoven) < 3 * exposed(kMegatron));
}

BOOST_AUTO_TEST_CASE(long_layers_hide_the_weights_on_their_way) {
  const auto more = [](int64_t op_ns) { return step_ns(kMegatron, op_ns) - step_ns({}, op_ns); };
  const int64_t exposed = more(0);
  BOOST_TEST(exposed > 0);
  // What is left is at the ends: the first unit, the last gradients, a head whose weights come
  // while nothing else is to be done.
  const int64_t hidden = more(10'000'000);
  BOOST_TEST(hidden >= -exposed);
  BOOST_TEST(hidden < exposed / 2);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
