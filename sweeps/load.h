// Reading what a person wrote: trial and sweep files, and the text they train on.
#pragma once

#include <cstddef>
#include <istream>
#include <string>
#include <string_view>

#include "engine/spec/document.h"
#include "engine/spec/sweep_spec.h"
#include "kernels/base/utf8.h"

namespace moetune::sweeps {

/// What standard input is called in messages.
inline constexpr const char* kStandardInput = "standard input";
/// A word of a person that stands for a file, for messages: it may be a whole command.
inline std::string shown_path(std::string_view path) {
  constexpr size_t kMostBytes = 200;
  return base::shortened(path, kMostBytes);
}
/// All of it. Throws base::UsageError, which names it, where that is more than `max_bytes`: what
/// has no end is not read without one.
std::string read_at_most(std::istream& in, size_t max_bytes, const std::string& name);
/// All of it; throws base::UsageError when that is more than any spec.
std::string read_standard_input();

/// Whole file; throws base::UsageError naming it when it cannot be read or is larger than any spec.
std::string read_spec_file(const std::string& path);

/// A spec and the bytes it trains on, as they were when its digest was taken.
template <class Spec>
struct Loaded {
  Spec spec;
  std::string text;
};

/// The file that a person means: the path as it is when there is such a file, else a sweep of that
/// name in the library. Throws base::UsageError when it is neither.
std::string spec_path(const std::string& path_or_name);

/// A sweep file, by path or by name; "-" is standard input, whose relative paths start from the
/// current folder. Throws base::UsageError; notes on standard error when the text is cut.
Loaded<spec::SweepSpec> load_sweep(const std::string& path_or_name);

/// A trial file, or the base of a sweep file.
Loaded<spec::TrialSpec> load_trial(const std::string& path_or_name);

/// Throws base::UsageError where what stands for --model or --hardware is known to be of another
/// kind: the keys that it lacks would say nothing. `option`: which of the two it is for.
void refuse_other_kind_of_file(const spec::Document& document, std::string_view option);

/// The same of a text that is no file yet, whose relative paths start from `folder`. Throws
/// base::UsageError, which names `source`, for what load_sweep and check_can_run refuse.
void check_sweep_text(const std::string& text, const std::string& source,
                      const std::string& folder);

/// Throws base::UsageError with all rules that the trial of this file breaks.
void check_can_run(const spec::TrialSpec& trial, const std::string& path);

/// What a person reads about the broken rules of this file's trial; empty when it breaks none. Of
/// each: file, line where the file has the knob with this value, key when the rule concerns a knob,
/// rule, value found, what would be right.
std::string broken_rules_text(const spec::TrialSpec& trial, const std::string& path);

/// A copy of the text beside the database for as long as trials run: the original may be edited
/// meanwhile, and then the losses of one sweep could not be compared.
class TextSnapshot {
 public:
  /// Throws base::Error when there is no room for it.
  TextSnapshot(const std::string& database_path, const std::string& text);
  ~TextSnapshot();
  TextSnapshot(const TextSnapshot&) = delete;
  TextSnapshot& operator=(const TextSnapshot&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace moetune::sweeps
