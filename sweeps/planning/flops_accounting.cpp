// The accountings by what their names begin with or say.
#include "sweeps/planning/flops_accounting.h"

#include <string>

#include "sweeps/planning/row_words.h"

namespace moetune::sweeps {

CountedFlops counted_flops(const spec::ModelSpec& model, int64_t seq_length,
                           std::string_view accounting) {
  CountedFlops counted;
  spec::ModelSpec as_counted = model;
  int64_t counted_length = seq_length;
  double share = 1;
  while (!accounting.empty()) {
    const size_t end = accounting.find(';');
    const std::string part = plain_word(accounting.substr(0, end));
    accounting = end == std::string_view::npos ? std::string_view() : accounting.substr(end + 1);
    if (part.empty()) continue;
    if (part.starts_with("gpt_oss_before")) {
      as_counted.has_gated_mlp = false;
      as_counted.attention_window.assign(as_counted.attention_window.size(), 0);
    } else if (part.starts_with("lora")) {
      share *= 2.0 / 3;
    } else if (part.find("core_not_halved") != std::string::npos) {
      // A query sees half of the sequence on average: all of it is half of twice as much.
      counted_length = 2 * seq_length;
    } else if (part != "megatron" && part != "megatron_lm" && part != "megatron_core") {
      counted.is_known = false;
    }
  }
  counted.flops_per_token = share * as_counted.training_flops_per_token(counted_length);
  return counted;
}

}  // namespace moetune::sweeps
