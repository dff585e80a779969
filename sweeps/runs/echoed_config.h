// The configuration that a log echoes, handed to the tables of the dialects: an argument dump and a
// summary are other spellings of a command, and nothing is spelled here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/run_config.h"
#include "sweeps/runs/run_facts.h"

namespace moetune::sweeps {

/// The settings that the dialect's table knows, as a text that import_run takes; empty: none.
std::string import_text(const std::vector<EchoedSetting>& settings,
                        spec::dialects::Dialect dialect);

/// The row of the tables that a setting of an echo belongs to, by its name there; null: of none.
const spec::dialects::Row* row_of_echoed(const std::string& key, EchoedConfig::Form form,
                                         spec::dialects::Dialect dialect);

/// Whether a setting's value says that it is not set.
bool is_absent(std::string_view value);

/// Which dialect a framework's words are.
std::optional<spec::dialects::Dialect> dialect_of(Framework framework);

/// Fills facts.config from the echo, or else from the command. What cannot be understood becomes a
/// note.
void read_echoed_config(RunFacts& facts);

}  // namespace moetune::sweeps
