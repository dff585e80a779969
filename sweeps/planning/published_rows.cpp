// Rows to runs: what a row states, and what its release does where it states nothing.
#include "sweeps/planning/published_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/spec/hardware_names.h"
#include "engine/spec/pipeline_layout.h"
#include "kernels/base/error.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/release_defaults.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;
using spec::PlanKnobs;
using spec::StateType;

/// Reading of a row that anybody may have written: what has the wrong type is refused by name.
class RowReader {
 public:
  explicit RowReader(const json& row) : row_(row) {}

  [[nodiscard]] bool has(const char* key) const {
    const auto found = row_.find(key);
    return found != row_.end() && !found->is_null();
  }
  [[nodiscard]] const json& at(const char* key) const { return row_.at(key); }

  [[nodiscard]] std::string text(const char* key, std::string otherwise = {}) const {
    if (!has(key)) return otherwise;
    if (!at(key).is_string()) fail(key, "a text");
    return at(key).get<std::string>();
  }
  [[nodiscard]] int64_t integer(const char* key, int64_t otherwise, int64_t min = 1) const {
    if (!has(key)) return otherwise;
    constexpr int64_t kMost = int64_t{1} << 28;
    const json& value = at(key);
    const double number = value.is_number() ? value.get<double>() : -1;
    if (number < static_cast<double>(min) || number > static_cast<double>(kMost) ||
        number != static_cast<double>(static_cast<int64_t>(number))) {
      fail(key, fmt::format("a whole number from {} to {}", min, kMost));
    }
    return static_cast<int64_t>(number);
  }
  [[nodiscard]] int32_t size(const char* key, int32_t otherwise) const {
    const int64_t value = integer(key, otherwise);
    constexpr int64_t kMost = 1 << 20;
    if (value > kMost) fail(key, fmt::format("at most {}", kMost));
    return static_cast<int32_t>(value);
  }
  [[nodiscard]] std::optional<double> number(const char* key) const {
    if (!has(key)) return std::nullopt;
    const json& value = at(key);
    if (!value.is_number() || !(value.get<double>() >= 0) || value.get<double>() > 1e18) {
      fail(key, "a number from 0 to 1e18");
    }
    return value.get<double>();
  }
  [[nodiscard]] bool is_true(const char* key) const {
    return has(key) && at(key).is_boolean() && at(key).get<bool>();
  }
  [[nodiscard]] RowReader object(const char* key) const {
    static const json kNothing = json::object();
    if (!has(key) || !at(key).is_object()) return RowReader(kNothing);
    return RowReader(at(key));
  }
  [[nodiscard]] std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> result;
    if (!has(key) || !at(key).is_array()) return result;
    for (const json& value : at(key)) {
      if (value.is_string()) result.push_back(value.get<std::string>());
    }
    return result;
  }
  [[nodiscard]] const json& document() const { return row_; }

 private:
  [[noreturn]] static void fail(const char* key, const std::string& expected) {
    throw base::UsageError(fmt::format("'{}' is not {}", key, expected));
  }

  const json& row_;
};

/// Of a date such as "2026-08-22" or "2026-08": months after 2026-06. A year alone is its middle.
double months_of(const std::string& date) {
  int year = 0;
  int month = 0;
  const auto number = [&](size_t from, size_t count, int& value) {
    if (date.size() < from + count) return false;
    return std::from_chars(date.data() + from, date.data() + from + count, value).ec == std::errc();
  };
  if (!number(0, 4, year) || year < 2015 || year > 2100) return 0;
  if (!number(5, 2, month) || month < 1 || month > 12) month = 6;
  return 12.0 * (year - 2026) + month - 6;
}

StateType state_of(const std::string& name, StateType otherwise) {
  return spec::find_by_name<StateType>(name).value_or(otherwise);
}

void read_recompute(const RowReader& row, PlanKnobs& knobs) {
  const RowReader recompute = row.object("recompute");
  const std::string granularity = recompute.text("granularity", "none");
  if (granularity == "full") {
    knobs.recompute.add(spec::PlanRecompute::full);
    return;
  }
  if (granularity != "selective") return;
  for (const std::string& name : recompute.texts("modules")) {
    const auto module = spec::find_by_name<spec::PlanRecompute>(name);
    if (module) knobs.recompute.add(*module);
  }
}

/// Whether the row's makers have filled the field in.
bool is_assumed(const RowReader& row, std::string_view field) {
  if (!row.has("assumed") || !row.at("assumed").is_array()) return false;
  return std::any_of(row.at("assumed").begin(), row.at("assumed").end(), [&](const json& entry) {
    return entry.is_object() && entry.value("field", json()) == field;
  });
}

void read_optimizer(const RowReader& row, PlanKnobs& knobs) {
  const RowReader optimizer = row.object("optimizer");
  const std::string type = optimizer.text("type", "adam");
  knobs.optimizer =
      spec::find_by_name<spec::OptimizerKind>(type).value_or(spec::OptimizerKind::adam);
  if (optimizer.has("distributed") && optimizer.at("distributed").is_boolean()) {
    knobs.distributed_optimizer = optimizer.is_true("distributed");
  }
  knobs.precision_aware_optimizer = optimizer.is_true("precision_aware");
  knobs.exp_avg = state_of(optimizer.text("exp_avg_dtype"), StateType::fp32);
  knobs.exp_avg_sq = state_of(optimizer.text("exp_avg_sq_dtype"), StateType::fp32);
  knobs.main_params = state_of(optimizer.text("main_params_dtype"), StateType::fp32);
  // A type that was read off some recipe is no statement: then it is the engine's default.
  if (!is_assumed(row, "optimizer")) {
    knobs.main_grads = state_of(optimizer.text("main_grads_dtype"), StateType::fp32);
  }
  knobs.params_dtype = state_of(optimizer.text("params_dtype"), StateType::bf16);
  knobs.optimizer_offload_ratio =
      static_cast<float>(std::min(1.0, optimizer.number("offload_fraction").value_or(0)));
  knobs.optimizer_instances = optimizer.size("instances", 1);
}

void read_graphs(const RowReader& row, PlanKnobs& knobs) {
  const auto add = [&](const std::string& name) {
    const auto scope = spec::find_by_name<spec::PlanGraph>(name);
    if (scope) knobs.cuda_graphs.add(*scope);
  };
  if (!row.has("cuda_graphs")) return;
  if (row.at("cuda_graphs").is_array()) {
    for (const std::string& name : row.texts("cuda_graphs")) add(name);
  } else if (row.text("cuda_graphs").starts_with("partial")) {
    for (const char* name : {"attn", "moe_router", "moe_preprocess"}) add(name);
  } else {
    add(row.text("cuda_graphs"));
  }
}

/// What is set beside the columns, as the source spells it: with dashes flags of a command line, of
/// which the absent ones are off.
void read_other_knobs(const RowReader& row, PlanKnobs& knobs) {
  const RowReader other = row.object("other_knobs");
  bool is_command_line = false;
  for (const auto& [key, value] : other.document().items()) {
    is_command_line = is_command_line || key.find('-') != std::string::npos;
  }
  const auto is_on = [&](const std::string& name) {
    std::string dashed = name;
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    return other.is_true(name.c_str()) || other.is_true(dashed.c_str());
  };
  const auto is_off = [&](const char* name) {
    return other.has(name) && other.at(name).is_boolean() && !other.is_true(name);
  };
  if (is_command_line) {
    knobs.moe_grouped_gemm = is_on("moe_grouped_gemm");
    knobs.moe_permute_fusion = is_on("moe_permute_fusion");
    knobs.overlap_grad_reduce = is_on("overlap_grad_reduce");
    knobs.overlap_param_gather = is_on("overlap_param_gather");
    knobs.fused_activation = row.object("model").text("hidden_act") != "gelu";
  }
  if (is_on("overlap_moe_expert_parallel_comm")) knobs.overlap_moe_expert_parallel_comm = true;
  if (is_off("overlap_moe_expert_parallel_comm")) knobs.overlap_moe_expert_parallel_comm = false;
  if (is_on("delay_wgrad_compute")) knobs.delay_wgrad_compute = true;
  if (is_on("tp_comm_overlap")) knobs.tp_comm_overlap = true;
  if (is_off("comm_overlap")) knobs.overlap_grad_reduce = knobs.overlap_param_gather = false;
  if (is_on("no_gradient_accumulation_fusion")) knobs.gradient_accumulation_fusion = false;
  if (other.text("attention-backend") == "unfused") knobs.fused_attention = false;
  if (is_on("chunked_linear_cross_entropy")) {
    knobs.cross_entropy = spec::CrossEntropy::chunked;
  } else if (other.text("cross_entropy_fusion_impl") == "te" ||
             (is_on("cross_entropy_fusion") && !other.has("cross_entropy_fusion_impl"))) {
    knobs.cross_entropy = spec::CrossEntropy::te;
  }
  const std::string cp_type = other.text("cp_comm_type");
  knobs.cp_comm_type = spec::find_by_name<spec::PlanCp>(cp_type).value_or(spec::PlanCp::p2p);
  // One chunk has nothing to run beside.
  if (other.has("ep_chunk") && other.at("ep_chunk") != 1 && other.at("ep_chunk") != "1") {
    knobs.overlap_moe_expert_parallel_comm = true;
  }
  for (const char* name :
       {"moe_deepep_num_sms", "moe_hybridep_num_sms", "moe_flex_dispatcher_num_sms"}) {
    if (other.has(name)) knobs.moe_flex_dispatcher_num_sms = other.size(name, 0);
  }
  for (const char* name : {"cuda-graph-warmup-steps", "cuda_graph_warmup_steps"}) {
    if (!other.has(name)) continue;
    knobs.cuda_graph_warmup_steps =
        static_cast<int32_t>(other.integer(name, knobs.cuda_graph_warmup_steps, 0));
  }
  knobs.cuda_device_max_connections =
      other.size("CUDA_DEVICE_MAX_CONNECTIONS", knobs.cuda_device_max_connections);
  if (is_on("moe_paged_stash")) knobs.fused_grouped_mlp = true;
}

void read_knobs(const RowReader& row, PublishedRow& result) {
  PlanKnobs& knobs = result.run.knobs;
  for (const char* size : {"tp", "cp", "pp", "micro_batch_size"}) {
    if (!row.has(size)) throw base::UsageError(fmt::format("does not state {}", size));
  }
  if (result.model->num_experts > 0 && !row.has("ep")) throw base::UsageError("does not state ep");
  knobs.tp = row.size("tp", 1);
  knobs.cp = row.size("cp", 1);
  knobs.pp = row.size("pp", 1);
  knobs.vpp = row.size("vpp", 1);
  knobs.ep = row.size("ep", 1);
  knobs.etp = row.size("etp", 1);
  knobs.micro_batch_size = row.size("micro_batch_size", 1);
  const int64_t devices = row.integer("world_size", 0, 0);
  const int64_t replica = knobs.replica_ranks();
  knobs.dp = row.size("dp", static_cast<int32_t>(std::max<int64_t>(1, devices / replica)));
  if (replica * knobs.dp != devices) {
    throw base::UsageError(fmt::format("tp {} x cp {} x pp {} x dp {} are not world_size {}",
                                       knobs.tp, knobs.cp, knobs.pp, knobs.dp, devices));
  }
  const int64_t per_stage = devices / knobs.pp;
  if (per_stage % (int64_t{knobs.ep} * knobs.etp) != 0) {
    throw base::UsageError(fmt::format("ep {} x etp {} do not divide the {} ranks of a stage",
                                       knobs.ep, knobs.etp, per_stage));
  }
  const std::string precision = row.text("precision", "bf16");
  const auto recipe = spec::find_by_name<spec::PrecisionRecipe>(
      precision == "fp8" ? "fp8-current-scaling" : precision);
  if (!recipe)
    throw base::UsageError(fmt::format("precision '{}' is not known", precision.substr(0, 40)));
  knobs.precision = *recipe;
  knobs.sequence_parallel = row.has("sequence_parallel") ? row.is_true("sequence_parallel") : true;
  if (row.has("fsdp") && !(row.at("fsdp").is_boolean() && !row.is_true("fsdp"))) {
    const std::string kind = row.at("fsdp").is_string() ? row.text("fsdp") : "megatron-fsdp";
    knobs.fsdp = kind.find("fsdp2") != std::string::npos ? spec::Fsdp::torch : spec::Fsdp::megatron;
  }
  const std::string task = row.text("task", "pretrain");
  knobs.task = spec::find_by_name<spec::TrainingTask>(task).value_or(spec::TrainingTask::pretrain);
  knobs.capacity_factor = static_cast<float>(row.number("capacity_factor").value_or(0));
  for (const std::string& name : row.texts("activation_offload")) {
    const auto tensor = spec::find_by_name<spec::Offload>(name);
    if (tensor) knobs.offload.add(*tensor);
  }
  read_optimizer(row, knobs);
  apply_release_defaults(row.document(), result);
  result.is_memory_open = !row.has("recompute") || !row.has("fsdp") ||
                          is_assumed(row, "optimizer") || !row.has("activation_offload");
  if (row.has("recompute")) {
    knobs.recompute = {};
    read_recompute(row, knobs);
  }
  if (row.has("cuda_graphs")) {
    knobs.cuda_graphs = {};
    read_graphs(row, knobs);
  }
  if (row.has("dispatcher")) {
    knobs.dispatcher = spec::find_by_name<spec::Dispatcher>(row.text("dispatcher"))
                           .value_or(spec::Dispatcher::alltoall);
  }
  read_other_knobs(row, knobs);
}

/// Chunks of an MoE layer, where they are stated; "2+" is two.
int64_t chunks_of_row(const RowReader& row) {
  const RowReader other = row.object("other_knobs");
  if (!other.has("ep_chunk")) return 1;
  if (other.at("ep_chunk").is_number()) return other.integer("ep_chunk", 1);
  const std::string text = other.text("ep_chunk");
  int chunks = 1;
  std::from_chars(text.data(), text.data() + text.size(), chunks);
  constexpr int kMost = 64;
  return std::clamp(chunks, 1, kMost);
}

void read_stages(const RowReader& row, tuner::planner::PlanRun& run) {
  if (row.has("pipeline_layout")) {
    run.stages = spec::pipeline_stages_of(row.text("pipeline_layout"));
    if (static_cast<int64_t>(run.stages.size()) % run.knobs.pp != 0) {
      throw base::UsageError(fmt::format("pipeline_layout has {} stages, no multiple of pp {}",
                                         run.stages.size(), run.knobs.pp));
    }
    int64_t layers = 0;
    for (const std::string& stage : run.stages) {
      layers += std::count(stage.begin(), stage.end(), 't');
    }
    if (layers != run.model->num_layers) {
      throw base::UsageError(fmt::format("pipeline_layout has {} layers, the model {}", layers,
                                         run.model->num_layers));
    }
    return;
  }
  if (!row.has("pipeline_split") || !row.at("pipeline_split").is_array()) return;
  int64_t layers = 0;
  for (const json& count : row.at("pipeline_split")) {
    if (!count.is_number_integer() || count.get<int64_t>() < 0) {
      throw base::UsageError("pipeline_split is no list of layers");
    }
    run.stage_layers.push_back(count.get<int64_t>());
    layers += run.stage_layers.back();
  }
  if (static_cast<int64_t>(run.stage_layers.size()) != run.knobs.pp ||
      layers != run.model->num_layers) {
    throw base::UsageError("pipeline_split does not add up to pp stages of the model's layers");
  }
}

void read_figures(const RowReader& row, PublishedRow& result) {
  const auto bytes = row.number("peak_memory_bytes");
  const auto low = row.number("peak_memory_bytes_low");
  const auto high = row.number("peak_memory_bytes_high");
  if (row.text("memory_kind") == "allocated") {
    if (bytes) {
      result.allocated_bytes = StatedFigure{*bytes, *bytes, *bytes};
    } else if (low && high) {
      result.allocated_bytes = StatedFigure{(*low + *high) / 2, *low, *high};
    }
  }
  const std::string rank = row.text("memory_rank");
  result.is_last_rank = rank.starts_with("last");
  result.is_first_rank = rank.starts_with("rank 0");
  result.tflops = row.number("tflops_per_gpu");
  const RowReader derived = row.object("derived");
  result.tokens_per_s = row.number("tokens_per_s_per_gpu");
  if (!result.tokens_per_s) result.tokens_per_s = derived.number("tokens_per_s_per_gpu");
  result.step_seconds = row.number("step_time_s");
  if (!result.step_seconds) result.step_seconds = derived.number("step_time_s");
  result.accounting = row.text("flops_accounting");
  if (!result.accounting.empty()) {
    result.gflop_per_token = derived.number("gflop_per_token_published_accounting")
                                 .value_or(derived.number("gflop_per_token_published").value_or(0));
  }
  for (const std::string& what : row.texts("priceable")) {
    result.is_for_memory = result.is_for_memory || what == "memory";
    result.is_for_throughput = result.is_for_throughput || what == "throughput";
  }
  result.is_suspect = row.has("suspect");
  result.ran = row.text("status", "ok") == "ok";
}

PublishedRow row_of(const json& document, const std::string& source, size_t number) {
  PublishedRow result;
  result.id = fmt::format("row-{}", number);
  try {
    if (!document.is_object()) throw base::UsageError("is no object");
    const RowReader row(document);
    result.id = row.text("id", result.id);
    result.source = row.text("source");
    read_figures(row, result);
    if (!row.has("model") || !row.at("model").is_object()) {
      throw base::UsageError(row.text("unpriceable_reason", "states no model"));
    }
    const std::string machine = row.text("hardware");
    const auto file = spec::hardware_file_of(machine);
    if (!file) {
      throw base::UsageError(machine.empty()
                                 ? "states no hardware"
                                 : fmt::format("hardware '{}' has no file", machine.substr(0, 40)));
    }
    if (!row.has("world_size")) throw base::UsageError("does not state world_size");
    result.hardware_name = *file;
    result.hardware = machine_of(*file, row.integer("world_size", 0, 0));
    const json& model = row.at("model");
    result.model = std::make_shared<const spec::ModelSpec>(
        spec::model_from_json(model, spec::Source(source + " " + result.id + " model")));
    result.run.model = result.model.get();
    result.run.hardware = result.hardware.get();
    result.run.seq_length = row.integer("seq_length", 0, 0);
    if (result.run.seq_length < 1) throw base::UsageError("does not state seq_length");
    result.months = months_of(row.object("software").text("date"));
    result.routing = row.text("routing", "unknown");
    read_knobs(row, result);
    read_stages(row, result.run);
    result.run.ep_chunks = chunks_of_row(row);
    const int64_t per_pass = int64_t{result.run.knobs.micro_batch_size} * result.run.knobs.dp;
    result.run.global_batch_size =
        row.integer("global_batch_size", per_pass * row.integer("num_microbatches", 1));
    // Few tell how uneven their routing was.
    constexpr double kNatural = 1.2;
    if (result.routing == "natural" && result.model->num_experts > 0) {
      result.run.load = kNatural;
      result.assumed.push_back(fmt::format(
          "natural routing: the busiest rank's experts get {} of their share", kNatural));
    }
    if (row.has("imbalance") && result.model->num_experts > 0) {
      result.run.load = std::clamp(*row.number("imbalance"), 1.0, 1e4);
    }
    result.group = fmt::format("{}|{}|{}|{}|{}|{}", model.dump(), result.hardware_name,
                               spec::name_of(result.run.knobs.precision),
                               row.object("software").document().dump(), result.routing,
                               result.run.seq_length);
  } catch (const base::UsageError& error) {
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

}  // namespace moetune::sweeps
