// The page of a sweep over somebody else's engine: settings and command in the user's words, the
// ceiling of a profiled run beside the gain of another, parts of memory that nobody knows.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/spec/trial_status.h"
#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "profiler/store/trial_statuses.h"
#include "reports/report.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::reports {
namespace {

using nlohmann::json;
using tests::TempFolder;

BOOST_AUTO_TEST_SUITE(engine_trial)

namespace {

/// Trials: 1 the command as it is, 2 a larger micro-batch, 3 a look into 2, 4 two changes that are
/// slower, 5 the winner.
class EngineSweepPage {
 public:
  json changes = {"--micro-batch-size 2", "--overlap-grad-reduce", "NCCL_ALGO=Ring"};
  std::string command =
      "export NCCL_ALGO=Ring; python /home/somebody/work/pretrain.py --micro-batch-size 2 "
      "--overlap-grad-reduce --exit-interval 15";
  std::string folder = "/home/somebody/work";
  json kept = {{"overlap_grad_reduce", {{"before", "false"}, {"after", "true"}}}};
  store::SearchStatus status = store::SearchStatus::done;

  [[nodiscard]] std::string text() const {
    const TempFolder temporary;
    const std::string path = temporary.file("runs.db");
    write(path);
    return render_report(store::Store::open_read_only(path));
  }

 private:
  static int64_t add(store::Store& store, int64_t sweep, const char* hash, const char* phase,
                     const json& knobs, const json& changes, store::TrialResult result,
                     int64_t step_ns) {
    store::TrialRow row;
    row.sweep_id = sweep;
    row.spec_hash = hash;
    row.phase = phase;
    row.spec_json = json{{"engine", "megatron-lm"}, {"changes", changes}}.dump();
    for (const auto& [name, value] : knobs.items()) row.knobs.push_back({name, value});
    result.status = "ok";
    result.step_ns = step_ns;
    store::ShardMemory memory;
    memory.peak_bytes = int64_t{44} << 30;
    result.peak_bytes = memory.peak_bytes;
    result.shards.emplace_back().memory.push_back(memory);
    const int64_t id = store.begin_trial(row);
    store.finish_trial(id, result);
    return id;
  }

  void write(const std::string& path) const {
    store::Store store = store::Store::open(path);
    store::SweepRow sweep;
    sweep.config_hash = "0";
    sweep.config_json = R"({"engine": "megatron-lm"})";
    sweep.contract_json = sweep.model_json = sweep.hardware_json = "{}";
    sweep.command_line = "cd /home/somebody/work && moetune sweep s.json --db runs.db";
    const int64_t id = store.create_or_resume_sweep(sweep).id;
    const auto knobs = [](const char* micro_batch, const char* tp, const char* overlap) {
      return json{{"micro_batch_size", micro_batch}, {"overlap_grad_reduce", overlap}, {"tp", tp}};
    };
    const int64_t first =
        add(store, id, "a1", "contract", knobs("1", "1", "false"), json::array(), {}, 680'000'000);
    const int64_t larger = add(store, id, "a2", "scale", knobs("2", "1", "false"),
                               {"--micro-batch-size 2"}, {}, 600'000'000);
    store::TrialResult look;
    look.wall = "communication";
    look.metrics = {{-1, "communication_wall_ratio", 0.75}, {-1, "gain_ceiling_ratio", 3}};
    const int64_t looked = add(store, id, "a3", "profile", knobs("2", "1", "false"),
                               {"--micro-batch-size 2"}, look, 600'000'000);
    const int64_t slower = add(store, id, "a4", "scale", knobs("1", "2", "false"),
                               {"--tensor-model-parallel-size 2"}, {}, 740'000'000);
    store::TrialResult ran;
    ran.metrics = {{-1, "compute_wall_ratio", 0.9}};
    if (!command.empty()) ran.texts = {{"command", command}, {"command_folder", folder}};
    const int64_t winner =
        add(store, id, "a5", "retune", knobs("2", "1", "true"), changes, ran, 480'000'000);
    store.set_landmarks(id, {winner, first, first});
    const auto decide = [&](int64_t ordinal, store::DecisionKind kind, int64_t trial,
                            int64_t baseline, std::optional<double> gain, const json& changed) {
      store::DecisionRow row;
      row.sweep_id = id;
      row.ordinal = ordinal;
      row.phase = "retune";
      row.kind = kind;
      row.trial_id = trial;
      row.baseline_trial_id = baseline;
      row.gain_ratio = gain;
      row.text = "text";
      row.evidence_json = json{{"knobs", changed}}.dump();
      if (!changed.empty()) {
        row.knob = changed.begin().key();
        row.value_before = changed.begin().value()["before"];
        row.value_after = changed.begin().value()["after"];
      }
      store.add_decision(row);
    };
    const json two = {{"micro_batch_size", {{"before", "2"}, {"after", "1"}}},
                      {"tp", {{"before", "1"}, {"after", "2"}}}};
    decide(1, store::DecisionKind::rejected, slower, larger, -0.189, two);
    decide(2, store::DecisionKind::wall, looked, larger, std::nullopt, json::object());
    decide(3, store::DecisionKind::kept, winner, larger, 0.25, kept);
    store.finish_sweep(id, status);
  }
};

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::string kFlagsButton = "data-copy=\"copy-flags\"";
const std::string kTrialButton = "data-copy=\"copy-trial\"";

}  // namespace

BOOST_AUTO_TEST_CASE(the_winner_stands_in_the_words_of_the_users_command) {
  const std::string page = EngineSweepPage().text();
  BOOST_TEST(holds(page, "<span>The winner in the words of your command</span>"));
  BOOST_TEST(holds(page,
                   "<pre id=\"copy-flags\" tabindex=\"0\">--micro-batch-size "
                   "2\n--overlap-grad-reduce\nNCCL_ALGO=Ring\n</pre>"));
  BOOST_TEST(holds(page, kFlagsButton));
  // moetune cannot run such a trial alone; its command can.
  BOOST_TEST(!holds(page, "moetune trial"));
  BOOST_TEST(!holds(page, "winner.json"));
  BOOST_TEST(holds(page, "Repeat the winning trial alone"));
  BOOST_TEST(holds(page, "<span>Its command, for a shell in the sweep's folder</span>"));
  BOOST_TEST(holds(page,
                   ">export NCCL_ALGO=Ring; python pretrain.py --micro-batch-size 2 "
                   "--overlap-grad-reduce --exit-interval 15</pre>"));
  BOOST_TEST(holds(page, kTrialButton));
  BOOST_TEST(!holds(page, "put the folders in first"));
}

BOOST_AUTO_TEST_CASE(folders_of_the_command_are_asked_for) {
  EngineSweepPage other;
  other.folder = "/home/somebody/work/jobs";
  other.command = "python /data/pretrain.py --log /home/somebody/work/jobs/a/b.log";
  const std::string page = other.text();
  BOOST_TEST(holds(page, "the folder <code>jobs</code>, seen from the sweep"));
  BOOST_TEST(holds(page, ">python pretrain.py --log a/b.log</pre>"));
  BOOST_TEST(holds(page, "put the folders in first. <code>moetune show DB 5</code>"));
  // What somebody has run by hand has no command.
  other.command.clear();
  const std::string told = other.text();
  BOOST_TEST(!holds(told, "Repeat the winning trial alone"));
  BOOST_TEST(!holds(told, "moetune trial"));
}

// A shell would do with them what nobody has seen.
BOOST_AUTO_TEST_CASE(what_a_stranger_has_stored_is_not_copied) {
  for (const std::string hostile : {"--a \x1b[2J", "--a\nrm -rf x", "--a /home/somebody/data"}) {
    EngineSweepPage other;
    other.changes[0] = hostile;
    const std::string page = other.text();
    BOOST_TEST(!holds(page, kFlagsButton), hostile);
    BOOST_TEST(holds(page, "Not to be copied from here"), hostile);
    BOOST_TEST(!holds(page, "\nrm -rf x"));
    BOOST_TEST(!holds(page, "/home/somebody"));
  }
  EngineSweepPage other;
  other.command = "python a.py\nrm -rf x\x1b";
  const std::string page = other.text();
  BOOST_TEST(!holds(page, kTrialButton));
  BOOST_TEST(!holds(page, "\nrm -rf x"));
  BOOST_TEST(holds(page, "The stored command holds control characters"));
}

BOOST_AUTO_TEST_CASE(a_command_that_was_best_as_it_is_says_so) {
  EngineSweepPage other;
  other.changes = json::array();
  const std::string page = other.text();
  BOOST_TEST(holds(page, "The winner is your command as it is"));
}

// The run that was compared was not profiled, another of the same settings was.
BOOST_AUTO_TEST_CASE(the_ceiling_of_a_look_stands_beside_the_gain) {
  BOOST_TEST(holds(EngineSweepPage().text(),
                   "<tr><td><a href=\"#trial-2\">#2</a> → <a href=\"#trial-5\">#5</a></td><td>"
                   "<span class=\"badge wall wall-communication\">communication</span></td><td>"
                   "overlap_<wbr>grad_<wbr>reduce</td><td class=\"num\">75.0 % of the step, "
                   "+300.0 %</td><td class=\"num\">+25.0 %</td></tr>"));
}

BOOST_AUTO_TEST_CASE(a_decision_shows_all_that_changed) {
  BOOST_TEST(holds(EngineSweepPage().text(),
                   "<td>micro_batch_size 2 → 1, tp 1 → 2</td><td class=\"num\">−18.9 %</td>"));
}

// Where a value is long, too: the first change alone is not what gained.
BOOST_AUTO_TEST_CASE(the_strip_names_all_that_changed) {
  EngineSweepPage other;
  other.kept = {{"layout", {{"before", std::string(60, 'x')}, {"after", "new"}}},
                {"tp", {{"before", "1"}, {"after", "2"}}}};
  const std::string page = other.text();
  BOOST_TEST(holds(page, "<span class=\"what\">layout → new,<wbr> tp 1 → 2</span>"));
}

BOOST_AUTO_TEST_CASE(statuses_are_called_as_in_their_table) {
  using spec::name_of;
  using spec::TrialStatus;
  BOOST_TEST(store::kTrialRunning == name_of(TrialStatus::running));
  BOOST_TEST(store::kTrialInvalid == name_of(TrialStatus::invalid));
  BOOST_TEST(store::kTrialPruned == name_of(TrialStatus::pruned));
  BOOST_TEST(store::kTrialInterrupted == name_of(TrialStatus::interrupted));
}

BOOST_AUTO_TEST_CASE(parts_of_memory_that_no_log_tells_are_not_zero) {
  const std::string page = EngineSweepPage().text();
  BOOST_TEST(!holds(page, "0 B<"));
  const size_t start = page.find("<section id=\"memory\"");
  const std::string section = page.substr(start, page.find("</section>", start) - start);
  BOOST_TEST(holds(section, "<tr><td>0</td><td class=\"num\">44.0 GiB</td><td><code>"), section);
  BOOST_TEST(!holds(section, "weights"));
  const size_t data = section.find("id=\"data-memory\">") + 17;
  const json drawn = json::parse(section.substr(data, section.find("</script>", data) - data));
  BOOST_TEST(drawn["groups"] == json({"peak, its parts are not told"}));
  BOOST_TEST(drawn["trials"][0]["capacity"].is_null());
  BOOST_TEST(drawn["trials"][0]["ranks"][0]["measured"] == json({int64_t{44} << 30}));
}

BOOST_AUTO_TEST_CASE(a_sweep_that_is_told_by_hand_waits) {
  EngineSweepPage other;
  other.status = store::SearchStatus::interrupted;
  BOOST_TEST(holds(other.text(), "This sweep is <strong>interrupted</strong>"));
  other.command.clear();
  BOOST_TEST(holds(other.text(), "This sweep is <strong>waiting for tell</strong>"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::reports
