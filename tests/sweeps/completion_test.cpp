// Completion scripts and manual pages: written from the tables, they name all that is in them.
#include "sweeps/commands/completion.h"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/formats.h"
#include "engine/spec/library.h"
#include "engine/spec/plan_knobs.h"
#include "kernels/base/error.h"
#include "sweeps/commands/options.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(completion, tests::Cli)

namespace {

using tests::Answer;
using tests::Cli;

void check_has(const std::string& text, const std::string& part) {
  BOOST_TEST(text.find(part) != std::string::npos, "names " << part);
}

/// `text` has every command and every option in the form that `written` gives it.
template <class Written>
void check_is_complete(const std::string& text, const Written& written) {
  BOOST_REQUIRE(command_table().size() > 9U);
  for (const CommandRow& row : command_table()) {
    check_has(text, std::string(row.name));
    const std::vector<OptionRow> options = row.options().rows();
    BOOST_TEST(options.front().name == "help");
    for (const OptionRow& option : options) {
      BOOST_TEST_CONTEXT(row.name << " " << option.name) { check_has(text, written(option)); }
    }
  }
}

/// What bash offers for the last of these words.
std::vector<std::string> offered(Cli& cli, const std::string& words) {
  const std::string script = "cd " + cli.folder.file("") + "; source <(" + tests::bin("moetune") +
                             " completion bash); " + "COMP_WORDS=(" + words +
                             "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _moetune; "
                             "printf '%s\\n' \"${COMPREPLY[@]}\"";
  std::filesystem::remove(cli.folder.file("out"));
  SystemProcessRunner runner;
  const Answer answer = cli.finish(*runner.start({{"/usr/bin/env", "bash", "-c", script},
                                                  {},
                                                  cli.folder.file("out"),
                                                  cli.folder.file("err")}));
  BOOST_TEST(answer.err == "");
  std::istringstream lines(answer.out);
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) found.push_back(line);
  return found;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

template <spec::HasNames E>
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const E value : spec::all_values<E>()) names.emplace_back(spec::name_of(value));
  return names;
}

struct OfferedCase {
  const char* words;
  std::vector<std::string> offered;  ///< all of it
};
std::ostream& operator<<(std::ostream& out, const OfferedCase& row) { return out << row.words; }

const OfferedCase kNamed[] = {
    {"moetune schema ''", all_names<spec::FileKind>()},
    {"moetune trace runs.db best --format ''", {"chrome", "perfetto"}},
    {"moetune export train.sh --format ''", all_names<spec::dialects::Dialect>()},
    {"moetune import train.sh --dialect ''", all_names<spec::dialects::Dialect>()},
    {"moetune plan --dialect ''", all_names<spec::dialects::Dialect>()},
    {"moetune plan --export megatron-l", {"megatron-lm"}},
    {"moetune estimate --dialect p", {"primus"}},
    {"moetune diagnose --dialect t", {"torchtitan"}},
    {"moetune plan --fix dispa", {"dispatcher="}},
    {"moetune trial quickstart --set dispa", {""}},
};

// What they take is a file.
const char* const kFileWords[] = {
    "moetune compare tri",        "moetune compare a.log tri",   "moetune import tri",
    "moetune export tri",         "moetune plan --against tri",  "moetune estimate --run tri",
    "moetune diagnose --run tri", "moetune calibrate --log tri",
};

struct RepeatedCase {
  const char* command;
  std::vector<std::string> options;
};
std::ostream& operator<<(std::ostream& out, const RepeatedCase& row) { return out << row.command; }

const RepeatedCase kRepeated[] = {
    {"calibrate", {"db", "log"}},
    {"plan", {"fix"}},
    {"trial", {"set"}},
    {"ls", {}},
};

}  // namespace

BOOST_AUTO_TEST_CASE(the_rows_of_options_say_what_was_declared) {
  CommandOptions options("x", "y");
  options.add()("quiet,q", "no progress");
  options.add_set();
  options.add()("id", boost::program_options::value<std::vector<std::string>>()->value_name("ID"),
                "words");
  options.positional("id", -1);
  const std::vector<OptionRow> rows = options.rows();
  BOOST_REQUIRE(rows.size() == 4U);
  BOOST_TEST(rows[0].letter == "h");
  BOOST_TEST((rows[1].name == "quiet" && rows[1].letter == "q" && rows[1].value.empty()));
  BOOST_TEST((rows[2].value == "KNOB=VALUE" && !rows[2].is_positional && rows[2].is_repeatable));
  BOOST_TEST(!rows[1].is_repeatable);
  BOOST_TEST((rows[3].is_positional && rows[3].takes_several && rows[3].letter.empty()));
}

BOOST_AUTO_TEST_CASE(both_scripts_name_every_command_option_and_knob) {
  for (const char* shell : {"bash", "zsh"}) {
    BOOST_TEST_CONTEXT(shell) {
      const std::string script = completion_script(shell, command_table());
      check_is_complete(script, [&](const OptionRow& option) {
        return option.is_positional && std::string_view(shell) == "zsh" ? ":" + option.value
                                                                        : "--" + option.name;
      });
      for (const spec::KnobRow& row : spec::knob_table()) {
        check_has(script, std::string(row.name) + "=");
      }
      for (const std::string& name : spec::library_names(spec::Shelf::sweep)) {
        check_has(script, name);
      }
    }
  }
  BOOST_CHECK_THROW(completion_script("fish", command_table()), base::UsageError);
}

BOOST_AUTO_TEST_CASE(models_and_hardware_are_offered_where_an_option_takes_one) {
  const CommandRow row{"init", "a command",
                       [] {
                         namespace po = boost::program_options;
                         CommandOptions options("init", "a command");
                         options.add()("model", po::value<std::string>()->value_name("MODEL"), "m");
                         options.add()("hardware", po::value<std::string>()->value_name("HARDWARE"),
                                       "h");
                         return options;
                       },
                       nullptr};
  for (const char* shell : {"bash", "zsh"}) {
    const std::string script = completion_script(shell, {&row, 1});
    for (const spec::Shelf shelf : {spec::Shelf::model, spec::Shelf::hardware}) {
      for (const std::string& name : spec::library_names(shelf)) check_has(script, name);
    }
  }
}

BOOST_AUTO_TEST_CASE(bash_takes_its_script_and_offers_what_fits) {
  tests::write_text(folder.file("script"), completion_script("bash", command_table()));
  SystemProcessRunner runner;
  const Answer checked =
      finish(*runner.start({{"/usr/bin/env", "bash", "-n", folder.file("script")},
                            {},
                            folder.file("out"),
                            folder.file("err")}));
  BOOST_TEST(checked.code == 0);
  BOOST_TEST(checked.err == "");
  BOOST_TEST(offered(*this, "moetune sw") == std::vector<std::string>{"sweep"},
             boost::test_tools::per_element());
  BOOST_TEST(offered(*this, "moetune ls --form") == std::vector<std::string>{"--format"},
             boost::test_tools::per_element());
  const std::vector<std::string> two = {"text", "json"};
  BOOST_TEST(offered(*this, "moetune ls --format ''") == two, boost::test_tools::per_element());
  BOOST_TEST(offered(*this, "moetune ls --format =") == two, boost::test_tools::per_element());
  BOOST_TEST(offered(*this, "moetune ls --format = j") == std::vector<std::string>{"json"},
             boost::test_tools::per_element());
  BOOST_TEST(has(offered(*this, "moetune sweep quick"), "quickstart"));
  BOOST_TEST(has(offered(*this, "moetune sweep tri"), "trial.json"));
  BOOST_TEST(has(offered(*this, "moetune trial quickstart --set micro"), "micro_batch_size="));
  BOOST_TEST(has(offered(*this, "moetune ls --status o"), "oom"));
  BOOST_TEST(!has(offered(*this, "moetune sweep --max-trials tri"), "trial.json"));
}

BOOST_DATA_TEST_CASE_F(Cli, bash_offers_the_names_that_a_value_may_have,
                       boost::unit_test::data::make(kNamed), row) {
  BOOST_TEST(offered(*this, row.words) == row.offered, boost::test_tools::per_element());
}

BOOST_DATA_TEST_CASE_F(Cli, bash_offers_files_where_a_run_is_taken,
                       boost::unit_test::data::make(kFileWords), words) {
  tests::write_text(folder.file("trial.json"), "{}");
  BOOST_TEST(has(offered(*this, words), "trial.json"));
}

BOOST_DATA_TEST_CASE(what_may_be_repeated_is_marked_for_zsh,
                     boost::unit_test::data::make(kRepeated), row) {
  const auto command =
      std::ranges::find(command_table(), std::string_view(row.command), &CommandRow::name);
  BOOST_REQUIRE((command != command_table().end()));
  std::vector<std::string> found;
  for (const OptionRow& option : command->options().rows()) {
    if (option.is_repeatable && !option.is_positional) found.push_back(option.name);
  }
  BOOST_TEST(found == row.options, boost::test_tools::per_element());
  const std::string script = completion_script("zsh", {&*command, 1});
  for (const std::string& option : row.options) check_has(script, "'*--" + option + "=[");
}

BOOST_AUTO_TEST_CASE(the_manual_page_names_every_command_and_option) {
  const Answer page = run({"man"});
  BOOST_REQUIRE(page.code == 0);
  BOOST_TEST(page.out.starts_with(".TH \"MOETUNE\" 1"));
  // Dashes are written so that they can be copied from the page.
  check_is_complete(page.out, [](const OptionRow& option) {
    std::string text;
    for (const char c : "--" + option.name) text += c == '-' ? "\\-" : std::string(1, c);
    return text;
  });
  for (const char* part : {"MOETUNE_SHARE", "EXIT STATUS", "qwen3\\-30b\\-a3b"}) {
    check_has(page.out, part);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
