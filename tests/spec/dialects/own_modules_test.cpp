// Megatron-Core's own modules in the place of Transformer Engine's, `--transformer-impl local`.
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
namespace {

using samples::contains;

constexpr Dialect kLm = Dialect::megatron_lm;

bool has_note(const RunConfig& run) {
  return std::ranges::any_of(
      run.notes, [](const std::string& note) { return contains(note, "keeps the scores"); });
}

BOOST_AUTO_TEST_SUITE(own_modules)

BOOST_AUTO_TEST_CASE(own_attention_keeps_scores) {
  const RunConfig local = import_run("--bf16 --transformer-impl local", kLm);
  BOOST_TEST(!local.knobs.fused_attention);
  BOOST_TEST(!local.knobs.moe_grouped_gemm);
  BOOST_TEST(has_note(local));
  const RunConfig grouped = import_run(
      "--bf16 --transformer-impl local --moe-grouped-gemm --attention-backend flash", kLm);
  BOOST_TEST(!grouped.knobs.fused_attention);
  BOOST_TEST(grouped.knobs.moe_grouped_gemm);
  const RunConfig engine = import_run("--bf16 --transformer-impl transformer_engine", kLm);
  BOOST_TEST(engine.knobs.fused_attention);
  BOOST_TEST(!has_note(engine));
  // Others are nobody's here: they go along.
  const RunConfig other = import_run("--bf16 --transformer-impl inference_optimized", kLm);
  BOOST_TEST(other.knobs.fused_attention);
  BOOST_TEST(contains(export_run(other, kLm), "--transformer-impl inference_optimized"));
}

// It goes along; attention without scores takes Transformer Engine's.
BOOST_AUTO_TEST_CASE(another_attention_has_other_modules) {
  const RunConfig local = import_run("--bf16 --transformer-impl local", kLm);
  const std::string as_it_was = export_run(local, kLm);
  BOOST_TEST(contains(as_it_was, "--transformer-impl local"), as_it_was);
  BOOST_TEST(!import_run(as_it_was, kLm).knobs.fused_attention);
  for (const Dialect dialect : {Dialect::megatron_bridge, Dialect::primus}) {
    const std::string theirs = export_run(local, dialect);
    const RunConfig again = import_run(theirs, dialect);
    BOOST_TEST(again.has_own_modules, theirs);
    BOOST_TEST(!again.knobs.fused_attention, theirs);
  }
  RunConfig fused = local;
  fused.knobs.fused_attention = true;
  const std::string changed = export_run(fused, kLm);
  BOOST_TEST(!contains(changed, "--transformer-impl"), changed);
  BOOST_TEST(import_run(changed, kLm).knobs.fused_attention, changed);
  const std::vector<SettingChange> changes = changed_settings(local, fused, kLm);
  BOOST_TEST(std::ranges::any_of(changes, [](const SettingChange& change) {
    return change.key == "--transformer-impl" && !change.after;
  }));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::spec::dialects
