// The small readers by themselves: what of YAML, TOML and the shell is read, and what is refused.
#include <fmt/format.h>

#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "engine/spec/dialects/node.h"
#include "engine/spec/dialects/shell.h"
#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(readers_of_dialects)

namespace {

using samples::contains;

struct Text {
  const char* text;
  const char* result;  ///< in flow style, or a part of the message
};
std::ostream& operator<<(std::ostream& out, const Text& row) { return out << row.text; }

template <class Read>
std::string result_of(Read read) {
  try {
    return read();
  } catch (const base::UsageError& error) {
    return error.what();
  }
}

}  // namespace

const std::vector<Text> kYaml = {
    {"a: 1\nb:\n  c: x y # no\n  d:\n", "{a: 1, b: {c: x y, d: null}}"},
    {"a:\n- 1\n- b: 2\n  c: 3\n- [x, 'y z']\n", "{a: [1, {b: 2, c: 3}, [x, \"y z\"]]}"},
    {"a:\n  - - 1\n    - 2\n", "{a: [[1, 2]]}"},
    {"---\na: \"x\\ty: #\"\n", "{a: \"x\\ty: #\"}"},
    {"a: 'it''s'\n", "{a: \"it's\"}"},
    {"a: {b: [1,\n  2], c: }\n", "{a: {b: [1, 2], c: null}}"},
    {"a: this goes\n  on here\nb: 2\n", "{a: this goes on here, b: 2}"},
    {"--tp: 2\n--x: null\n", "{--tp: 2, --x: null}"},
    {"a: ${VAR:3}\n", "{a: \"${VAR:3}\"}"},
    {"a: 1.0e-5\r\nb: 2\r\n", "{a: 1.0e-5, b: 2}"},
    {"", "null"},
    {"a: !!python/object 1\n", "tags are not read"},
    // Texts of several lines.
    {"a: |\n  x # y\n   z: 1\n\n  w\n\nb: 2\n", "{a: \"x # y\\n z: 1\\n\\nw\\n\", b: 2}"},
    {"a:\n  - >-\n    x\n    y\n\n    z\n  - |+\n  - 1\n", "{a: [\"x y\\nz\", \"\", 1]}"},
    {"a: |", "{a: \"\"}"},
    {"a: |\r\n  x\r\nb: 1\r\n", "{a: \"x\\n\", b: 1}"},
    {"a: |x\n  y\n", "line 1: 'x' behind '|' or '>'"},
    {"| : 1\n", "begins no key"},
    // Anchors.
    {"a: &x 1\nb: *x\nc: [*x, {d: *x}]\n", "{a: 1, b: 1, c: [1, {d: 1}]}"},
    {"a: &x\n  k: 1\n  l: 2\nb:\n  <<: *x\n  l: 3\n", "{a: {k: 1, l: 2}, b: {l: 3, k: 1}}"},
    {"- &x\n  k: 1\n- &y {k: 2, l: 3}\n- <<: [*x, *y]\n", "[{k: 1}, {k: 2, l: 3}, {k: 1, l: 3}]"},
    {"a: *x\n", "line 1: no anchor 'x' stands above"},
    {"a: &x [*x]\n", "no anchor 'x' stands above"},
    {"a: &\n", "an anchor has no name"},
    {"<<: 1\n", "'<<' has no map behind it"},
    {"a: 1\na: 2\n", "key 'a' stands here and on line 1"},
    {"a: 1\n---\nb: 2\n", "a second document begins"},
    {"a: 1\n   b: 2\n", "deeper than its neighbours"},
    {"a: [1, 2\n", "expected ',' or ']'"},
    {"a: \"x\n", "a quote is not closed"},
    {"\ta: 1\n", "a tab begins the line"},
    {"a: 1\njust words\n", "'just words' is no 'key: value'"},
};
BOOST_DATA_TEST_CASE(yaml, boost::unit_test::data::make(kYaml), row) {
  const std::string result = result_of([&] { return yaml_text(read_yaml(row.text, "file")); });
  BOOST_TEST_CONTEXT(result) {
    BOOST_TEST(
        (result == row.result || (result.starts_with("file: ") && contains(result, row.result))));
  }
}

/// As Python's reader takes them, where somebody hears of it.
BOOST_AUTO_TEST_CASE(yaml_keys_that_stand_twice) {
  std::vector<std::string> notes;
  const Node node = read_yaml("a: 1\nb: {c: 1}\na: 2\nb: {d: 1}\ne: 3\ne: 3\n", "file", &notes);
  BOOST_TEST(yaml_text(node) == "{a: 2, b: {d: 1}, e: 3}");
  BOOST_REQUIRE(notes.size() == 2U);
  BOOST_TEST(notes[0] == "key 'a' stands on line 1 and on line 3: the last one counts");
}

/// What a few anchors can make of a short text.
BOOST_AUTO_TEST_CASE(yaml_anchors_end) {
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    laughs += fmt::format("a{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}]\n",
                          i, i - 1);
  }
  std::string merges = "a: &a {";
  for (int i = 0; i < 5'000; ++i) merges += fmt::format("k{}: 1,\n ", i);
  merges += "}\nb:\n";
  for (int i = 0; i < 1'000; ++i) merges += "  <<: *a\n";
  for (const std::string& text : {laughs, merges}) {
    const std::string result = result_of([&] { return yaml_text(read_yaml(text, "file")); });
    BOOST_TEST(contains(result, "its anchors repeat more than"), result.substr(0, 200));
  }
  std::string deep;
  for (int i = 0; i < 1'000; ++i) deep += fmt::format("&a{} ", i);
  BOOST_CHECK_THROW(read_yaml(deep + "1", "file"), base::UsageError);
  BOOST_CHECK_THROW(read_yaml("a: " + deep + "1", "file"), base::UsageError);
}

const std::vector<Text> kToml = {
    {"a = 1_000\n[b.c]\nd = \"x # y\" # z\ne = 'q'\n",
     "{a: 1000, b: {c: {d: \"x # y\", e: \"q\"}}}"},
    {"a = [1, # one\n  2,\n]\nb = {c = true, d.e = 1.5e-3}\n",
     "{a: [1, 2], b: {c: true, d: {e: 1.5e-3}}}"},
    {"x.y = -1\n", "{x: {y: -1}}"},
    {"[[a]]\n", "lists of tables"},
    {"a = \"\"\"x\"\"\"\n", "texts of several lines"},
    {"a = 1\na = 2\n", "key 'a' stands here and on line 1"},
    {"a = word\n", "'word' is no value"},
    {"a = 1 b = 2\n", "expected the end of the line"},
    {"a 1\n", "expected '='"},
    {"a = \"x\n", "a quote is not closed"},
    {"a = 1\n[a]\nb = 2\n", "'a' is a value on line 1"},
};
BOOST_DATA_TEST_CASE(toml, boost::unit_test::data::make(kToml), row) {
  const std::string result = result_of([&] { return yaml_text(read_toml(row.text, "file")); });
  BOOST_TEST_CONTEXT(result) {
    BOOST_TEST(
        (result == row.result || (result.starts_with("file: ") && contains(result, row.result))));
  }
}

const std::vector<Text> kShell = {
    {"a 'b c' \"d $X\" e\\ f", "a|b c|d $X|e f"},
    {"X=1\na $X ${X} \"$X\" '$X' ${Y:-2} ${Y}", "a|1|1|1|$X|2|${Y}"},
    {"A=(-x 'y z'\n  # no\n  w)\nA+=(v)\nrun ${A[@]} \"${A[@]}\"", "run|-x|y|z|w|v|-x|y z|w|v"},
    {"ARGS=\"-a 1 \\\n -b 2\"; run $ARGS", "run|-a|1|-b|2"},
    {"run a \\\n  b # c\n", "run|a|b"},
    {"N=4\nrun $(($N*8)) `date` $(hostname -s)", "run|32|`date`|$(hostname -s)"},
    {"run a > log 2>&1 | tee x", "run|a / tee|x"},
    {"cd x && run a; run b", "cd|x / run|a / run|b"},
    {"E= run a\"\"b ''", "run|ab|"},
    {"srun bash -c 'run \"a b\" --c'", "run|a b|--c / srun|bash|-c|run \"a b\" --c"},
    {"run 'a", "line 1: a quote (') is not closed"},
    {"run \"a", "a quote (\") is not closed"},
    {"run ${A", "'${' is not closed"},
    {"run $(a", "a parenthesis is not closed"},
    {"A=(a b", "a parenthesis is not closed"},
    {"A=(a;b)", "';' in an array"},
    // Parameters.
    {"X=3; run ${Y:-${Z:-$X}} ${Y:-\"a b\"} ${X:+-x $X} ${Y:+no} end", "run|3|a b|-x|3|end"},
    {"A=(a \"b c\"); B=(\"${A[@]}\" d); run \"${B[@]}\" ${#B[@]} ${B[1]} \"${B[@]:2}\"",
     "run|a|b c|d|3|b|c|d"},
    {"declare -A M=([\"8b\"]=1 [\"70b\"]=8); S=70b; run ${M[$S]} ${M[none]}", "run|8|${M[none]}"},
    {"P=dir/model.sh; run ${P##*/} ${P%.sh} ${P^^}", "run|model.sh|dir/model|DIR/MODEL.SH"},
    {"X=$A; run ${X:-1} ${X} $((${N:-2} * 8 + 1)) $((X * 2))", "run|1|$A|17|$((X * 2))"},
    {": ${W:=5}; run $W; C=3 run $C; run ${C:-none}", "run|5 / run|3 / run|none"},
    {"S=a; S+=b; A=(); run $S \"${A[@]}\" \"\" ${EXTRA[@]}", "run|ab||${EXTRA[@]}"},
    {"run $@ \"$@\" ${@:1} \"${@}\" $* $# $1 `# told` end", "run|0|$1|end"},
    {"export E=1 F='x y'; unset E; run ${E:-gone} $F", "run|gone|x|y"},
    // Tests and choices.
    {"T=mock\nif [[ \"$T\" == mock ]] || [ -z \"$D\" ]; then\n run a\nelse\n run b\nfi; run c",
     "run|a / run|c"},
    {"N=2; if [ $N -gt 4 ]; then A=1; elif (( N * 2 == 4 )); then A=2; else A=3; fi; run $A",
     "run|2"},
    {"if [ -z \"${TP}\" ]; then TP=4; fi; [[ -n $PP ]] || PP=2; run $TP $PP", "run|4|2"},
    {"if [[ $M == *Hybrid* && ! ( -n $M ) ]]; then run a; else run b; fi", "run|b"},
    {"case $S in 8B|7B) A=1;; *) A=2;; esac; S=8B; case \"$S\" in\n 8B|7B) B=1;; *) B=2;; esac\n"
     "run $A $B",
     "run|2|1"},
    // What ends in an error is not what is run, and what was told before counts.
    {"A=1; if [ -z \"$1\" ]; then A=2; echo usage; exit 1; fi; run $A", "run|1"},
    {"[ -z \"$1\" ] && { echo usage; exit 1; }; run a", "run|a"},
    {"case $1 in a) A=1;; b) A=2;; *) exit 1;; esac; run $A", "run|2"},
    {"if [ a = a ]; then run --x 1; exit; fi; run --x 2", "run|--x|1"},
    // What nobody can tell: the last branch, and the commands of all where that has none.
    {"if nvidia-smi; then A=1; else A=2; fi; run $A", "nvidia-smi / run|2"},
    {"N=$(nproc); if [ $N -gt 4 ]; then A=1; else A=2; fi; run $A", "run|2"},
    {"A=1; if [ -f x ]; then A=2; fi; run $A", "run|2"},
    {"if [ -f x ]; then run --a; else run --b; fi", "run|--b"},
    {"if [ -f x ]; then run --a; else echo no; fi", "run|--a / echo|no"},
    // Loops, functions, shells in shells.
    {"for i in 1 2; do run $i; done; for a in \"$@\"; do run no; done", "run|1 / run|2"},
    {"while [[ $# -gt 0 ]]; do run no; shift; done; until false; do run once; done", "run|once"},
    {"f() { local K=$1; shift; run $K \"$@\"; }\nf 8 a \"b c\"", "run|8|a|b c"},
    {"set -- a b; while [ $# -gt 0 ]; do run $1; shift; done", "run|a / run|b"},
    {"function train {\n run --x\n}\necho a", "echo|a / run|--x"},
    {"f() { f; }; f; (A=1; run $A); run ${A:-2}", "run|1 / run|2"},
    {"X=1; sbatch <<E\nit's\nE\nsbatch <<E\nrun $X\nE\nrun b", "sbatch / sbatch / run|1 / run|b"},
    {"C=\"cd x; run a\"; srun bash -x -c \"$C\" >&2 &> log",
     "cd|x / run|a / srun|bash|-x|-c|cd x; run a"},
    {"for C in 2,4,True 8,1,False; do IFS=',' read -r A B D <<< \"$C\"; run $A $B $D; done",
     "run|2|4|True / run|8|1|False"},
    {"read -ra L <<< 'a b c'; read A B <<< 'a b c'; run ${#L[@]} $B; read C < f; run ${C:-no}",
     "run|3|b|c / run|no"},
    {"D=$(ls -a x); for i in $D; do [[ $i == a ]] || run \"$i\"; done", "run|$(ls -a x)"},
    {"O=\"--x $(date +%F %T) --y\"; run $O", "run|--x|$(date +%F %T)|--y"},
    {"O=\"--x `expr 2 + 2` --y\"; run $O", "run|--x|`expr 2 + 2`|--y"},
    {"O='--x ` --y'; run $O", "run|--x|`|--y"},
    {"eval \"run $X\" a", "run|$X|a"},
    {"IFS=$'\\n\\''; run $'a' b", "run|a|b"},
};
BOOST_DATA_TEST_CASE(shell, boost::unit_test::data::make(kShell), row) {
  const std::string result = result_of([&] {
    std::string text;
    for (const ShellCommand& command : read_shell(row.text, "file")) {
      std::string words;
      for (const std::string& word : command.words) words += (words.empty() ? "" : "|") + word;
      text += (text.empty() ? "" : " / ") + words;
    }
    return text;
  });
  BOOST_TEST_CONTEXT(result) {
    BOOST_TEST(
        (result == row.result || (result.starts_with("file: ") && contains(result, row.result))));
  }
}

BOOST_AUTO_TEST_CASE(what_only_a_run_can_tell) {
  const std::string text =
      "if [ -f x ]; then A=1; else A=2; fi\nN=${NODES:-1}\n[ -z \"$TP\" ] && TP=4\nrun $A $N $TP "
      "$1";
  const ShellScript script = read_script(text, "file", {.arguments = {"last"}});
  BOOST_REQUIRE(script.open.size() == 1U);
  BOOST_TEST(script.open[0].line == 1);
  BOOST_TEST(script.open[0].condition == "[ -f x ]");
  const auto words_of = [&](const ShellView& view) {
    return read_script(text, "file", view).commands.at(0).words;
  };
  using Words = std::vector<std::string>;
  BOOST_TEST(script.commands.at(0).words == (Words{"run", "2", "1", "4", "last"}),
             boost::test_tools::per_element());
  BOOST_TEST(words_of({.takes_first = true}) == (Words{"run", "1", "1", "4", "$1"}),
             boost::test_tools::per_element());
  BOOST_TEST(words_of({.all_set_outside = true}) == (Words{"run", "2", "${NODES:-1}", "$TP", "$1"}),
             boost::test_tools::per_element());
  // Where it is told what is run, nothing is open.
  BOOST_TEST(read_script("if [ -f x ]; then exit 1; fi; A=1", "file").open.empty());
}

/// Scripts that would read themselves again and again end soon.
BOOST_AUTO_TEST_CASE(scripts_without_an_end) {
  using std::string;
  const auto many = [](const string& part, size_t times) {
    string text;
    for (size_t i = 0; i < times; ++i) text += part;
    return text;
  };
  const string long_x = "X=" + string(30'000, 'a') + "\nY=\"*" + string(15'000, 'a') + "b\"\n";
  for (const string& text : std::vector<string>{
           many("for a in 1 2 3 4 5 6 7 8 9; do ", 20) + ":" + many("; done", 20),
           many("for a in 1 2 3 4 5 6 7 8 9; do\n", 3) +
               many("#" + string(60'000, 'x') + "\n", 50) + many("done\n", 3),
           "f() { f a; f b; f c; f d; f e; f g; f h; }\nf\n", many("! ", 100), many("( ", 100),
           many("if a; then ", 100), "run " + many("${A:-", 100) + many("}", 100),
           long_x + many("[[ $X == $Y ]]\n", 100), many("cat <<NONE\n", 100'000),
           "A=()\n" + many("A+=(--x)\n", 5'000), many("V=$V$V$V${V}x\n", 40),
           "X=" + string(250, 'a') + "\n" +
               many("run ${X%%*" + string(50, 'a') + "b}\n", 50'000)}) {
    BOOST_TEST_CONTEXT(text.substr(0, 40)) {
      BOOST_CHECK_THROW(read_shell(text, "file"), base::UsageError);
    }
  }
  // What is nested as people nest, or runs for ever, is read once.
  for (const string& text :
       {many("if [ -z \"$1\" ]; then ", 50) + "exit 1" + many("; fi", 50) + "\nrun --x",
        many("if [ -n \"$1\" ]; then :; else ", 50) + "exit 1" + many("; fi", 50) + "\nrun --x",
        string("while true; do while true; do run --x; done; done")}) {
    const auto commands = read_shell(text, "file");
    BOOST_REQUIRE(commands.size() == 1U);
    BOOST_TEST(commands[0].words.back() == "--x");
  }
}

BOOST_AUTO_TEST_CASE(the_environment_of_a_command) {
  const auto commands = read_shell("export A=1\nB=2\nunused\nC=3 run x\nrun y\n", "file");
  BOOST_REQUIRE(commands.size() == 3U);
  BOOST_TEST(commands[1].environment.at("A") == "1");
  BOOST_TEST(commands[1].environment.at("B") == "2");
  BOOST_TEST(commands[1].environment.at("C") == "3");
  BOOST_TEST(!commands[2].environment.contains("C"));
}

BOOST_AUTO_TEST_CASE(words_are_quoted_for_a_shell) {
  BOOST_TEST(shell_quoted("a-b/c=1") == "a-b/c=1");
  BOOST_TEST(shell_quoted("Et|(t|)*2") == "'Et|(t|)*2'");
  BOOST_TEST(shell_quoted("it's") == "'it'\\''s'");
  BOOST_TEST(shell_quoted("$A/b c") == "\"$A/b c\"");
  BOOST_TEST(shell_quoted("${A_1}:$B") == "\"${A_1}:$B\"");
  // Nothing is run, and nothing but a whole variable is replaced.
  for (const std::string word :
       {"$(ls) a", "${A:-$(ls)}", "$1", "$", "$A $", "${A", "$A!", "`ls`"}) {
    BOOST_TEST(shell_quoted(word) == "'" + word + "'");
  }
  BOOST_TEST(shell_quoted("") == "''");
  BOOST_TEST(shell_quoted("${A}_$B") == "\"${A}_$B\"");
  // What a shell would run, or make something else of, stays as it is.
  for (const char* word :
       {"$(rm)", "$A$(rm)", "${A:-$(rm)}", "$((1+1))", "$1", "$@", "a$", "${A"}) {
    BOOST_TEST(shell_quoted(word) == "'" + std::string(word) + "'");
  }
}

/// Texts that no person writes end in a message, soon.
BOOST_DATA_TEST_CASE(hostile_texts, boost::unit_test::data::make(samples::kDialects), dialect) {
  using std::string;
  const auto many = [](const string& part, size_t times) {
    string text;
    for (size_t i = 0; i < times; ++i) text += part;
    return text;
  };
  string doubling = "A=" + string(1000, 'x') + "\n";
  for (int i = 0; i < 40; ++i) doubling += "A=$A$A\n";
  string deep_yaml;
  for (size_t i = 0; i < 100; ++i) deep_yaml += string(i, ' ') + "a:\n";
  string flags;
  string keys;
  string lines;
  for (int i = 0; i < 300'000; ++i) {
    flags += fmt::format("--a{}\n", i);
    keys += fmt::format("a{}: 1\n", i);
    lines += fmt::format("a{} = 1\n", i);
  }
  std::ranges::replace(flags, '\n', ' ');
  for (size_t i = 50'000; i < flags.size(); i += 50'000) flags.insert(i, "\\\n");
  const std::vector<string> texts = {
      "--tensor-model-parallel-size 1 " + flags,
      "tensor_model_parallel_size: 1\n" + keys,
      "modules:\n  pre_trainer:\n    overrides:\n      tensor_model_parallel_size: 1\n" + keys,
      "[parallelism]\ntensor_parallel_degree = 1\n" + lines,
      string(1 << 20, 'a'),
      "--tensor-model-parallel-size " + string(1 << 20, '9'),
      many("--lr 1\n", 1'000'000),
      "--tensor-model-parallel-size 1 '",
      "--tensor-model-parallel-size 1 \"" + string(1000, '$'),
      string("--tensor-model-parallel-size 1\0 2", 33),
      "--tensor-model-parallel-size " + string(400, '9'),
      "--tensor-model-parallel-size -1",
      "model.tensor_model_parallel_size=-1",
      "model.recompute_modules=" + string(10'000, '['),
      "--parallelism.tensor_parallel_degree -1",
      "modules:\n  pre_trainer:\n    overrides: {tensor_model_parallel_size: -1}\n",
      "[parallelism]\ntensor_parallel_degree = -1\n",
      "[parallelism]\na = " + string(10'000, '['),
      "model: " + string(10'000, '{'),
      "model: " + string(10'000, '['),
      deep_yaml,
      many("- ", 10'000),
      doubling,
      many("${", 10'000),
      many("bash -c '", 100),
      string("\xff\xfe\x00", 3),
      "[" + many("a.", 10'000) + "a]\n",
      "modules: 1\n",
      "MODEL_ARGS: 1\n",
      "\\",
      "$",
      "`",
      "a: \"\\",
  };
  for (const string& text : texts) {
    BOOST_TEST_CONTEXT(text.substr(0, 60)) {
      static_cast<void>(detect_dialect(text));
      BOOST_CHECK_THROW(import_run(text, dialect), base::UsageError);
    }
  }
}

/// Neither do other exceptions come out of damaged files.
BOOST_AUTO_TEST_CASE(damaged_texts) {
  std::mt19937 dice(7);
  const std::vector<std::pair<const char*, Dialect>> files = {
      {"qwen3_235b.sh", Dialect::megatron_lm},
      {"run_config.yaml", Dialect::megatron_bridge},
      {"primus.yaml", Dialect::primus},
      {"torchtitan.toml", Dialect::torchtitan}};
  for (const auto& [name, dialect] : files) {
    const std::string text = samples::golden(name);
    BOOST_REQUIRE(!text.empty());
    for (int i = 0; i < 500; ++i) {
      std::string damaged = text;
      for (int k = 0; k < 3; ++k) {
        const size_t at = dice() % damaged.size();
        constexpr std::string_view kBytes = "\"'[]{}:=#-$( )\n\\9,*&!|\t";
        if (dice() % 2 == 0) {
          damaged[at] = kBytes[dice() % kBytes.size()];
        } else {
          damaged.erase(at, 1 + dice() % 20);
        }
      }
      try {
        export_run(import_run(damaged, dialect), dialect);
      } catch (const base::UsageError&) {
      }
    }
  }
  BOOST_TEST(true);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
