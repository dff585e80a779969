// File names against what has moved; see priors.h.
#include "tuner/bisect/priors.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>

namespace moetune::tuner {
namespace {

/// Words of one subject: where a metric's name has one of them, a file with any of them is near it.
constexpr std::array<std::array<std::string_view, 6>, 8> kSubjects = {{
    {"dispatch", "combine", "permute", "moe", "route", "expert"},
    {"attn", "attention", "flash", "sdpa", "rope", "qkv"},
    {"adam", "optim", "grad_norm", "master", "clip", "param_gather"},
    {"comm", "nccl", "reduce", "gather", "all_to_all", "collective"},
    {"memory", "alloc", "arena", "workspace", "activation", "recompute"},
    {"graph", "launch", "capture", "stream", "host_sync", "host"},
    {"loss", "cross_entropy", "lm_head", "logits", "vocab", "head"},
    {"pp_", "pipeline", "schedule", "bubble", "micro_batch", "stage"},
}};

constexpr std::array<std::string_view, 9> kTexts = {".md",  ".rst",    ".html", ".css",  ".png",
                                                    ".svg", "license", "docs/", "readme"};

bool contains(std::string_view text, std::string_view word) {
  return !word.empty() && text.find(word) != std::string_view::npos;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_beside_the_point(std::string_view file) {
  if (file.starts_with("test") || contains(file, "/test") || contains(file, "_test.")) {
    return true;
  }
  return std::any_of(kTexts.begin(), kTexts.end(),
                     [&](std::string_view word) { return contains(file, word); });
}

}  // namespace

double prior_weight(const std::vector<std::string>& files, const std::vector<std::string>& moved) {
  const double most = std::sqrt(kLargestPriorRatio);
  bool is_near = false;
  bool is_beside = !files.empty();
  for (const std::string& name : files) {
    const std::string file = lower(name);
    if (is_beside_the_point(file)) continue;
    is_beside = false;
    for (const auto& subject : kSubjects) {
      const auto speaks_of = [&](std::string_view text) {
        return std::any_of(subject.begin(), subject.end(),
                           [&](std::string_view word) { return contains(text, word); });
      };
      is_near = is_near || (speaks_of(file) &&
                            std::any_of(moved.begin(), moved.end(), [&](const std::string& metric) {
                              return speaks_of(lower(metric));
                            }));
    }
  }
  if (is_near) return most;
  return is_beside ? 1 / most : 1.0;
}

}  // namespace moetune::tuner
