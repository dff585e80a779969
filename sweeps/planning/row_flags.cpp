// Flags by name, in either spelling.
#include "sweeps/planning/row_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "engine/spec/dialects/concepts.h"
#include "sweeps/planning/row_words.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;
using spec::PlanKnobs;

/// Flags of Megatron-LM that published commands have and the table of dialects has not.
constexpr std::array<std::string_view, 7> kOtherFlags = {"--attention-softmax-in-fp32",
                                                         "--deterministic-mode",
                                                         "--no-rope-fusion",
                                                         "--use-flash-attn",
                                                         "--mtp-loss-scaling-factor",
                                                         "--first-last-layers-bf16",
                                                         "--num-layers-at-end-in-bf16"};

/// "--moe-grouped-gemm" as "moe_grouped_gemm".
std::string key_with_underscores(std::string_view key) {
  const size_t first = key.find_first_not_of('-');
  std::string plain(first == std::string_view::npos ? "" : key.substr(first));
  std::ranges::replace(plain, '-', '_');
  return plain;
}

/// Whether the key is a flag of Megatron-LM as a command has it, with or without the two dashes at
/// its start.
bool is_flag_of_megatron(std::string_view key) {
  using spec::dialects::Dialect;
  const size_t first = key.find_first_not_of('-');
  if (first == std::string_view::npos) return false;
  if (first == 0 && key.find('-') == std::string_view::npos) return false;
  const std::string flag = fmt::format("--{}", key.substr(first));
  return spec::dialects::is_known(flag, Dialect::megatron_lm) ||
         spec::dialects::find_carried(flag, Dialect::megatron_lm) != nullptr ||
         std::ranges::find(kOtherFlags, flag) != kOtherFlags.end();
}

/// A text that is a whole number as that number, as environments and command lines have them.
json number_if_whole(const json& value) {
  if (!value.is_string()) return value;
  const auto& text = value.get_ref<const std::string&>();
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? json(number) : value;
}

/// A switch that counts only where the row sets it.
struct PlainSwitch {
  const char* name;
  bool PlanKnobs::*member;
  bool is_contrary = false;  ///< on switches the member off
};
constexpr PlainSwitch kPlainSwitches[] = {
    {"overlap_moe_expert_parallel_comm", &PlanKnobs::overlap_moe_expert_parallel_comm},
    {"delay_wgrad_compute", &PlanKnobs::delay_wgrad_compute},
    {"tp_comm_overlap", &PlanKnobs::tp_comm_overlap},
    {"fp8_param_gather", &PlanKnobs::fp8_param_gather},
    {"moe_pad_expert_input_to_capacity", &PlanKnobs::pad_to_capacity},
    {"no_gradient_accumulation_fusion", &PlanKnobs::gradient_accumulation_fusion, true},
};
/// Switches that a command of Megatron-LM has to set, and that recipes have on.
constexpr PlainSwitch kCommandSwitches[] = {
    {"moe_grouped_gemm", &PlanKnobs::moe_grouped_gemm},
    {"moe_permute_fusion", &PlanKnobs::moe_permute_fusion},
    {"overlap_grad_reduce", &PlanKnobs::overlap_grad_reduce},
    {"overlap_param_gather", &PlanKnobs::overlap_param_gather},
};

/// Reads the flags of one row into its knobs.
class FlagReading {
 public:
  FlagReading(const RowReader& row, PlanKnobs& knobs, std::vector<std::string>& assumed)
      : row_(row), flags_(row), knobs_(knobs), assumed_(assumed) {}

  void read() {
    for (const std::string& name : flags_.set_twice()) {
      tell(fmt::format("{} as the first of two that differ", name));
    }
    if (is_off("comm_overlap")) knobs_.overlap_grad_reduce = knobs_.overlap_param_gather = false;
    for (const PlainSwitch& row : kCommandSwitches) {
      if (flags_.is_command()) knobs_.*row.member = false;
      take(row);
    }
    if (flags_.is_command()) {
      knobs_.fused_activation = row_.object("model").text("hidden_act") != "gelu";
      tell("flags that other_knobs leaves out are off, as in a command of Megatron-LM");
    }
    for (const PlainSwitch& row : kPlainSwitches) take(row);
    if (state("moe_paged_stash").value_or(false)) knobs_.fused_grouped_mlp = true;
    read_attention();
    read_loss();
    const std::string cp_type = other().word("cp_comm_type");
    const auto known = spec::find_by_name<spec::PlanCp>(plain_word(cp_type));
    if (known) knobs_.cp_comm_type = *known;
    if (!known && !cp_type.empty()) tell_unknown("cp_comm_type p2p", cp_type);
    // One chunk has nothing to run beside.
    if (other().has("ep_chunk") && other().at("ep_chunk") != 1) {
      knobs_.overlap_moe_expert_parallel_comm = true;
    }
    read_numbers();
  }

 private:
  [[nodiscard]] const RowReader& other() const { return flags_.reader(); }

  void tell(std::string line) { assumed_.push_back(std::move(line)); }
  void tell_unknown(std::string_view taken, std::string_view text) {
    tell(fmt::format("{}: {} is not known", taken, row_word_shown(text)));
  }

  std::optional<bool> state(const char* name) { return state_or_told(flags_, name, assumed_); }
  bool is_off(const char* name) { return !state(name).value_or(true); }

  void take(const PlainSwitch& row) {
    if (const auto is_on = state(row.name)) knobs_.*row.member = *is_on != row.is_contrary;
  }

  void read_attention() {
    const std::string text = other().word("attention_backend");
    std::string word = plain_word(text);
    word.erase(0, word.rfind('.') + 1);  // of AttnBackend.unfused, as Megatron-Bridge has it
    if (word == "unfused" || word == "local") {
      knobs_.fused_attention = false;
    } else if (word == "fused" || word == "flash" || word == "auto") {
      knobs_.fused_attention = true;
    } else if (!word.empty()) {
      tell_unknown("attention_backend fused", text);
    }
  }

  void read_loss() {
    const std::optional<bool> is_chunked = state("chunked_linear_cross_entropy");
    const std::optional<bool> is_fused = state("cross_entropy_fusion");
    const std::string kind = plain_word(other().word("cross_entropy_fusion_impl"));
    if (is_chunked.value_or(false)) {
      knobs_.cross_entropy = spec::CrossEntropy::chunked;
    } else if (is_fused.value_or(true) && (kind == "te" || (is_fused && kind.empty()))) {
      knobs_.cross_entropy = spec::CrossEntropy::te;
    } else if (state("cross_entropy_loss_fusion").value_or(false)) {
      knobs_.cross_entropy = spec::CrossEntropy::native;
    }
  }

  void read_numbers() {
    for (const char* name :
         {"moe_deepep_num_sms", "moe_hybridep_num_sms", "moe_flex_dispatcher_num_sms"}) {
      if (other().has(name)) knobs_.moe_flex_dispatcher_num_sms = other().size(name, 0);
    }
    knobs_.cuda_graph_warmup_steps = static_cast<int32_t>(
        other().integer("cuda_graph_warmup_steps", knobs_.cuda_graph_warmup_steps, 0));
    knobs_.cuda_device_max_connections =
        other().size("CUDA_DEVICE_MAX_CONNECTIONS", knobs_.cuda_device_max_connections);
  }

  const RowReader& row_;
  RowFlags flags_;
  PlanKnobs& knobs_;
  std::vector<std::string>& assumed_;
};

}  // namespace

RowFlags::RowFlags(const RowReader& row)
    : contents_(json::object()), reader_(row.object("other_knobs").with(contents_)) {
  int num_flags = 0;
  for (const auto& [key, value] : row.object("other_knobs").document().items()) {
    if (is_flag_of_megatron(key)) ++num_flags;
    const std::string plain_key = key_with_underscores(key);
    if (value.is_null() || plain_key.empty()) continue;
    const json number_or_other = number_if_whole(value);
    const auto [set, is_new] = contents_.emplace(plain_key, number_or_other);
    if (!is_new && *set != number_or_other) set_twice_.push_back(set.key());
  }
  const std::string software = plain_word(row.object("software").word("name"));
  constexpr int kSeveral = 2;
  is_command_ = software.starts_with("megatron_lm") && num_flags >= kSeveral;
}

std::optional<bool> RowFlags::state(const char* name) const {
  return switch_word(reader_.word(name));
}

std::optional<bool> state_or_told(const RowFlags& flags, const char* name,
                                  std::vector<std::string>& assumed) {
  const std::optional<bool> state = flags.state(name);
  if (!state && flags.reader().has(name)) {
    assumed.push_back(fmt::format("{} not read: {} is neither true nor false", name,
                                  row_word_shown(flags.reader().word(name))));
  }
  return state;
}

void read_other_knobs(const RowReader& row, PlanKnobs& knobs, std::vector<std::string>& assumed) {
  FlagReading(row, knobs, assumed).read();
}

int64_t chunks_of_row(const RowReader& row) {
  const RowFlags flags(row);
  const RowReader& other = flags.reader();
  if (!other.has("ep_chunk")) return 1;
  constexpr int64_t kMost = 64;
  if (other.at("ep_chunk").is_number()) return other.integer("ep_chunk", 1);
  const std::string text = other.word("ep_chunk");
  int64_t chunks = 1;
  std::from_chars(text.data(), text.data() + text.size(), chunks);
  return std::clamp<int64_t>(chunks, 1, kMost);
}

}  // namespace moetune::sweeps
