// What a row sets beside its columns (other_knobs): switches and sizes in the words of a
// configuration, or the flags of a command line.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/plan_knobs.h"
#include "sweeps/planning/row_reader.h"

namespace moetune::sweeps {

/// The object other_knobs, whose keys may be spelled with dashes or with underscores, and whose
/// switches and whole numbers may be texts.
class RowFlags {
 public:
  explicit RowFlags(const RowReader& row);
  RowFlags(const RowFlags&) = delete;
  RowFlags& operator=(const RowFlags&) = delete;

  /// With underscores in the keys and numbers as numbers.
  [[nodiscard]] const RowReader& reader() const { return reader_; }
  /// Whether a switch is on; none where the row does not set it, or in a word that is neither.
  [[nodiscard]] std::optional<bool> state(const char* name) const;
  /// Whether these are the flags of a command of Megatron-LM, in which a flag that is left out is
  /// off: what trained is Megatron-LM, and several flags of it are here as it spells them.
  [[nodiscard]] bool is_command() const { return is_command_; }

  /// Names that stand there in two spellings with different values.
  [[nodiscard]] const std::vector<std::string>& set_twice() const { return set_twice_; }

 private:
  nlohmann::json contents_;
  RowReader reader_;  ///< of contents_
  bool is_command_ = false;
  std::vector<std::string> set_twice_;
};

/// The state of a switch; a word that is neither on nor off is told.
std::optional<bool> state_or_told(const RowFlags& flags, const char* name,
                                  std::vector<std::string>& assumed);

/// Takes all of them. `assumed` gets a line for what is left out or not known.
void read_other_knobs(const RowReader& row, spec::PlanKnobs& knobs,
                      std::vector<std::string>& assumed);

/// Chunks of an MoE layer, where they are stated; "2+" is two.
int64_t chunks_of_row(const RowReader& row);

}  // namespace moetune::sweeps
