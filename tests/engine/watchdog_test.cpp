// The watchdog expires once, names what it waited for, and leaves those alone that move or end. No
// case depends on how fast the machine is: only on a watchdog that never expires would it hang.
#include "engine/watchdog.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(watchdog)

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// What a watchdog has said, on its own thread.
class Said {
 public:
  struct Line {
    std::string what;
    Clock::time_point time;
  };

  [[nodiscard]] std::function<void(const std::string&)> listener() {
    return [this](const std::string& what) {
      const std::scoped_lock lock(mutex_);
      all_.push_back({what, Clock::now()});
      changed_.notify_all();
    };
  }
  /// Waits until something has been said.
  Line first() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !all_.empty(); });
    return all_.front();
  }
  size_t count() {
    const std::scoped_lock lock(mutex_);
    return all_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Line> all_;
};

BOOST_AUTO_TEST_CASE(expires_when_nobody_ever_beats) {
  constexpr milliseconds kLimit{20};
  Said said;
  const Clock::time_point begin = Clock::now();
  const Watchdog dog(kLimit, said.listener());
  const Said::Line line = said.first();
  BOOST_TEST(line.what == "the start");
  BOOST_TEST((line.time - begin >= kLimit));
}

BOOST_AUTO_TEST_CASE(does_not_expire_before_the_limit_after_a_beat) {
  constexpr milliseconds kLimit{100};
  Said said;
  const Clock::time_point begin = Clock::now();
  Watchdog dog(kLimit, said.listener());
  std::vector<Clock::time_point> beats;
  const Clock::time_point end = Clock::now() + 4 * kLimit;
  while (Clock::now() < end) {
    beats.push_back(Clock::now());
    dog.beat(std::to_string(beats.size() - 1));
    std::this_thread::sleep_for(milliseconds(1));
  }
  // Of the last beat, unless this thread was kept from beating for long enough before.
  const Said::Line line = said.first();
  const Clock::time_point since =
      line.what == "the start" ? begin : beats.at(std::stoul(line.what));
  BOOST_TEST((line.time - since >= kLimit));
}

BOOST_AUTO_TEST_CASE(names_what_was_to_come) {
  std::string what;
  // Again with more time when this thread was kept from beating even once.
  for (milliseconds limit{50}; what != "step 2 of 3" && limit < std::chrono::seconds(5);
       limit *= 2) {
    Said said;
    Watchdog dog(limit, said.listener());
    dog.beat("step 1 of 3");
    dog.beat("step 2 of 3");
    what = said.first().what;
  }
  BOOST_TEST(what == "step 2 of 3");
}

BOOST_AUTO_TEST_CASE(expires_once) {
  constexpr milliseconds kLimit{10};
  Said said;
  {
    Watchdog dog(kLimit, said.listener());
    said.first();
    // Neither time nor beats make it speak again.
    for (int i = 0; i < 10; ++i) {
      dog.beat("what comes too late");
      std::this_thread::sleep_for(kLimit);
    }
  }
  BOOST_TEST(said.count() == 1);
  BOOST_TEST(said.first().what == "the start");
}

BOOST_AUTO_TEST_CASE(ends_when_it_is_destroyed) {
  Said said;
  {
    Watchdog dog(std::chrono::hours(24), said.listener());
    dog.beat("what nobody waits for");
    std::this_thread::sleep_for(milliseconds(50));  // so that it is most likely asleep
  }
  { const Watchdog unused(std::chrono::hours(24), said.listener()); }
  BOOST_TEST(said.count() == 0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
