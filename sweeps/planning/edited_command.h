// A command that is changed flag by flag: what has to be written into it, and taken out of it, so
// that its own words mean another run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"

namespace moetune::sweeps {

/// The flags in which two runs differ, as changes of the first one's text. Sizes that `before`
/// leaves to its framework are as there.
std::vector<spec::dialects::SettingChange> changes_between(spec::dialects::RunConfig before,
                                                           spec::dialects::RunConfig after);

/// Takes variables out of `to` that choices of `from` needed and that `to` has not.
void leave_out_variables_of_choices(const spec::dialects::RunConfig& from,
                                    spec::dialects::RunConfig& to);

/// Switches it off where one rank has whole sequences and the dialect has it off unasked.
void leave_out_idle_sequence_parallelism(spec::dialects::Dialect dialect,
                                         spec::dialects::RunConfig& config);

/// A command of Megatron-LM or Megatron-Bridge by what its text states. A flag may be stated that
/// means several settings, and a setting may follow from another: after each edit the text is read
/// again.
class EditedCommand {
 public:
  /// None where the text that is stated is not all that the run is made of, or of another dialect.
  static std::optional<EditedCommand> of(const spec::dialects::RunConfig& run, int64_t num_layers);

  /// Makes it `target` and returns what it took, in the words of the command. None where it cannot
  /// be read on the way, or is not `target` in the end: then it stays as it is.
  std::optional<std::vector<std::string>> change_to(const spec::dialects::RunConfig& target);

 private:
  EditedCommand(const spec::dialects::RunConfig& run, int64_t num_layers);

  [[nodiscard]] std::string text() const;
  [[nodiscard]] spec::dialects::RunConfig read() const;
  [[nodiscard]] std::vector<spec::dialects::SettingChange> changes_to(
      const spec::dialects::RunConfig& target) const;
  struct Edit {
    std::string key;
    std::string text;
  };
  /// False where nothing had to be changed.
  bool apply(const spec::dialects::SettingChange& change, std::vector<Edit>& edits);
  bool take_out(const std::string& key, std::vector<Edit>& edits);

  spec::dialects::Dialect dialect_;
  int64_t world_size_;
  int64_t num_layers_;
  std::vector<spec::dialects::StatedSetting> settings_;
  std::vector<spec::dialects::UnknownSetting> unknown_;  ///< of these, as the run came
  std::map<std::string, std::string, std::less<>> environment_;
};

}  // namespace moetune::sweeps
