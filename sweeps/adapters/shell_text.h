// The text that /bin/sh runs for a trial: the user's command with its placeholders filled in. What
// is put in never changes what the rest means, whatever it holds.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/engine_spec.h"

namespace moetune::sweeps {

/// By placeholder's name, the words that stand for it.
using Placeholders = std::map<std::string, std::vector<std::string>, std::less<>>;

/// Throws base::UsageError for an unknown placeholder, one that the dialect cannot fill, and a
/// command that says nowhere where settings go.
void check_run_text(const spec::EngineSpec& engine);
bool has_placeholder(std::string_view text, std::string_view name);
/// With blanks in their place.
std::string without_placeholders(std::string_view text);

/// `text` with each {name} replaced by its words, quoted as it needs. Within quotes of the text
/// only plain words can stand: others throw base::UsageError.
std::string filled_in(std::string_view text, const Placeholders& values,
                      std::string_view key = "engine.run");
/// A word as the shell reads it back. Only "$NAME" and "${NAME}", which a user's own command may
/// hold, are left to the shell.
std::string word_for_shell(const std::string& word);
/// The same placeholders in the path of a file, where nothing is quoted.
std::string path_with(std::string_view text, const Placeholders& values);

}  // namespace moetune::sweeps
