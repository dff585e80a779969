#include "sweeps/runs/hidden_loss.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps {
namespace {

/// The last of these stands right in front of the losses.
constexpr std::array<std::string_view, 5> kInFront = {
    "elapsed time per iteration (ms)", "elapsed time per iteration (s)", "learning rate",
    "decoupled learning rate", "global batch size"};
/// Any of these may stand right behind them.
constexpr std::array<std::string_view, 9> kBehind = {"loss scale",
                                                     "grad norm",
                                                     "num zeros",
                                                     "params norm",
                                                     "max attention logit",
                                                     "max_attention_logit",
                                                     "actual seqlen",
                                                     "number of skipped iterations",
                                                     "number of nan iterations"};

/// Of routers and of multi-token prediction: "load_balancing_loss", "mtp_1 loss".
bool is_beside_loss(std::string_view key) {
  const bool is_one_word = key.find(' ') == std::string_view::npos;
  return (is_one_word && key.ends_with("_loss")) || key.starts_with("mtp_");
}

bool is_name_of_loss(std::string_view key) {
  const bool is_name = std::ranges::all_of(key, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == ' ' || c == '_' || c == '-';
  });
  return is_name && (key == "loss" || key.ends_with(" loss"));
}

}  // namespace

LossPlace loss_place_of(std::string_view line) {
  bool is_behind_front = false;
  LossPlace found = LossPlace::broken;
  bool is_found = false;
  while (!line.empty()) {
    const std::string_view segment = log_text::up_to(line, "|");
    line.remove_prefix(std::min(segment.size() + 1, line.size()));
    const size_t colon = segment.rfind(": ");
    const std::string_view key = log_text::bare(segment.substr(0, std::min(colon, segment.size())));
    if (std::ranges::find(kInFront, key) != kInFront.end()) {
      is_behind_front = true;
      is_found = false;
      found = LossPlace::broken;
      continue;
    }
    if (!is_behind_front || is_found || is_beside_loss(key)) continue;
    is_found = true;
    if (std::ranges::find(kBehind, key) != kBehind.end()) {
      found = LossPlace::empty;
    } else if (is_name_of_loss(key)) {
      found = LossPlace::other;
    }
  }
  return found;
}

}  // namespace moetune::sweeps
