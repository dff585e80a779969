#include "sweeps/processes/last_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <tuple>

#include "engine/spec/json_reader.h"
#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"

namespace moetune::sweeps {
namespace {

constexpr size_t kMaxWordBytes = 64 << 10;
constexpr size_t kMaxMessageBytes = 2000;

std::optional<LastWord> read_last_word(const std::string& path, int rank) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error || size > kMaxWordBytes) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  try {
    const nlohmann::json document = spec::parse_json(text, path);
    spec::JsonReader reader(document, path);
    LastWord word;
    word.rank = rank;
    word.code = static_cast<int>(reader.integer("code", 0, 255));
    word.message = reader.text("message").substr(0, kMaxMessageBytes);
    word.time_ns = reader.integer("time_ns", 0, std::numeric_limits<int64_t>::max());
    return word;
  } catch (const base::UsageError&) {
    return std::nullopt;
  }
}

}  // namespace

bool is_own_failure(int code) {
  using spec::ExitCode;
  return code != static_cast<int>(ExitCode::ok) &&
         code != static_cast<int>(ExitCode::peer_failed) &&
         code != static_cast<int>(ExitCode::interrupted);
}

std::vector<LastWord> read_last_words(const TrialFolder& folder, int num_ranks) {
  std::vector<LastWord> words;
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (auto word = read_last_word(folder.last_word(rank), rank)) words.push_back(std::move(*word));
  }
  return words;
}

std::optional<LastWord> cause_of(const std::vector<LastWord>& words) {
  std::optional<LastWord> cause;
  const auto order = [](const LastWord& word) {
    return std::tuple(!is_own_failure(word.code), word.time_ns, word.rank);
  };
  for (const LastWord& word : words) {
    if (word.code == 0) continue;
    if (!cause || order(word) < order(*cause)) cause = word;
  }
  return cause;
}

std::string silent_ranks(const std::vector<LastWord>& words, int num_ranks) {
  constexpr size_t kMostNamed = 8;
  std::set<int> silent;
  for (int rank = 0; rank < num_ranks; ++rank) silent.insert(rank);
  for (const LastWord& word : words) silent.erase(word.rank);
  if (silent.empty()) return "";
  std::vector<int> named(silent.begin(), silent.end());
  const size_t num_more = named.size() - std::min(named.size(), kMostNamed);
  named.resize(named.size() - num_more);
  return fmt::format("{} {}{} {}", silent.size() == 1 ? "rank" : "ranks", fmt::join(named, ", "),
                     num_more == 0 ? "" : fmt::format(" and {} more", num_more),
                     silent.size() == 1 ? "has" : "have");
}

}  // namespace moetune::sweeps
