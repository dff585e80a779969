// Precision in Megatron's terms: a base type, a narrow format with its recipe, and the presets of
// Megatron-Bridge that stand for all of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/spec/dialects/parts.h"
#include "engine/spec/dialects/text_cursor.h"

namespace moetune::spec::dialects {
namespace {

struct Format {
  PrecisionRecipe precision;
  std::string_view fp8;     ///< as --fp8-format
  std::string_view recipe;  ///< as --fp8-recipe, or --fp4-recipe
  std::string_view fp4;
  std::string_view preset;  ///< Megatron-Bridge's; a part of it is enough when it is read
  std::string_view mark;
};
constexpr std::array kFormats = {
    Format{PrecisionRecipe::fp8_current, "hybrid", "tensorwise", "",
           "bf16_with_fp8_current_scaling_mixed", "current_scaling"},
    Format{PrecisionRecipe::fp8_delayed, "hybrid", "delayed", "",
           "bf16_with_fp8_delayed_scaling_mixed", "delayed_scaling"},
    Format{PrecisionRecipe::fp8_blockwise, "e4m3", "blockwise", "",
           "bf16_with_fp8_subchannel_scaling_mixed", "subchannel_scaling"},
    Format{PrecisionRecipe::mxfp8, "e4m3", "mxfp8", "", "bf16_with_mxfp8_mixed", "mxfp8"},
    Format{PrecisionRecipe::nvfp4, "", "nvfp4", "e2m1", "bf16_with_nvfp4_mixed", "nvfp4"},
};
/// The one preset whose name says another recipe than it has.
constexpr std::string_view kMisnamed = "nanov2_bf16_with_fp8_current_scaling_mixed";

void read_preset(Reading& in, std::string preset) {
  PrecisionRecipe& precision = in.run.knobs.precision;
  if (preset.empty()) {
    precision = PrecisionRecipe::fp32;
    return;
  }
  std::ranges::replace(preset, '-', '_');
  precision =
      preset.find("fp16") == std::string::npos ? PrecisionRecipe::bf16 : PrecisionRecipe::fp16;
  if (preset == kMisnamed) {
    precision = PrecisionRecipe::fp8_blockwise;
    return;
  }
  for (const Format& format : kFormats) {
    if (preset.find(format.mark) != std::string::npos) precision = format.precision;
  }
  const bool is_plain = preset == "bf16_mixed" || preset == "fp16_mixed";
  const bool is_narrow = preset.find("_with_") != std::string::npos;
  if (is_plain || (is_narrow && precision != PrecisionRecipe::bf16)) return;
  in.note(fmt::format("'{}' is '{}', which moetune does not know: taken as {}",
                      in.key("mixed_precision"), shown(preset), name_of(precision)));
}

void read_fp8(Reading& in, const std::string& recipe) {
  for (const Format& format : kFormats) {
    if (!format.fp8.empty() && format.recipe == recipe) {
      in.run.knobs.precision = format.precision;
      return;
    }
  }
  in.note(fmt::format("'{}' is '{}': taken as tensorwise", in.key("fp8_recipe"), shown(recipe)));
  in.run.knobs.precision = PrecisionRecipe::fp8_current;
}

void read_fp4(Reading& in, const std::string& recipe) {
  in.run.knobs.precision = PrecisionRecipe::nvfp4;
  const std::string_view known = name_of(PrecisionRecipe::nvfp4);
  if (recipe.empty() || recipe == known) return;
  const std::string text =
      fmt::format("'{}' is '{}', which is not planned", in.key("fp4_recipe"), shown(recipe));
  if (in.options.is_echo) {
    in.note(fmt::format("{}: taken as {}", text, known));
  } else {
    in.problem(fmt::format("{}: of 4 bits only {} is", text, known));
  }
}

void read_gradients(Reading& in) {
  const bool is_narrow = in.parts.flag("grad_reduce_in_bf16");
  std::string type = in.parts.word("main_grads_dtype");
  if (type == "torch.float32") type = "fp32";
  if (type == "torch.bfloat16") type = "bf16";
  if (type != "fp32" && type != "bf16") {
    in.problem(fmt::format("'{}' is '{}', expected fp32 or bf16", in.key("main_grads_dtype"),
                           shown(type)));
  }
  if (is_narrow || type == "bf16") in.run.knobs.main_grads = StateType::bf16;
}

}  // namespace

bool preset_gathers_fp8(const PlanKnobs& k) {
  const bool is_delayed = k.precision == PrecisionRecipe::fp8_delayed;
  const bool has_it = is_delayed || k.precision == PrecisionRecipe::fp8_current ||
                      k.precision == PrecisionRecipe::mxfp8;
  // Recipes with Muon turn it off: its optimizer does not take such weights.
  return has_it && (k.distributed_optimizer || k.fsdp != Fsdp::none) &&
         (is_delayed || k.optimizer_offload_ratio <= 0) && k.optimizer != OptimizerKind::muon;
}

void read_weights_of_preset(Reading& in) {
  if (in.dialect != Dialect::megatron_bridge) return;
  bool& is_on = in.run.knobs.fp8_param_gather;
  if (in.parts.has("fp8_param")) {
    is_on = in.parts.flag("fp8_param");
    return;
  }
  const auto has_any = [&](auto... names) { return (in.parts.has(names) || ...); };
  const bool has_preset = in.parts.has("mixed_precision") || !has_any("bf16", "fp16");
  is_on = has_preset && !has_any("fp8", "fp4") && preset_gathers_fp8(in.run.knobs);
}

void write_weights_of_preset(Writing& out) {
  if (out.dialect != Dialect::megatron_bridge) return;
  const bool is_on = out.knobs().fp8_param_gather;
  if (is_on == preset_gathers_fp8(out.knobs())) return;
  // A preset's name and a field beside it do not go together.
  if (is_on) {
    out.cannot_say("fp8_param_gather=true", "its preset has it off");
  } else {
    out.cannot_say("fp8_param_gather=false", "its preset has it on");
  }
}

void read_precision(Reading& in) {
  const bool has_parts = in.parts.has("bf16") || in.parts.has("fp16");
  const bool is_bf16 = in.parts.flag("bf16");
  const bool is_fp16 = in.parts.flag("fp16");
  const std::string fp8 = in.parts.word("fp8");
  const std::string recipe = in.parts.word("fp8_recipe");
  const std::string fp4 = in.parts.word("fp4");
  const std::string fp4_recipe = in.parts.word("fp4_recipe");
  if (in.dialect == Dialect::megatron_bridge && (!has_parts || in.parts.has("mixed_precision"))) {
    read_preset(in, in.parts.word("mixed_precision"));
  } else {
    in.run.knobs.precision = PrecisionRecipe::fp32;
  }
  PrecisionRecipe& precision = in.run.knobs.precision;
  if (is_bf16 && is_fp16) {
    // Primus' own default is bf16, and who wants fp16 has to turn it off.
    in.problem(fmt::format("'{}' and '{}' contradict each other: leave one", in.key("bf16"),
                           in.key("fp16")));
  }
  if (is_bf16) precision = PrecisionRecipe::bf16;
  if (is_fp16) precision = PrecisionRecipe::fp16;
  if (!fp8.empty() && !fp4.empty()) {
    in.problem(fmt::format("'{}' and '{}' contradict each other: leave one", in.key("fp8"),
                           in.key("fp4")));
  }
  if ((!fp8.empty() || !fp4.empty()) && !is_bf16 && in.dialect != Dialect::megatron_bridge) {
    if (in.dialect == Dialect::megatron_lm && !is_fp16) {
      // Narrow products of wide tensors: what the flag leaves is Megatron's default.
      in.run.knobs.params_dtype = StateType::fp32;
      in.note("without --bf16 Megatron-LM keeps in fp32 what is not in 8 or 4 bits");
    } else {
      in.note("what is not in 8 or 4 bits is taken as bf16");
    }
  }
  if (!fp8.empty()) read_fp8(in, recipe);
  if (!fp4.empty()) read_fp4(in, fp4_recipe);
  if (precision == PrecisionRecipe::fp32 && in.dialect == Dialect::megatron_lm) {
    in.note("without --bf16 Megatron-LM trains in fp32");
  }
  read_gradients(in);
}

void write_precision(Writing& out) {
  const PlanKnobs& k = out.knobs();
  const auto* narrow = std::ranges::find(kFormats, k.precision, &Format::precision);
  const bool is_narrow = narrow != kFormats.end();
  const bool is_fp16 = k.precision == PrecisionRecipe::fp16;
  if (out.dialect == Dialect::megatron_bridge) {
    if (k.precision == PrecisionRecipe::fp32) {
      out.parts.say("mixed_precision", "null");
    } else {
      out.parts.say(
          "mixed_precision",
          is_narrow ? narrow->preset : std::string_view(is_fp16 ? "fp16_mixed" : "bf16_mixed"));
    }
  } else {
    out.parts.say("bf16", is_narrow || k.precision == PrecisionRecipe::bf16);
    out.parts.say("fp16", is_fp16);
    if (is_narrow && !narrow->fp8.empty()) {
      out.parts.say("fp8", narrow->fp8);
      out.parts.say("fp8_recipe", narrow->recipe);
    } else if (is_narrow) {
      out.parts.say("fp4", narrow->fp4);
      out.parts.say("fp4_recipe", narrow->recipe);
    }
  }
  const bool is_narrow_gradient = k.main_grads == StateType::bf16;
  out.parts.say("grad_reduce_in_bf16", is_narrow_gradient);
  out.parts.say("main_grads_dtype",
                is_narrow_gradient && k.precision_aware_optimizer ? "bf16" : "fp32");
  if (!is_narrow_gradient && k.main_grads != StateType::fp32) {
    out.cannot_say(fmt::format("main_grads={}", name_of(k.main_grads)));
  }
}

}  // namespace moetune::spec::dialects
