#include "reports/engine_boxes.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/format.h"
#include "reports/html.h"
#include "reports/local_paths.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

/// Of a setting from a stranger's database.
constexpr size_t kMostSettingBytes = 2000;
constexpr size_t kMostEngineSettings = 200;

// Where a command was run, in words: in the folder of the sweep, or seen from there.
std::string place_words(const Context& context) {
  const std::string& folder = context.engine_run.folder;
  const std::string seen = seen_from(context.folder, folder);
  if (folder.empty() || seen.starts_with('/')) return "the folder of the sweep file";
  if (seen == ".") return "the sweep's folder";
  return fmt::format("the folder <code>{}</code>, seen from the sweep's", escape(seen));
}

}  // namespace

std::string engine_settings_box(const store::TrialRow& trial, const std::string& name) {
  const std::optional<std::vector<std::string>> changes = engine_changes(trial);
  if (!changes) return "";
  if (changes->empty()) {
    return fmt::format("<p>{} is your command as it is: it changes nothing in it.</p>\n", name);
  }
  std::string lines;
  bool is_whole = changes->size() <= kMostEngineSettings;
  for (size_t i = 0; i < std::min(changes->size(), kMostEngineSettings); ++i) {
    std::string line = shortened((*changes)[i], kMostSettingBytes);
    is_whole =
        is_whole && line == (*changes)[i] && is_plain_line(line) && without_folders(line) == line;
    // One setting is one line.
    std::ranges::replace_if(
        line, [](char c) { return c == '\n' || c == '\t'; }, '\x7f');
    lines += line + "\n";
  }
  const std::string title = name + " in the words of your command";
  if (is_whole) return copy_box("copy-flags", title, lines);
  return shown_box("copy-flags", title, lines) +
         "<p class=\"note\">Not to be copied from here: a report holds neither absolute paths nor "
         "control characters. <code>moetune show</code> has each setting.</p>\n";
}

std::string engine_command_box(const Context& context, const store::TrialRow& trial) {
  const EngineRun& run = context.engine_run;
  if (run.command.empty()) return "";
  const std::string command =
      seen_from(run.folder.empty() ? context.folder : run.folder, run.command);
  const std::string missing =
      without_folders(command) == command
          ? ""
          : fmt::format(
                "<p class=\"note\">A report holds no absolute path: put the folders in first. "
                "<code>moetune show DB {}</code> has the whole command.</p>\n",
                trial.id);
  return fmt::format(
      "<details><summary>Repeat {} alone</summary>\n{}{}</details>\n",
      context.has_won(trial) ? "the winning trial" : context.name_of(trial), missing,
      command_box("copy-trial", fmt::format("Its command, for a shell in {}", place_words(context)),
                  command));
}

}  // namespace moetune::reports
