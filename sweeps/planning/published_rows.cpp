// Rows to runs: what a row states, and what its release does where it states nothing.
#include "sweeps/planning/published_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "engine/spec/hardware_names.h"
#include "kernels/base/error.h"
#include "sweeps/planning/flops_accounting.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/release_defaults.h"
#include "sweeps/planning/row_checks.h"
#include "sweeps/planning/row_completion.h"
#include "sweeps/planning/row_flags.h"
#include "sweeps/planning/row_layout.h"
#include "sweeps/planning/row_model.h"
#include "sweeps/planning/row_reader.h"
#include "sweeps/planning/row_recompute.h"
#include "sweeps/planning/row_software.h"
#include "sweeps/planning/row_stages.h"
#include "sweeps/planning/row_words.h"
#include "sweeps/planning/token_limit.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;
using spec::PlanKnobs;
using spec::StateType;
/// What a row leaves open or says in words that are not known, and how it is priced.
using Assumed = std::vector<std::string>;

struct StatedDate {
  double months = 0;       ///< after 2026-06; of a year alone its middle
  bool has_month = false;  ///< one of the twelve
  bool is_known = true;    ///< it is a date, or not stated
};
/// Of a text such as "2026-08-22", "2026-08" or "2026".
StatedDate date_of(const std::string& text) {
  if (text.empty()) return {};
  const auto number = [&](size_t from, size_t count, int& value) {
    if (text.size() < from + count) return false;
    const char* end = text.data() + from + count;
    const auto read = std::from_chars(text.data() + from, end, value);
    return read.ec == std::errc() && read.ptr == end && (from == 0 || text[from - 1] == '-');
  };
  StatedDate date;
  int year = 0;
  int month = 0;
  int day = 1;
  date.is_known = text.size() == 4 || text.size() == 7 || text.size() == 10;
  if (!number(0, 4, year) || year < 2015 || year > 2100) {
    date.is_known = false;
    return date;
  }
  date.has_month = number(5, 2, month) && month >= 1 && month <= 12;
  if (text.size() > 4 && !date.has_month) date.is_known = false;
  if (!date.has_month) month = 6;
  if (text.size() > 7 && !number(8, 2, day)) date.is_known = false;
  namespace chrono = std::chrono;
  const chrono::year_month_day whole(chrono::year(year),
                                     chrono::month(static_cast<unsigned>(month)),
                                     chrono::day(static_cast<unsigned>(day)));
  if (day < 1 || !whole.ok()) date.is_known = false;
  date.months = 12.0 * (year - 2026) + month - 6;
  return date;
}

/// The meaning of a text, or `otherwise`, which is then told. No text is `otherwise` by itself.
template <class T>
T meant(const char* key, const std::string& text, const std::optional<T>& meaning, T otherwise,
        Assumed& assumed) {
  if (meaning) return *meaning;
  if (!text.empty()) {
    assumed.push_back(
        fmt::format("{} {}: {} is not known", key, spec::name_of(otherwise), row_word_shown(text)));
  }
  return otherwise;
}

/// Whether the row's makers have filled the field in.
bool is_assumed(const RowReader& row, std::string_view field) {
  return std::ranges::any_of(row.objects("assumed"), [&](const RowReader& entry) {
    return entry.has("field") && entry.at("field") == field;
  });
}

void read_optimizer(const RowReader& row, PlanKnobs& knobs, Assumed& assumed) {
  const RowReader optimizer = row.object("optimizer");
  const std::string type = optimizer.text("type");
  knobs.optimizer =
      meant("optimizer.type", type, optimizer_word(type), spec::OptimizerKind::adam, assumed);
  // Other words, such as who shards it, say that it is distributed.
  const std::string distributed = optimizer.word("distributed");
  knobs.distributed_optimizer = distributed.empty() || (!is_none_word(distributed) &&
                                                        switch_word(distributed).value_or(true));
  const auto state = [&](const char* key, StateType otherwise) {
    const std::string name = optimizer.text(key);
    return meant(key, name, state_word(name), otherwise, assumed);
  };
  knobs.precision_aware_optimizer = switch_word(optimizer.word("precision_aware")).value_or(false);
  knobs.exp_avg = state("exp_avg_dtype", StateType::fp32);
  knobs.exp_avg_sq = state("exp_avg_sq_dtype", StateType::fp32);
  knobs.main_params = state("main_params_dtype", StateType::fp32);
  // A type that was read off some recipe is no statement: then it is the engine's default.
  const StateType main_grads = state("main_grads_dtype", StateType::fp32);
  if (!is_assumed(row, "optimizer")) {
    knobs.main_grads = main_grads;
  } else if (main_grads != knobs.main_grads) {
    assumed.push_back(
        fmt::format("main gradients {} though the row says {}: the row's optimizer is assumed",
                    spec::name_of(knobs.main_grads), spec::name_of(main_grads)));
  }
  knobs.params_dtype = state("params_dtype", StateType::bf16);
  knobs.optimizer_offload_ratio =
      static_cast<float>(std::min(1.0, optimizer.number("offload_fraction").value_or(0)));
  knobs.optimizer_instances = optimizer.size("instances", 1);
}

/// False: something is not known.
bool read_graphs(const RowReader& row, PlanKnobs& knobs, Assumed& assumed) {
  bool is_understood = true;
  const auto add = [&](const std::string& name) {
    const auto scope = graph_word(name);
    if (scope) {
      knobs.cuda_graphs.add(*scope);
    } else if (!is_none_word(name) && plain_word(name) != "eager") {
      is_understood = false;
      assumed.push_back(
          fmt::format("cuda_graphs without {}: the part is not known", row_word_shown(name)));
    }
  };
  if (row.at("cuda_graphs").is_array()) {
    for (const std::string& name : row.texts("cuda_graphs")) add(name);
    return is_understood;
  }
  const std::string text = row.word("cuda_graphs");
  const std::optional<bool> is_on = switch_word(text);
  constexpr std::string_view kBetween = ",;+";
  if (text.starts_with("partial") || is_on.value_or(false)) {
    for (const char* name : {"attn", "moe_router", "moe_preprocess"}) add(name);
    assumed.emplace_back("cuda_graphs attn, moe_router, moe_preprocess: which parts is not stated");
  } else if (!is_on && !graph_word(text) && text.find_first_of(kBetween) != std::string::npos) {
    for (size_t first = 0; first < text.size();) {
      first = std::min(text.find_first_not_of(" \t", first), text.size());
      const size_t end = std::min(text.find_first_of(kBetween, first), text.size());
      add(text.substr(first, end - first));
      first = end + 1;
    }
  } else if (!is_on) {
    add(text);
  }
  return is_understood;
}

/// FSDP and how much of it is sharded, where that is stated apart.
void read_sharding(const RowReader& row, PlanKnobs& knobs, Assumed& assumed) {
  const auto take = [&](const char* key, const std::string& text,
                        const std::optional<ShardingWord>& word, spec::Fsdp otherwise) {
    if (!word)
      assumed.push_back(fmt::format("fsdp {}: {} {} is not known", spec::name_of(otherwise), key,
                                    row_word_shown(text)));
    knobs.fsdp = word ? word->fsdp : otherwise;
    if (!word) return;
    knobs.distributed_optimizer = word->distributed_optimizer.value_or(knobs.distributed_optimizer);
    if (word->shards_gradients) {
      assumed.push_back(fmt::format("gradients are whole on every rank: {} {} is not priced", key,
                                    row_word_shown(text)));
    }
  };
  if (!row.has("fsdp")) return;
  const std::string text = row.word("fsdp");
  if (const std::optional<bool> is_on = switch_word(text)) {
    if (*is_on) knobs.fsdp = spec::Fsdp::megatron;
  } else {
    take("fsdp", text, fsdp_word(text), spec::Fsdp::megatron);
  }
  if (knobs.fsdp == spec::Fsdp::none || !row.has("fsdp_sharding")) return;
  const std::string sharding = row.text("fsdp_sharding");
  take("fsdp_sharding", sharding, fsdp_sharding_word(sharding, knobs.fsdp), knobs.fsdp);
}

/// Behind the other choices: the row's own key counts before other_knobs, and a graph of the
/// experts takes no other number of rows.
void read_padding(const RowReader& row, PlanKnobs& knobs, Assumed& assumed) {
  const std::string text = row.word("pad_to_capacity");
  const std::optional<bool> is_on = switch_word(text);
  if (is_on) {
    knobs.pad_to_capacity = *is_on;
  } else if (!text.empty()) {
    assumed.push_back(fmt::format("pad_to_capacity not read: {} is neither true nor false",
                                  row_word_shown(text)));
  }
  const bool is_captured = knobs.cuda_graphs.has(spec::PlanGraph::moe) ||
                           knobs.cuda_graphs.has(spec::PlanGraph::full_iteration);
  if (!is_on && is_captured && knobs.capacity_factor > 0) knobs.pad_to_capacity = true;
}

/// False: something is not known.
bool read_offload(const RowReader& row, PlanKnobs& knobs, Assumed& assumed) {
  if (!row.has("activation_offload")) return true;
  const json& stated = row.at("activation_offload");
  if (stated.is_string() ? is_none_word(stated.get<std::string>()) : stated == false) {
    return true;
  }
  if (!stated.is_array()) {
    assumed.push_back(fmt::format("activation_offload none: {} names no tensors",
                                  stated.is_string() ? row_word_shown(stated.get<std::string>())
                                                     : std::string("what is stated")));
    return false;
  }
  bool is_understood = true;
  for (const std::string& name : row.texts("activation_offload")) {
    const auto tensor = spec::find_by_name<spec::Offload>(plain_word(name));
    if (tensor) {
      knobs.offload.add(*tensor);
    } else {
      is_understood = false;
      assumed.push_back(fmt::format("activation_offload without {}: the tensor is not known",
                                    row_word_shown(name)));
    }
  }
  return is_understood;
}

/// What is trained beside frozen weights.
void read_adapters(const RowReader& row, PublishedRow& result) {
  const RowReader peft = row.object("peft");
  const RowFlags flags(row);
  struct Place {
    const RowReader& reader;
    const char* key;
  };
  const Place places[] = {{row, "lora_rank"},
                          {peft, "dim"},
                          {flags.reader(), "lora_rank"},
                          {flags.reader(), "peft.dim"}};
  std::optional<int32_t> rank;
  for (const Place& place : places) {
    const bool is_there = place.reader.has(place.key);
    if (result.run.knobs.task != spec::TrainingTask::lora || !is_there || rank) continue;
    rank = place.reader.size(place.key, 1);
  }
  if (result.run.knobs.task != spec::TrainingTask::lora) return;
  int32_t& taken = result.run.knobs.lora_rank;
  taken = rank.value_or(taken);
  if (!rank) {
    result.assumed.push_back(
        fmt::format("lora_rank {}: the row does not say, Megatron-Bridge's default", taken));
  }
  result.assumed.emplace_back(
      "adapters at linear_qkv, linear_proj, linear_fc1 and linear_fc2, one for all experts of a "
      "rank: Megatron-Bridge's default");
}

void read_precision(const RowReader& row, PlanKnobs& knobs, Assumed& assumed) {
  const std::string precision = row.text("precision", "bf16");
  const auto recipe = precision_word(precision);
  if (!recipe)
    throw base::UsageError(fmt::format("precision {} is not known", row_word_shown(precision)));
  knobs.precision = *recipe;
  if (leaves_scaling_open(precision)) {
    assumed.push_back(fmt::format("precision {}: {} does not say how it is scaled",
                                  spec::name_of(*recipe), row_word_shown(precision)));
  }
}

void read_dispatcher(const RowReader& row, PublishedRow& result) {
  // A dense model sends nothing.
  if (!row.has("dispatcher") || result.model->num_experts == 0) return;
  PlanKnobs& knobs = result.run.knobs;
  const std::string text = row.text("dispatcher");
  const RowFlags flags(row);
  const std::string backend = flags.reader().word("moe_flex_dispatcher_backend");
  const auto known = dispatcher_word(text, backend);
  knobs.dispatcher = meant("dispatcher", text, known, spec::Dispatcher::alltoall, result.assumed);
  if (!known) result.not_understood.insert("dispatcher");
  if (knobs.dispatcher == spec::Dispatcher::hybridep) {
    const std::string refusal = spec::hybridep_refusal(*result.hardware);
    if (!refusal.empty()) throw base::UsageError(refusal);
  }
  if (leaves_backend_open(text) && (backend.empty() || leaves_backend_open(backend))) {
    result.assumed.emplace_back("dispatcher deepep: flex without a backend, Megatron's default");
  }
}

/// What the row states of the run's choices, over the defaults of its release.
void read_knobs(const RowReader& row, PublishedRow& result) {
  PlanKnobs& knobs = result.run.knobs;
  if (!row.has("micro_batch_size")) throw base::UsageError("does not state micro_batch_size");
  if (result.model->num_experts > 0 && !row.has("ep")) throw base::UsageError("does not state ep");
  knobs.vpp = row.size("vpp", 1);
  knobs.ep = row.size("ep", 1);
  knobs.etp = row.size("etp", 1);
  if (result.model->num_experts == 0) {
    if (knobs.ep > 1) {
      throw base::UsageError(fmt::format("ep {}, and the model has no experts", knobs.ep));
    }
    // Megatron's is that of attention unless it is told otherwise, experts or not.
    if (knobs.etp > 1) {
      result.assumed.push_back(fmt::format("etp 1: the row says {}, and the model has no experts",
                                           std::exchange(knobs.etp, 1)));
    }
  }
  knobs.micro_batch_size = row.size("micro_batch_size", 1);
  const int64_t per_stage = knobs.stage_ranks();
  if (per_stage % (int64_t{knobs.ep} * knobs.etp) != 0) {
    throw base::UsageError(fmt::format("ep {} x etp {} do not divide the {} ranks of a stage",
                                       knobs.ep, knobs.etp, per_stage));
  }
  Assumed& assumed = result.assumed;
  read_precision(row, knobs, assumed);
  const std::string sequences = row.word("sequence_parallel");
  knobs.sequence_parallel =
      sequences.empty() || (!is_none_word(sequences) && switch_word(sequences).value_or(true));
  const std::string task = row.text("task");
  knobs.task = meant("task", task, task_word(task), spec::TrainingTask::pretrain, assumed);
  if (const std::string_view what = unpriced_in_task(task); !what.empty()) {
    assumed.push_back(fmt::format("task {} for {}: {} is not priced", spec::name_of(knobs.task),
                                  row_word_shown(task), what));
  }
  read_adapters(row, result);
  // A factor below 0 is how Megatron says that nothing is dropped.
  const bool is_dropless = row.has("capacity_factor") && row.at("capacity_factor").is_number() &&
                           row.at("capacity_factor").get<double>() < 0;
  if (!is_dropless) {
    knobs.capacity_factor = static_cast<float>(row.number("capacity_factor").value_or(0));
  }
  if (!read_offload(row, knobs, assumed)) result.not_understood.insert("activation_offload");
  read_optimizer(row, knobs, assumed);
  read_sharding(row, knobs, assumed);
  apply_release_defaults(row, result);
  if (row.has("recompute")) {
    knobs.recompute = {};
    if (!read_recompute(row, knobs, assumed)) result.not_understood.insert("recompute");
  }
  if (row.has("cuda_graphs")) {
    knobs.cuda_graphs = {};
    if (!read_graphs(row, knobs, assumed)) result.not_understood.insert("cuda_graphs");
  }
  read_dispatcher(row, result);
  read_other_knobs(row, knobs, assumed);
  read_padding(row, knobs, assumed);
  result.num_unknown += static_cast<int>(result.not_understood.size());
}

/// A measured figure, or none where it is no number: the run is priced all the same.
std::optional<double> figure(const RowReader& row, const char* key) {
  try {
    return row.number(key);
  } catch (const base::UsageError&) {
    return std::nullopt;
  }
}

/// What is measured and cannot be read is told, and no reason not to price the run.
void tell_unread_figures(const RowReader& row, Assumed& assumed) {
  const auto tell = [&](const RowReader& reader, const std::string& place, const char* key,
                        const char* expected) {
    assumed.push_back(fmt::format("{}{} not read: {} is no {}", place, key,
                                  row_word_shown(reader.word(key)), expected));
  };
  for (const char* key :
       {"peak_memory_bytes", "peak_memory_bytes_low", "peak_memory_bytes_high",
        "reserved_memory_bytes", "tflops_per_gpu", "tokens_per_s_per_gpu", "step_time_s"}) {
    if (row.has(key) && !figure(row, key)) tell(row, "", key, "number from 0 to 1e18");
  }
  const RowReader derived = row.object("derived");
  for (const char* key : {"tokens_per_s_per_gpu", "step_time_s",
                          "gflop_per_token_published_accounting", "gflop_per_token_published"}) {
    if (derived.has(key) && !figure(derived, key)) {
      tell(derived, "derived.", key, "number from 0 to 1e18");
    }
  }
  for (const char* key : {"memory_kind", "flops_accounting"}) {
    if (row.has(key) && !row.at(key).is_string()) tell(row, "", key, "text");
  }
}

/// A text about what is measured; what is none counts as absent.
std::string text_about_figures(const RowReader& row, const char* key) {
  return row.has(key) && row.at(key).is_string() ? row.text(key) : std::string();
}

void read_figures(const RowReader& row, PublishedRow& result) {
  tell_unread_figures(row, result.assumed);
  const auto bytes = figure(row, "peak_memory_bytes");
  const auto low = figure(row, "peak_memory_bytes_low");
  const auto high = figure(row, "peak_memory_bytes_high");
  const std::string kind = text_about_figures(row, "memory_kind");
  if (kind == "allocated") {
    if (bytes) {
      result.allocated_bytes = Interval{*bytes, *bytes, *bytes};
    } else if (low && high) {
      result.allocated_bytes = Interval{(*low + *high) / 2, *low, *high};
    }
  }
  result.reserved_bytes = figure(row, "reserved_memory_bytes");
  if (!result.reserved_bytes && kind == "reserved") result.reserved_bytes = bytes;
  result.tflops = figure(row, "tflops_per_gpu");
  const RowReader derived = row.object("derived");
  result.tokens_per_s = figure(row, "tokens_per_s_per_gpu");
  if (!result.tokens_per_s) result.tokens_per_s = figure(derived, "tokens_per_s_per_gpu");
  result.step_seconds = figure(row, "step_time_s");
  if (!result.step_seconds) result.step_seconds = figure(derived, "step_time_s");
  result.accounting = text_about_figures(row, "flops_accounting");
  for (const std::string& what : row.texts("priceable")) {
    result.is_for_memory = result.is_for_memory || what == "memory";
    result.is_for_throughput = result.is_for_throughput || what == "throughput";
  }
  result.is_suspect = row.has("suspect") && row.at("suspect") != false;
  result.ran = row.text("status", "ok") == "ok";
}

/// The way to count FLOPs that the row names; where it is not known, by what the row's own figures
/// say of it.
void read_accounting(const RowReader& row, PublishedRow& result) {
  if (result.accounting.empty()) return;
  const CountedFlops counted =
      counted_flops(*result.model, result.run.seq_length, result.accounting);
  result.gflop_per_token = counted.flops_per_token / 1e9;
  if (counted.is_known) return;
  const auto tell = [&](const char* how) {
    result.assumed.push_back(fmt::format("FLOPs are counted {}: how {} does it is not known", how,
                                         row_word_shown(result.accounting)));
  };
  const RowReader derived = row.object("derived");
  for (const char* key : {"gflop_per_token_published_accounting", "gflop_per_token_published"}) {
    const std::optional<double> stated = figure(derived, key);
    if (!stated || *stated <= 0) continue;
    result.gflop_per_token = *stated;
    tell("by the row's own figure");
    return;
  }
  const std::optional<double> tokens = figure(row, "tokens_per_s_per_gpu");
  if (result.tflops && *result.tflops > 0 && tokens && *tokens > 0) {
    result.gflop_per_token = *result.tflops * 1e3 / *tokens;
    tell("as the row's TFLOP/s and tokens/s say");
    return;
  }
  tell("as Megatron counts them");
}

/// Whose engine trained. Others are priced as Megatron-Core, too.
void read_software(const RowReader& row, PublishedRow& result) {
  const std::string name = row.object("software").word("name");
  if (name.empty()) {
    result.assumed.emplace_back("software Megatron-Core: the row does not say");
    ++result.num_unknown;
    return;
  }
  const EngineOfSoftware engine = engine_of_software(name);
  result.is_of_other_engine = engine != EngineOfSoftware::megatron_core;
  if (!result.is_of_other_engine) return;
  result.assumed.push_back(
      fmt::format("priced as Megatron-Core, with a wide interval: {} {}", row_word_shown(name),
                  engine == EngineOfSoftware::other ? "has another engine" : "is not known"));
}

/// Which stage the memory is of.
void read_memory_rank(const RowReader& row, PublishedRow& result) {
  if (!row.has("memory_rank")) return;
  const std::string text = row.word("memory_rank");
  const PlanKnobs& knobs = result.run.knobs;
  const auto stage = stage_word(text, knobs.stage_ranks(), knobs.pp);
  result.memory_stage = stage.value_or(kWorstStage);
  if (stage) return;
  result.assumed.push_back(
      fmt::format("memory of the worst rank: memory_rank {} is not known", row_word_shown(text)));
}

void read_batch(const RowReader& row, PublishedRow& result) {
  const int64_t per_pass = int64_t{result.run.knobs.micro_batch_size} * result.run.knobs.dp;
  result.run.global_batch_size =
      row.integer("global_batch_size", per_pass * row.integer("num_microbatches", 1));
  if (row.has("global_batch_size") || row.has("num_microbatches")) return;
  result.assumed.push_back(fmt::format("one micro-batch, a global batch of {}: neither is stated",
                                       result.run.global_batch_size));
}

void read_load(const RowReader& row, PublishedRow& result) {
  if (result.model->num_experts == 0) return;
  // Few tell how uneven their routing was.
  constexpr double kNaturalLoad = 1.2;
  if (row.has("imbalance")) {
    result.run.load = std::clamp(row.number("imbalance").value_or(1), 1.0, 1e4);
  } else if (result.routing == "natural") {
    result.run.load = kNaturalLoad;
    result.assumed.push_back(fmt::format(
        "natural routing: the busiest rank's experts get {} of their share", kNaturalLoad));
  } else if (result.routing != "forced_balance") {
    const std::string word = row.text("routing");
    result.assumed.push_back(routing_word(word) ? "routing balanced: the row does not say"
                                                : fmt::format("routing balanced: {} is not known",
                                                              row_word_shown(word)));
  }
}

/// The machine and the model of a row, behind its layout, which says how many devices there are.
void read_machine_and_model(const RowReader& row, const std::string& source, PublishedRow& result) {
  if (!row.has("model") || !row.at("model").is_object()) {
    throw base::UsageError(row.text("unpriceable_reason", "states no model"));
  }
  const std::string machine = row.text("hardware");
  const auto file = spec::likely_hardware_file_of(machine);
  if (file && !spec::hardware_file_of(machine)) {
    result.assumed.push_back(fmt::format("hardware {}: {} does not say how much memory it has",
                                         *file, row_word_shown(machine)));
  }
  if (!file) {
    throw base::UsageError(machine.empty()
                               ? "states no hardware"
                               : fmt::format("hardware {} has no file", row_word_shown(machine)));
  }
  const int64_t num_devices = read_layout(row, result);
  result.hardware_name = *file;
  result.hardware = machine_of(*file, num_devices);
  if (std::string text = nodes_text(*file, *result.hardware); !text.empty()) {
    result.assumed.push_back(std::move(text));
  }
  const spec::Source name(source + " " + result.id + " model");
  result.model = std::make_shared<const spec::ModelSpec>(
      spec::model_from_json(model_of_row(row.at("model"), name, result.assumed), name));
  result.run.model = result.model.get();
  const std::string assumption = spec::model_assumption(*result.model);
  if (!assumption.empty()) result.assumed.push_back(assumption);
  result.run.hardware = result.hardware.get();
}

/// The row with objects where a text says what counts most of one: "optimizer": "muon".
json with_objects(json row) {
  constexpr std::pair<const char*, const char*> kParts[] = {{"optimizer", "type"},
                                                            {"software", "name"}};
  for (const auto& [key, part] : kParts) {
    const auto found = row.find(key);
    if (found != row.end() && found->is_string()) *found = json::object({{part, *found}});
  }
  return row;
}

PublishedRow row_of(const json& stated, const std::string& source, size_t number,
                    std::set<std::string>* asked = nullptr) {
  PublishedRow result;
  result.id = fmt::format("row-{}", number);
  try {
    if (!stated.is_object()) throw base::UsageError("is no object");
    const json document = with_objects(stated);
    const RowReader row(document, asked);
    result.id = row.text("id", result.id);
    result.source = row.text("source");
    read_figures(row, result);
    read_machine_and_model(row, source, result);
    result.run.seq_length = row.integer("seq_length", 0, 0);
    if (result.run.seq_length < 1) throw base::UsageError("does not state seq_length");
    result.software = row.object("software").word("name");
    result.date = row.object("software").text("date");
    const StatedDate date = date_of(result.date);
    result.months = date.months;
    result.is_month_stated = date.has_month;
    const std::string routing = row.text("routing");
    result.routing = routing_word(routing).value_or("unknown");
    read_software(row, result);
    read_knobs(row, result);
    read_stages(row, result);
    result.run.ep_chunks = chunks_of_row(row);
    read_batch(row, result);
    check_tokens(result.run);
    read_memory_rank(row, result);
    read_accounting(row, result);
    read_load(row, result);
    check_run_of_row(row, result);
    tell_date(row, date.is_known, result);
    complete_throughput(row, result);
    result.leaner = leaner_runs(row, result, is_assumed(row, "optimizer"));
    result.group = fmt::format("{}|{}|{}|{}|{}", row.at("model").dump(), result.hardware_name,
                               spec::name_of(result.run.knobs.precision),
                               row.object("software").document().dump(),
                               routing_word(routing).value_or(routing));
  } catch (const std::exception& error) {  // no row takes the others along
    result.reason = error.what();
  }
  return result;
}

}  // namespace

std::vector<PublishedRow> published_rows_of(const json& document, const std::string& source) {
  if (!document.is_array()) {
    throw base::UsageError(fmt::format("{}: expected an array of rows", source));
  }
  std::vector<PublishedRow> rows;
  for (size_t i = 0; i < document.size(); ++i) rows.push_back(row_of(document[i], source, i));
  return rows;
}

std::set<std::string> keys_asked_of_rows(const json& document) {
  std::set<std::string> asked;
  for (const json& row : document) row_of(row, "rows", 0, &asked);
  return asked;
}

}  // namespace moetune::sweeps
