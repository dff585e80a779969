// What this build lacks says so: the stubs hand out nothing, and a trial that asks for more than
// the build can do is refused.
#include <boost/test/unit_test.hpp>

#include "engine/comm/mpi_comm.h"
#include "engine/run_trial.h"
#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "profiler/cupti_recorder.h"
#include "tests/engine/training_fixture.h"

namespace moetune::engine {
namespace {

BOOST_AUTO_TEST_SUITE(backends)

BOOST_AUTO_TEST_CASE(stubs_hand_out_nothing) {
  BOOST_TEST(!has_mpi());
  BOOST_TEST((make_mpi_communicator(spec::Group::world, {}, 0) == nullptr));
  BOOST_TEST((profiler::make_cupti_recorder(0) != nullptr) == profiler::has_cupti());
}

BOOST_AUTO_TEST_CASE(a_backend_that_cannot_train_is_refused) {
  spec::TrialSpec trial = testing::tiny_trial(testing::tiny_model());
  trial.backend = "cuda";
  BOOST_CHECK_EXCEPTION(run_trial(trial, "unused"), base::UsageError, [](const auto& error) {
    const std::string text = error.what();
    BOOST_TEST_MESSAGE(text);
    return text.find(kernels::has_cuda() ? "backend 'cuda' is built"
                                         : "backend 'cuda' cannot run") != std::string::npos &&
           text.find("it would be right: cpu") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::engine
