// Entry of the tests that need a GPU: without one they are skipped, saying why.
#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <string>

#include "kernels/backend.h"

bool init_unit_test() { return true; }

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  std::string why_none;
  if (moetune::kernels::cuda_devices(why_none).empty()) {
    std::printf("skipped, no GPU: %s\n", why_none.c_str());
    return kSkipped;
  }
  return boost::unit_test::unit_test_main(&init_unit_test, argc, argv);
}
