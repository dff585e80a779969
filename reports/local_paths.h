// Absolute paths of the machine that made a report mean nothing to its reader, and tell a stranger
// names of people and folders: none gets into a page. `escape` and `json_element` (html.h) see to
// that; texts that are meant to be typed again keep their paths relative to where they were typed.
#pragma once

#include <string>
#include <string_view>

namespace moetune::reports {

/// Each absolute path of the text as its last part: "cannot open /home/me/a.json" gives "cannot
/// open a.json". Addresses ("https://a.org/b"), relative paths, and pointers into a trial's spec
/// ("/knobs/micro_batch_size", as `bisect --configs` names what it changed) stay.
std::string without_folders(std::string_view text);

/// Each absolute path at or below `folder` as seen from there: "/home/me/x/a.json" from "/home/me"
/// gives "x/a.json". Other paths stay, and all do where `folder` is empty.
std::string seen_from(std::string_view folder, std::string_view text);

/// A stored command line: "cd FOLDER && COMMAND".
struct TypedCommand {
  std::string folder;   ///< empty where the line names none
  std::string command;  ///< paths as seen from the folder, the program by its name
};
TypedCommand typed_command(const std::string& command_line);

}  // namespace moetune::reports
