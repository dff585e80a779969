// 1F1B over many pipelines: complete, in a legal order, with the memory it promises, and without
// deadlock.
#include "engine/plan/schedules/schedule.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>
#include <tuple>

#include "kernels/base/error.h"

namespace moetune::plan {

BOOST_AUTO_TEST_SUITE(schedule)

BOOST_AUTO_TEST_CASE(each_micro_batch_goes_forward_then_backward_once) {
  for (int pp = 1; pp <= 5; ++pp) {
    for (int stage = 0; stage < pp; ++stage) {
      for (int64_t m = 0; m <= 9; ++m) {
        BOOST_TEST_CONTEXT("pp " << pp << " stage " << stage << " m " << m) {
          std::set<int64_t> live;
          std::set<int64_t> done;
          size_t peak = 0;
          for (const ScheduleStep& step : one_f_one_b(pp, stage, m)) {
            if (step.is_forward) {
              BOOST_TEST(live.insert(step.micro_batch).second);
              BOOST_TEST(!done.contains(step.micro_batch));
            } else {
              BOOST_TEST(live.erase(step.micro_batch) == 1u);
              BOOST_TEST(done.insert(step.micro_batch).second);
            }
            peak = std::max(peak, live.size());
          }
          BOOST_TEST(live.empty());
          BOOST_TEST(static_cast<int64_t>(done.size()) == m);
          BOOST_TEST(static_cast<int64_t>(peak) == std::min<int64_t>(pp - stage, m));
        }
      }
    }
  }
}

/// Plays all stages together: a forward needs the stage before, a backward the stage after.
BOOST_AUTO_TEST_CASE(stages_never_wait_for_each_other_in_a_circle) {
  constexpr int kStages = 4;
  for (int64_t m = 1; m <= 8; ++m) {
    std::vector<std::vector<ScheduleStep>> plans;
    for (int stage = 0; stage < kStages; ++stage) plans.push_back(one_f_one_b(kStages, stage, m));
    std::vector<size_t> next(kStages, 0);
    std::vector<int64_t> forwards(kStages, 0);
    std::vector<int64_t> backwards(kStages, 0);
    bool has_moved = true;
    while (has_moved) {
      has_moved = false;
      for (size_t s = 0; s < kStages; ++s) {
        if (next[s] == plans[s].size()) continue;
        const ScheduleStep step = plans[s][next[s]];
        const bool is_ready = step.is_forward    ? s == 0 || forwards[s - 1] > step.micro_batch
                              : s + 1 == kStages ? forwards[s] > step.micro_batch
                                                 : backwards[s + 1] > step.micro_batch;
        if (!is_ready) continue;
        ++(step.is_forward ? forwards : backwards)[s];
        ++next[s];
        has_moved = true;
      }
    }
    for (size_t s = 0; s < kStages; ++s) BOOST_TEST(next[s] == plans[s].size());
  }
}

/// The number in the order of the model of a step's virtual stage.
size_t number_of(int pp, int stage, const ScheduleStep& step) {
  return static_cast<size_t>(step.virtual_stage * pp + stage);
}

BOOST_AUTO_TEST_CASE(interleaved_stages_run_everything_once_and_end) {
  for (int pp = 2; pp <= 4; ++pp) {
    for (int vpp = 1; vpp <= 3; ++vpp) {
      for (int64_t m = pp; m <= 3 * pp; m += pp) {
        const auto num_stages = static_cast<size_t>(pp * vpp);
        std::vector<std::vector<ScheduleStep>> plans;
        for (int stage = 0; stage < pp; ++stage) {
          plans.push_back(interleaved(pp, vpp, stage, m));
          BOOST_TEST(plans.back().size() == static_cast<size_t>(2 * m * vpp));
        }
        // A forward needs the virtual stage before, a backward the one behind.
        std::vector<std::set<int64_t>> forward(num_stages);
        std::vector<std::set<int64_t>> backward(num_stages);
        std::vector<size_t> next(static_cast<size_t>(pp), 0);
        bool has_moved = true;
        while (has_moved) {
          has_moved = false;
          for (size_t s = 0; s < plans.size(); ++s) {
            if (next[s] == plans[s].size()) continue;
            const ScheduleStep step = plans[s][next[s]];
            const size_t k = number_of(pp, static_cast<int>(s), step);
            const bool is_ready =
                step.is_forward       ? k == 0 || forward[k - 1].contains(step.micro_batch)
                : k + 1 == num_stages ? forward[k].contains(step.micro_batch)
                                      : backward[k + 1].contains(step.micro_batch);
            if (!is_ready) continue;
            BOOST_TEST((step.is_forward ? forward : backward)[k].insert(step.micro_batch).second);
            ++next[s];
            has_moved = true;
          }
        }
        BOOST_TEST_CONTEXT("pp " << pp << " vpp " << vpp << " m " << m) {
          for (size_t k = 0; k < num_stages; ++k) {
            BOOST_TEST(static_cast<int64_t>(backward[k].size()) == m);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(impossible_stages_are_refused) {
  BOOST_CHECK_THROW(interleaved(2, 2, 0, 3), base::Error);
  BOOST_CHECK_THROW(interleaved(2, 2, 2, 4), base::Error);

  BOOST_CHECK_THROW(one_f_one_b(2, 2, 4), base::Error);
  BOOST_CHECK_THROW(one_f_one_b(0, 0, 4), base::Error);
  BOOST_CHECK_THROW(one_f_one_b(2, 0, -1), base::Error);
}

/// How many messages to one peer in one direction lie unread at most, where a forward takes 1, a
/// backward `backward` and a message nothing, and no sender waits.
int most_unread(int pp, int vpp, int64_t num_micro_batches, int backward) {
  using Message = std::tuple<bool, int64_t, int>;  // forward, micro-batch, virtual stage
  std::vector<std::vector<ScheduleStep>> plans;
  for (int rank = 0; rank < pp; ++rank) {
    plans.push_back(vpp == 1 ? one_f_one_b(pp, rank, num_micro_batches)
                             : interleaved(pp, vpp, rank, num_micro_batches));
  }
  std::map<Message, int64_t> sent;
  std::map<std::tuple<int, int, bool>, std::vector<std::pair<int64_t, int>>> events;
  std::vector<size_t> next(plans.size(), 0);
  std::vector<int64_t> clock(plans.size(), 0);
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (int rank = 0; rank < pp; ++rank) {
      const auto r = static_cast<size_t>(rank);
      while (next[r] < plans[r].size()) {
        const ScheduleStep step = plans[r][next[r]];
        const int stage = step.virtual_stage * pp + rank;
        const int direction = step.is_forward ? 1 : -1;
        const int before = stage - direction;
        const int behind = stage + direction;
        const auto is_stage = [&](int number) { return number >= 0 && number < pp * vpp; };
        if (is_stage(before)) {
          const auto message = sent.find({step.is_forward, step.micro_batch, before});
          if (message == sent.end()) break;
          clock[r] = std::max(clock[r], message->second);
          events[{before % pp, rank, step.is_forward}].emplace_back(clock[r], -1);
        }
        clock[r] += step.is_forward ? 1 : backward;
        if (is_stage(behind)) {
          sent[{step.is_forward, step.micro_batch, stage}] = clock[r];
          events[{rank, behind % pp, step.is_forward}].emplace_back(clock[r], 1);
        }
        ++next[r];
        has_moved = true;
      }
    }
  }
  int most = 0;
  for (auto& [channel, list] : events) {
    // What comes and is read at once has been there.
    std::ranges::sort(list, [](const auto& a, const auto& b) {
      return std::pair(a.first, -a.second) < std::pair(b.first, -b.second);
    });
    int unread = 0;
    for (const auto& [time, change] : list) most = std::max(most, unread += change);
  }
  return most;
}

BOOST_AUTO_TEST_CASE(a_schedule_has_the_slots_that_it_can_use) {
  for (int pp = 2; pp <= 12; ++pp) {
    for (int vpp = 1; vpp <= 3; ++vpp) {
      int most = 0;
      for (const int backward : {1, 2, 3}) {
        for (const int rounds : {1, 2, 5}) {
          most = std::max(most, most_unread(pp, vpp, rounds * pp, backward));
        }
      }
      BOOST_TEST_CONTEXT("pp " << pp << " vpp " << vpp) {
        BOOST_TEST(most > 0);
        BOOST_TEST(message_slots(pp, vpp) >= most);
        // No more than that, but for the one that is being read.
        BOOST_TEST(message_slots(pp, vpp) <= most + 1);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::plan
