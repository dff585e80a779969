// What this build lacks says so: the stubs hand out nothing, and a trial that asks for more than
// the build can do is refused.
#include <fmt/format.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>

#include "engine/run_trial.h"
#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "profiler/device/cupti_recorder.h"
#include "tests/engine/training_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(backends)

namespace {

BOOST_AUTO_TEST_CASE(stubs_hand_out_nothing) {
  BOOST_TEST((profiler::make_cupti_recorder(0) != nullptr) == profiler::has_cupti());
}

BOOST_AUTO_TEST_CASE(a_backend_that_cannot_train_is_refused) {
  spec::ModelSpec model = testing::tiny_model();
  model.vocab_size = 256;
  spec::TrialSpec trial = testing::tiny_trial(model);
  trial.data_path = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/data/quickstart.txt";
  trial.backend = spec::BackendKind::cuda;
  trial.clock = spec::ClockMode::wall;
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("moetune_backends_test-{}", getpid());
  std::string why_none;
  if (!kernels::has_cuda()) {
    BOOST_CHECK_EXCEPTION(run_trial(trial, folder), base::UsageError, [](const auto& error) {
      const std::string text = error.what();
      return text.find("backend 'cuda' cannot run in this build") != std::string::npos &&
             text.find("it would be right: cpu") != std::string::npos;
    });
  } else if (kernels::cuda_devices(why_none).empty()) {
    BOOST_CHECK_EXCEPTION(run_trial(trial, folder), base::NoDevice, [&](const auto& error) {
      return std::string(error.what()).find(why_none) != std::string::npos;
    });
  }
  std::filesystem::remove_all(folder);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
