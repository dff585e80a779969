// moetune man: the manual page, written from the tables of commands and options.
#include <fmt/format.h>

#include <iostream>

#include "engine/spec/library.h"
#include "kernels/base/man_page.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/version.h"

namespace moetune::sweeps {
namespace {

void add_command(base::ManPage& page, const CommandRow& row) {
  const CommandOptions options = row.options();
  page.subsection(row.name);
  page.text("moetune " + options.usage());
  page.text(options.help());
  for (const OptionRow& option : options.rows()) {
    const std::string letter = option.letter.empty() ? "" : fmt::format(", -{}", option.letter);
    const std::string word = option.is_positional ? option.value + ", " : "";
    page.option(fmt::format("{}--{}{}", word, option.name, letter), option.value, option.help);
  }
}

std::string manual_page() {
  base::ManPage page("moetune", "tunes Mixture-of-Experts training", version());
  page.section("SYNOPSIS");
  page.text("moetune COMMAND [OPTIONS]");
  page.section("DESCRIPTION");
  page.text(what_moetune_is());
  page.text(
      "Where a file of a sweep or trial is expected, its path, the name of a sweep that came with "
      "moetune, or - for standard input may stand. In such a file a model and a hardware may be "
      "objects, paths or names; a path starts from the file's folder and wins over a name. Names "
      "are compared without regard to case, and a dash is as good as an underscore.");
  for (const spec::ShelfRow& shelf : spec::shelf_table()) {
    std::string names;
    for (const std::string& name : spec::library_names(shelf.shelf)) {
      names += (names.empty() ? "" : ", ") + name;
    }
    page.option(shelf.folder, "", names);
  }
  page.section("COMMANDS");
  for (const CommandRow& row : command_table()) add_command(page, row);
  page.section("EXIT STATUS");
  page.text(exit_code_text());
  page.section("ENVIRONMENT");
  page.option(
      "MOETUNE_SHARE", "",
      "the folder of models, hardware, sweeps and data that are found by name, and of the rates "
      "that plans stand on (calibration), in the place of ../share/moetune beside the program's "
      "folder");
  page.option("MOETUNE_RANK", "",
              "the program that runs a trial, in the place of moetune-rank beside moetune");
  page.section("SEE ALSO");
  page.text("moetune-rank(1)");
  return page.str();
}

}  // namespace

CommandOptions man_options() {
  return {"man", "Prints the manual page as man(1) reads it: moetune man | man -l -"};
}

int run_man_command(const CommandOptions& /*options*/) {
  std::cout << manual_page();
  return 0;
}

}  // namespace moetune::sweeps
