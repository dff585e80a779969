// Full recomputation of the first layers of a stage, of which there may be none.
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(recompute_of_dialects)

namespace {

using samples::contains;

struct OfDialect {
  Dialect dialect;
  const char* text;     ///< behind `bare`
  const char* bare;     ///< without a word of recomputation
  const char* without;  ///< of what is exported again
};

const OfDialect kNone[] = {
    {Dialect::megatron_lm,
     " --recompute-granularity full --recompute-method block --recompute-num-layers 0", "--bf16",
     "--recompute"},
    {Dialect::megatron_bridge,
     " model.recompute_granularity=full model.recompute_method=block model.recompute_num_layers=0",
     "model.tensor_model_parallel_size=1", "model.recompute_method=block"},
    {Dialect::primus,
     "recompute_granularity: full # full, selective\nrecompute_method: block\n"
     "recompute_num_layers: 0\nrecompute_layer_ids: null\n",
     "micro_batch_size: 2\n", "recompute_method: block"},
};

}  // namespace

BOOST_AUTO_TEST_CASE(the_first_none_of_the_layers_are_none) {
  for (const OfDialect& row : kNone) {
    BOOST_TEST_CONTEXT(row.text) {
      const RunConfig run = import_run(std::string(row.bare) + row.text, row.dialect);
      BOOST_TEST(run.knobs.recompute.empty());
      BOOST_TEST((run.knobs == import_run(row.bare, row.dialect).knobs));
      BOOST_TEST(std::ranges::any_of(run.notes, [](const std::string& note) {
        return contains(note, "block: nothing is recomputed");
      }));
      const std::string exported = export_run(run, row.dialect);
      BOOST_TEST(!contains(exported, row.without), exported);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_first_one_of_the_layers_is_one) {
  const RunConfig run = import_run(
      "--bf16 --recompute-granularity full --recompute-method block --recompute-num-layers 1",
      Dialect::megatron_lm);
  BOOST_TEST(run.knobs.recomputes_block());
  BOOST_TEST(run.knobs.recompute_num_layers == 1);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
