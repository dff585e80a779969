// make_fixture DB HTML [hostile|hunts|threads|nccl|fake]: a made-up sweep and its report, to look
// at and for the browser test; with a communicator, one on a GPU; with `hunts`, hunts without a
// sweep.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "reports/report.h"
#include "tests/reports/fixture_helper.h"
#include "tests/reports/hunt_fixture_helper.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("make_fixture DB HTML [hostile|hunts|threads|nccl|fake]\n", stderr);
    return 2;
  }
  try {
    moetune::tests::FixtureOptions options;
    options.has_hunts = true;
    const std::string kind = argc > 3 ? argv[3] : "";
    const bool is_hostile = kind == "hostile";
    options.hostile = is_hostile ? moetune::tests::kHostileText : "";
    options.communicator = is_hostile ? "threads" : kind;
    std::filesystem::remove(argv[1]);
    if (kind == "hunts") {
      moetune::store::Store store = moetune::store::Store::open(argv[1]);
      moetune::tests::add_hunts(store);
    } else {
      moetune::tests::make_fixture(argv[1], options);
    }
    const int64_t size = moetune::reports::write_report(argv[1], argv[2]);
    std::printf("%s: %lld bytes\n", argv[2], static_cast<long long>(size));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_fixture: %s\n", error.what());
    return 1;
  }
}
