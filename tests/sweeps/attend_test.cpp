// The one loop that stays with a process: it ends by itself, by the clock, or because the caller
// has seen enough.
#include "sweeps/processes/attend.h"

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <string>

#include "sweeps/processes/poll.h"
#include "sweeps/processes/printed_output.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

struct Attending {
  Attention attention;

  Attending() {
    attention.look = milliseconds(5);
    attention.grace = milliseconds(0);
  }
  [[nodiscard]] PrintedOutput run(const std::string& script) const {
    Command command;
    command.arguments = {"/bin/sh", "-c", script};
    return run_and_read(command, attention);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(attending, Attending)

BOOST_AUTO_TEST_CASE(what_a_command_prints_and_how_it_ends) {
  const PrintedOutput printed = run("echo out; echo err >&2; exit 3");
  BOOST_TEST(printed.out == "out\n");
  BOOST_TEST(printed.err == "err\n");
  BOOST_TEST(printed.end.process.code == 3);
  BOOST_TEST((printed.end.why == WhyEnded::by_itself));
}

BOOST_AUTO_TEST_CASE(the_deadline_ends_it) {
  attention.deadline = steady_clock::now() + milliseconds(500);
  const PrintedOutput printed = run("echo begun; sleep 60");
  BOOST_TEST((printed.end.why == WhyEnded::out_of_time));
  BOOST_TEST(printed.end.process.was_ended_by_us);
  BOOST_TEST(printed.out == "begun\n");
}

BOOST_AUTO_TEST_CASE(whoever_looks_may_give_it_up) {
  int num_looks = 0;
  attention.on_look = [&] { return ++num_looks < 3; };
  const PrintedOutput printed = run("sleep 60");
  BOOST_TEST((printed.end.why == WhyEnded::given_up));
  BOOST_TEST(num_looks == 3);
}

BOOST_AUTO_TEST_CASE(interrupts_that_came_before_do_not_count_unless_asked_to) {
  const InterruptGuard guard;
  std::raise(SIGINT);
  attention.num_interrupts_before = num_interrupts();
  BOOST_TEST((run("exit 0").end.why == WhyEnded::by_itself));
  attention.num_interrupts_before = 0;
  BOOST_TEST((run("sleep 60").end.why == WhyEnded::interrupted));
}

BOOST_AUTO_TEST_CASE(polling_stops_at_the_deadline) {
  int num_looks = 0;
  BOOST_TEST(!poll_until(steady_clock::now() + milliseconds(20), milliseconds(1), [&] {
    ++num_looks;
    return false;
  }));
  BOOST_TEST(num_looks > 1);
  // Looked at once even when it is too late.
  BOOST_TEST(poll_until(steady_clock::now() - seconds(1), milliseconds(1), [] { return true; }));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
