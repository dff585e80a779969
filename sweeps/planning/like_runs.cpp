// A published run is brought to the user's conditions one by one; what is left between the two are
// settings.
#include "sweeps/planning/like_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/spec/peaks.h"
#include "kernels/base/error.h"
#include "sweeps/planning/calibration_cases.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/row_words.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/stages.h"

namespace moetune::sweeps {

namespace planner = tuner::planner;
using planner::PlanRun;

namespace {

constexpr size_t kMostShown = 3;

/// Sizes of matrices. Vocabulary and multi-token prediction may differ: the same model is trained
/// with padded ones, and without.
auto shape_of(const spec::ModelSpec& m) {
  const bool has_dense = m.num_layers_with(spec::FeedForward::dense) > 0;
  return std::tuple(
      m.num_layers, m.hidden_size, m.num_heads, m.num_kv_heads, m.head_dim,
      has_dense ? m.ffn_size : 0, m.num_experts,
      m.num_experts > 0
          ? std::tuple(m.experts_per_token, m.moe_ffn_size, m.shared_ffn_size, m.moe_latent_size)
          : std::tuple<int64_t, int64_t, int64_t, int64_t>(),
      m.has_gated_mlp,
      std::tuple(m.mla.q_lora_rank, m.mla.kv_lora_rank, m.mla.qk_nope_head_dim,
                 m.mla.qk_rope_head_dim, m.mla.v_head_dim, m.mla.index_heads, m.mla.index_head_dim),
      std::tuple(m.gdn.num_key_heads, m.gdn.num_value_heads, m.gdn.key_head_dim,
                 m.gdn.value_head_dim),
      std::tuple(m.mamba.num_heads, m.mamba.head_dim, m.mamba.state_size, m.mamba.num_groups));
}

bool have_same_shape(const spec::ModelSpec& a, const spec::ModelSpec& b) {
  if (shape_of(a) != shape_of(b)) return false;
  for (int64_t layer = 0; layer < a.num_layers; ++layer) {
    if (a.kind_of(layer) != b.kind_of(layer)) return false;
  }
  return true;
}

/// Devices of one maker whose peaks are alike: boards of a generation differ in clock, memory and
/// links; from one generation to the next the peak doubles and more.
bool are_of_generation(const spec::HardwareSpec& a, const spec::HardwareSpec& b) {
  constexpr double kMostApart = 4.0 / 3;
  const double ratio = a.peak_flops_per_s / b.peak_flops_per_s;
  return a.vendor == b.vendor && ratio < kMostApart && 1 / ratio < kMostApart;
}

double distance(int64_t a, int64_t b) {
  return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
}

/// 0: the same; 1: another recipe of as many bits; 2: of others.
int precision_distance(const PlanRun& a, const PlanRun& b) {
  if (a.knobs.precision == b.knobs.precision) return 0;
  const auto peak = [&](const PlanRun& run) {
    return spec::peak_flops_per_s(*b.hardware, run.knobs.precision);
  };
  return peak(a) == peak(b) ? 1 : 2;
}

/// All that a row states of its run, on which devices, and by what.
std::string configuration_of(const PublishedRow& row) {
  const PlanRun& run = row.run;
  std::string text = fmt::format("{}|{}|{}|{}|{}|{}|{}", row.hardware_name, row.software,
                                 spec::to_json(run.knobs).dump(), run.global_batch_size,
                                 run.seq_length, run.load, run.model->mtp.depth);
  for (const std::string& stage : run.stages) text += "|" + stage;
  for (const int64_t layers : run.stage_layers) text += fmt::format("|{}", layers);
  return text;
}

/// Of a row that is not looked at; empty: it is.
std::string why_left_out(const PublishedRow& row) {
  if (row.is_suspect) return "suspect: its figures contradict each other or their source";
  if (!row.reason.empty()) return "cannot be priced: " + shown_of_row(row.reason);
  if (!row.ran) return "did not run";
  return row.tokens_per_s.value_or(0) > 0 ? "" : "states no speed";
}

/// The rule that a run breaks and the row itself does not; null: none.
const planner::PlanRule* newly_broken(const PlanRun& run, const PlanRun& row) {
  for (const planner::PlanRule* rule : planner::broken_rules(run)) {
    if (rule->holds(row)) return rule;
  }
  return nullptr;
}

/// Stages that are written name the layers of multi-token prediction: those of another depth go to
/// the loss.
void set_mtp_of_stages(int64_t depth, planner::Stages& stages) {
  if (stages.empty()) return;
  for (std::string& stage : stages) std::erase(stage, 'm');
  std::string& last = stages.back();
  last.insert(std::min(last.find('L'), last.size()), static_cast<size_t>(depth), 'm');
}

std::string model_text(const spec::ModelSpec& model) {
  return fmt::format("vocabulary of {}{}", model.vocab_rows(),
                     model.mtp.depth == 0
                         ? std::string()
                         : fmt::format(", {} of multi-token prediction", model.mtp.depth));
}

/// A published run on its way to the user's conditions.
class Way {
 public:
  Way(const PublishedRow& row, const LikeQuestion& question, LikeRun& like)
      : row_(row),
        asked_(question),
        like_(like),
        run_(row.run),
        routing_(routing_of_case(*row.model, row.routing)),
        months_(row.months) {
    // Who refuses what is no condition of a run.
    run_.takes_padded_deepep = asked_.run.takes_padded_deepep;
    run_.states_own_modules = asked_.run.states_own_modules;
    last_ = rate();
  }

  /// Behind it, the published layout and choices are those of a run of the user's.
  PlanRun go() {
    const PlanRun& yours = asked_.run;
    take_machine();
    if (row_.hardware->num_devices() != yours.hardware->num_devices()) {
      take("GPUs", std::to_string(row_.hardware->num_devices()),
           std::to_string(yours.hardware->num_devices()), [&] {
             run_.hardware = yours.hardware;
             spec::set_dp_for(yours.hardware->num_devices(), run_.knobs);
           });
    }
    run_.hardware = yours.hardware;
    take_model();
    take_if_other("parts of a micro-batch that are exchanged in turns", row_.run.ep_chunks,
                  yours.ep_chunks, [&] { run_.ep_chunks = yours.ep_chunks; });
    take_if_other("tokens of a sequence", row_.run.seq_length, yours.seq_length,
                  [&] { run_.seq_length = yours.seq_length; });
    take_if_other("sequences of a step", row_.run.global_batch_size, yours.global_batch_size,
                  [&] { run_.global_batch_size = yours.global_batch_size; });
    take_routing();
    if (months_ != 0) {
      take("software", shown_of_row(row_.date), fmt::format("that of {}", asked_.loaded.date),
           [&] { months_ = 0; });
    }
    return run_;
  }

 private:
  using Change = std::function<void()>;

  [[nodiscard]] double rate() const {
    const bool is_theirs = run_.hardware == row_.hardware.get();
    const Calibration calibration =
        (is_theirs ? asked_.loaded : asked_.of_machine).for_case(*run_.hardware, routing_, months_);
    return predicted_tokens_per_s(run_, calibration, months_);
  }

  void take(std::string what, std::string from, std::string to, const Change& change) {
    Condition condition = {std::move(what), std::move(from), std::move(to), {}};
    try {
      change();
      if (const planner::PlanRule* broken = newly_broken(run_, row_.run)) {
        condition.why = told_once(broken->name, broken->message(run_));
      } else {
        const double now = rate();
        condition.ratio = now / std::exchange(last_, now);
        if (num_open_ > 0) {
          condition.why = fmt::format("together with the {} before it", num_open_);
          num_open_ = 0;
        }
      }
    } catch (const base::UsageError& error) {
      condition.why = error.what();
    }
    if (!condition.ratio) ++num_open_;
    like_.conditions.push_back(std::move(condition));
  }

  /// A rule with what it says; behind that its name alone.
  std::string told_once(std::string_view rule, const std::string& message) {
    return told_.insert(message).second ? fmt::format("{}: {}", rule, message)
                                        : fmt::format("{}, as above", rule);
  }

  void take_if_other(const char* what, int64_t from, int64_t to, const Change& change) {
    if (from != to) take(what, std::to_string(from), std::to_string(to), change);
  }

  /// The user's machine with as many devices as the row's.
  void take_machine() {
    const spec::HardwareSpec& theirs = *row_.hardware;
    const spec::HardwareSpec& yours = *asked_.run.hardware;
    const auto kind = [](spec::HardwareSpec machine) {
      machine.num_nodes = machine.devices_per_node = 1;
      machine.source.clear();
      machine.sources.clear();
      return spec::to_json(machine);
    };
    if (kind(theirs) == kind(yours)) return;
    const bool is_name_same = theirs.name == yours.name;
    take("devices", theirs.name, yours.name + (is_name_same ? " as your file has them" : ""), [&] {
      machine_ = machine_of(asked_.machine, theirs.num_devices());
      run_.hardware = machine_.get();
    });
  }

  void take_model() {
    const spec::ModelSpec& theirs = *row_.model;
    const spec::ModelSpec& yours = *asked_.run.model;
    const auto change = [&] {
      if (theirs.mtp.depth != yours.mtp.depth) set_mtp_of_stages(yours.mtp.depth, run_.stages);
      run_.model = asked_.run.model;
    };
    if (model_text(theirs) != model_text(yours)) {
      take("model", model_text(theirs), model_text(yours), change);
      return;
    }
    change();
    // Of what has no words here, such as windows, as far as it has a price.
    constexpr double kTold = 0.0005;
    const double now = newly_broken(run_, row_.run) == nullptr ? rate() : last_;
    if (std::abs(now / last_ - 1) < kTold) return;
    like_.conditions.push_back(
        {"model", "as its row has it", "as yours has it", now / std::exchange(last_, now)});
  }

  void take_routing() {
    const PlanRun& yours = asked_.run;
    const std::string routing = routing_of_load(*yours.model, yours.load);
    if (routing == routing_ && run_.load == yours.load) return;
    const auto text = [&](std::string_view name, double load) {
      if (run_.load == yours.load) return std::string(name);
      return fmt::format("{}, the busiest rank's experts with {:.2f} of their share", name, load);
    };
    take("routing", text(routing_, run_.load), text(routing, yours.load), [&] {
      routing_ = routing;
      run_.load = yours.load;
    });
  }

  const PublishedRow& row_;
  const LikeQuestion& asked_;
  LikeRun& like_;
  PlanRun run_;
  std::string routing_;
  double months_ = 0;
  std::set<std::string> told_;  ///< what broken rules say
  double last_ = 0;             ///< priced last
  size_t num_open_ = 0;         ///< conditions since then, which could not be priced
  std::shared_ptr<const spec::HardwareSpec> machine_;  ///< of run_, on the way
};

/// From a command to a published layout under the command's conditions.
void find_way(const LikeQuestion& question, const PlanRun& goal, LikeRun& like) {
  like.changes = differences(question.run, goal);
  const ChangeEnds ends = {question.run, goal, question.capacity_bytes, question.of_case,
                           question.words};
  if (like.moved_tokens_per_s) {
    like.path = change_path(ends, like.changes, question.tokens_per_s, *like.moved_tokens_per_s);
    like.changes.clear();
  } else {
    judge_changes(ends, like.changes);
  }
}

void compare(const LikeQuestion& question, LikeRun& like) {
  if (like.row.is_of_other_engine) {
    like.notes.emplace_back(
        "it is priced as Megatron-Core, on which its software is not, or not known to be, built: "
        "what it reached above or below its price may be of its engine");
  }
  PlanRun goal = Way(like.row, question, like).go();
  if (!question.run.is_of_megatron) {
    like.notes.emplace_back(
        "published runs are priced as Megatron-Core, and yours is of another engine: what lies "
        "between the two is of both engine and settings, and no steps are told");
    return;
  }
  // Of no effect without tensor parallelism, whatever it says.
  if (goal.knobs.tp == 1) goal.knobs.sequence_parallel = question.run.knobs.sequence_parallel;
  // As a command without a layout is priced.
  if (goal.stages.empty() && goal.stage_layers.empty() && goal.knobs.pp > 1 &&
      planner::splits_by_itself(goal)) {
    goal.stages = planner::unwritten_stages(goal);
  }
  if (const planner::PlanRule* broken = newly_broken(goal, like.row.run)) {
    like.broken_rule = broken->name;
    like.rule_text = broken->message(goal);
  } else {
    like.moved_tokens_per_s = predicted_tokens_per_s(goal, question.of_case, 0);
  }
  if (question.is_command) find_way(question, goal, like);
}

}  // namespace

std::vector<const PublishedRow*> like_rows(const std::vector<PublishedRow>& rows,
                                           const PlanRun& run, LikeRuns& told) {
  told.num_rows = rows.size();
  std::vector<const PublishedRow*> found;
  for (const PublishedRow& row : rows) {
    if (const std::string reason = why_left_out(row); !reason.empty()) {
      told.left_out.push_back({shown_of_row(row.id), reason});
    } else if (row.run.knobs.task == run.knobs.task && have_same_shape(*row.model, *run.model) &&
               are_of_generation(*row.hardware, *run.hardware)) {
      found.push_back(&row);
    }
  }
  const auto place = [&](const PublishedRow* row) {
    return std::tuple(
        !is_device_of(row->hardware_name, *run.hardware),
        distance(row->run.seq_length, run.seq_length), precision_distance(row->run, run),
        distance(row->hardware->num_devices(), run.hardware->num_devices()), -row->months);
  };
  std::ranges::stable_sort(found, std::less{}, place);
  std::set<std::string> stated;
  std::erase_if(found, [&](const PublishedRow* row) {
    const bool is_new = stated.insert(configuration_of(*row)).second;
    if (!is_new) told.left_out.push_back({shown_of_row(row->id), "states what another row states"});
    return !is_new;
  });
  told.num_like = found.size();
  return found;
}

LikeRuns find_like_runs(const std::vector<PublishedRow>& rows, std::string file,
                        const LikeQuestion& question) {
  LikeRuns like;
  like.file = std::move(file);
  like.tokens_per_s = question.tokens_per_s;
  like.capacity_bytes = question.capacity_bytes;
  like.is_command = question.is_command;
  for (const PublishedRow* row : like_rows(rows, question.run, like)) {
    if (like.runs.size() == kMostShown) break;
    LikeRun& one = like.runs.emplace_back();
    one.row = *row;
    one.estimate = estimate_row(one.row, question.loaded);
    if (question.tokens_per_s > 0) compare(question, one);
  }
  return like;
}

}  // namespace moetune::sweeps
