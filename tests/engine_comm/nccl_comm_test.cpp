// Collectives over NCCL's calls, against what they should give: every group of several layouts,
// all dtypes, values in host memory, uneven all-to-alls, a pipeline.
#include "engine/comm/nccl_comm.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>

#include "engine/plan/schedules/schedule.h"
#include "tests/engine_comm/nccl_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(nccl_comm)

namespace {

using plan::Group;
using testing::DeviceArray;
using testing::NcclRank;
using testing::NcclTest;

const std::vector<Group> kGroups = {Group::world, Group::dp_cp, Group::cp,        Group::ep,
                                    Group::edp,   Group::pp,    Group::embedding, Group::tp,
                                    Group::tp_cp, Group::stage};

const std::vector<plan::Layout> kLayouts = {{},
                                            {.dp = 2, .ep = 2},
                                            {.dp = 3},
                                            {.cp = 2, .dp = 2, .ep = 2},
                                            {.pp = 3},
                                            {.dp = 2, .pp = 2, .ep = 2},
                                            {.tp = 2},
                                            {.tp = 2, .cp = 2, .ep = 4},
                                            {.tp = 2, .dp = 2, .pp = 2, .etp = 2}};

void require(bool condition, const std::string& what) {
  if (!condition) throw base::Error("wrong: " + what);
}

/// Element i of what `rank` brings along.
double value(int rank, size_t i) { return rank * 3 + static_cast<double>(i) - 4; }

template <typename T>
T as(double x) {
  return static_cast<T>(x);
}
template <>
uint16_t as<uint16_t>(double x) {  // bf16
  return base::to_bf16(static_cast<float>(x));
}

template <typename T>
void check_group(NcclRank& rank, Group group, base::DType dtype) {
  const std::unique_ptr<Communicator> comm = rank.world.communicator(group);
  const std::vector<int> ranks = rank.layout.group_ranks(group, rank.rank);
  const bool is_member = std::find(ranks.begin(), ranks.end(), rank.rank) != ranks.end();
  require((comm != nullptr) == is_member, "membership");
  if (!comm) return;
  const size_t n = ranks.size();
  require(comm->size() == static_cast<int>(n), "size");
  require(ranks[static_cast<size_t>(comm->rank())] == rank.rank, "rank");
  constexpr size_t kCount = 5;
  constexpr auto kBytes = static_cast<int64_t>(kCount * sizeof(T));
  const auto others = static_cast<int64_t>(n) - 1;
  const auto own_place = static_cast<size_t>(comm->rank()) * kCount;

  std::vector<T> own(kCount);
  std::vector<T> all(n * kCount);
  std::vector<T> whole(n * kCount);
  std::vector<T> sum(n * kCount);
  for (size_t i = 0; i < kCount; ++i) own[i] = as<T>(value(rank.rank, i));
  for (size_t i = 0; i < n * kCount; ++i) {
    all[i] = as<T>(value(ranks[i / kCount], i % kCount));
    whole[i] = as<T>(value(rank.rank, i));
    double total = 0;
    for (const int other : ranks) total += value(other, i);
    sum[i] = as<T>(total);
  }

  const DeviceArray<T> gathered(std::vector<T>(n * kCount));
  const DeviceArray<T> mine(own);
  const CommTiming first = comm->all_gather(mine.data(), gathered.data(), kBytes, 0);
  require(gathered.values() == all, "all_gather");
  require(first.sequence == 0 && first.sent_bytes == kBytes * others, "its timing");
  require(first.end_ns > 0, "its end");

  const DeviceArray<T> in_place(std::vector<T>(n * kCount));
  std::copy(own.begin(), own.end(), in_place.data() + own_place);
  comm->all_gather(in_place.data() + own_place, in_place.data(), kBytes, 0);
  require(in_place.values() == all, "all_gather in place");

  const DeviceArray<T> source(whole);
  const CommTiming third = comm->reduce_scatter(source.data(), source.data() + own_place,
                                                static_cast<int64_t>(kCount), dtype, 0);
  const std::vector<T> reduced(source.data() + own_place, source.data() + own_place + kCount);
  require(reduced == std::vector<T>(sum.begin() + static_cast<int64_t>(own_place),
                                    sum.begin() + static_cast<int64_t>(own_place + kCount)),
          "reduce_scatter");
  require(third.sequence == 2 && third.sent_bytes == kBytes * others, "its timing");

  const DeviceArray<T> data(whole);
  const auto numel = static_cast<int64_t>(n * kCount);
  const CommTiming fourth = comm->all_reduce(data.data(), numel, dtype, 0);
  require(data.values() == sum, "all_reduce");
  require(fourth.sent_bytes == 2 * kBytes * others, "its timing");

  // The same with values on the host.
  std::vector<T> on_host = whole;
  comm->all_reduce(on_host.data(), numel, dtype, 0);
  require(on_host == sum, "all_reduce of host values");
  std::vector<T> gathered_on_host(n * kCount);
  comm->all_gather(own.data(), gathered_on_host.data(), kBytes, 0);
  require(gathered_on_host == all, "all_gather of host values");
  std::vector<T> reduced_on_host(kCount);
  comm->reduce_scatter(whole.data(), reduced_on_host.data(), static_cast<int64_t>(kCount), dtype,
                       0);
  require(reduced_on_host == reduced, "reduce_scatter of host values");
}

/// Rows that `from` has for `to`: some, none, many.
int64_t rows_between(int from, int to) { return (from * 5 + to * 3) % 4; }

// Every row says from whom, to whom, the how manieth and of which lane it is.
void check_all_to_all(NcclRank& rank, Group group, bool is_on_host) {
  const std::unique_ptr<Communicator> comm = rank.world.communicator(group);
  const int n = comm->size();
  std::vector<int64_t> send_rows;
  std::vector<int64_t> recv_rows;
  for (int peer = 0; peer < n; ++peer) {
    send_rows.push_back(rows_between(comm->rank(), peer));
    recv_rows.push_back(rows_between(peer, comm->rank()));
  }
  const std::vector<int64_t> widths = {3, 1, 8};  // int32 per row of each lane
  std::vector<std::vector<int32_t>> sent(widths.size());
  std::vector<std::vector<int32_t>> expected(widths.size());
  const auto fill = [&](std::vector<int32_t>& rows, int from, int to, size_t lane) {
    for (int64_t row = 0; row < rows_between(from, to); ++row) {
      for (int64_t col = 0; col < widths[lane]; ++col) {
        rows.push_back(static_cast<int32_t>(from * 1000000 + to * 10000 + row * 100 + col * 10 +
                                            static_cast<int64_t>(lane)));
      }
    }
  };
  int64_t sent_rows = 0;
  for (size_t lane = 0; lane < widths.size(); ++lane) {
    for (int peer = 0; peer < n; ++peer) {
      fill(sent[lane], comm->rank(), peer, lane);
      fill(expected[lane], peer, comm->rank(), lane);
      if (lane == 0 && peer != comm->rank()) sent_rows += rows_between(comm->rank(), peer);
    }
  }
  std::vector<DeviceArray<int32_t>> from;
  std::vector<DeviceArray<int32_t>> to;
  std::vector<std::vector<int32_t>> host_to;
  std::vector<AllToAllLane> lanes;
  for (size_t lane = 0; lane < widths.size(); ++lane) {
    from.emplace_back(sent[lane]);
    to.emplace_back(std::vector<int32_t>(expected[lane].size()));
    host_to.emplace_back(expected[lane].size());
  }
  for (size_t lane = 0; lane < widths.size(); ++lane) {
    lanes.push_back({is_on_host ? sent[lane].data() : from[lane].data(),
                     is_on_host ? host_to[lane].data() : to[lane].data(), widths[lane] * 4});
  }
  const CommTiming timing = comm->all_to_all(lanes, send_rows, recv_rows, 0);
  for (size_t lane = 0; lane < widths.size(); ++lane) {
    require((is_on_host ? host_to[lane] : to[lane].values()) == expected[lane], "all_to_all");
  }
  require(timing.sent_bytes == sent_rows * 12 * 4, "bytes of the all_to_all");
}

BOOST_AUTO_TEST_CASE(is_there) { BOOST_TEST(has_nccl()); }

BOOST_DATA_TEST_CASE(all_groups, boost::unit_test::data::xrange(kLayouts.size()), index) {
  NcclTest test;
  test.expect_fine(kLayouts[index], [](NcclRank& rank) {
    for (const Group group : kGroups) {
      check_group<float>(rank, group, base::DType::f32);
      check_group<double>(rank, group, base::DType::f64);
      check_group<int32_t>(rank, group, base::DType::i32);
      check_group<uint16_t>(rank, group, base::DType::bf16);
    }
  });
}

BOOST_DATA_TEST_CASE(uneven_all_to_all, boost::unit_test::data::xrange(kLayouts.size()), index) {
  NcclTest test;
  test.expect_fine(kLayouts[index], [](NcclRank& rank) {
    for (const Group group : {Group::ep, Group::world, Group::pp, Group::ep}) {
      check_all_to_all(rank, group, false);
      check_all_to_all(rank, group, true);
    }
  });
}

// Nobody may touch a communicator while its last call is in progress; the fake would notice.
BOOST_AUTO_TEST_CASE(slow_calls_are_waited_for) {
  NcclTest test;
  fakes::set_slow_calls(40);
  test.expect_fine({.dp = 2, .ep = 2}, [](NcclRank& rank) {
    check_group<float>(rank, Group::edp, base::DType::f32);
    check_group<float>(rank, Group::ep, base::DType::f32);
    check_all_to_all(rank, Group::ep, false);
  });
}

BOOST_AUTO_TEST_CASE(splits_have_names_colors_and_order) {
  NcclTest test;
  test.expect_fine({.cp = 2, .dp = 2, .pp = 2, .ep = 2}, [](NcclRank&) {});
  std::map<std::string, std::map<int, int>> color_of;
  std::map<int, std::vector<std::string>> order;
  for (const fakes::NcclSplitSeen& split : fakes::splits_seen()) {
    color_of[split.name][split.rank] = split.color;
    order[split.rank].push_back(split.name);
    BOOST_TEST(split.shares == (split.name == "edp"));
    const int sizes = split.name == "self" ? 1 : split.name == "dp_cp" ? 4 : 2;
    BOOST_TEST(split.size == sizes);
  }
  const std::vector<std::string> expected = {"self", "dp_cp", "edp",     "cp",
                                             "ep",   "pp_up", "pp_down", "embedding"};
  for (int rank = 0; rank < 8; ++rank) {
    BOOST_TEST(order[rank] == expected, boost::test_tools::per_element());
    BOOST_TEST(color_of["ep"][rank] == rank / 2 * 2);
    BOOST_TEST(color_of["edp"][rank] == rank / 4 * 4 + rank % 2);
    BOOST_TEST(color_of["pp_up"][rank] == rank % 4);
    BOOST_TEST(color_of["self"][rank] == rank);
  }
}

// Without waiting: calls return with their work on the stream, and the stream keeps the order.
BOOST_AUTO_TEST_CASE(asynchronous_calls) {
  NcclTest test;
  test.options.waits = false;
  test.expect_fine({.dp = 3}, [](NcclRank& rank) {
    const auto comm = rank.world.communicator(Group::dp_cp);
    const DeviceArray<float> data({1.0F, 2.0F});
    for (int i = 0; i < 50; ++i) comm->all_reduce(data.data(), 2, base::DType::f32, 0);
    double last = 0;  // on the host, hence waited for
    comm->all_reduce(&last, 1, base::DType::f64, 0);
    require(data.values()[0] == std::pow(3.0F, 50.0F), "the sums of sums");
  });
}

// 1F1B over four stages: buffers are overwritten right after the send, messages wait for their
// receivers as NCCL's do, and still nobody waits for each other in a circle.
BOOST_DATA_TEST_CASE(pipeline, boost::unit_test::data::make({false, true}), waits) {
  NcclTest test;
  test.options.waits = waits;
  constexpr int kStages = 4;
  constexpr int kMicroBatches = 11;
  constexpr size_t kCount = 1000;
  test.expect_fine({.pp = kStages}, [](NcclRank& rank) {
    const auto comm = rank.world.communicator(Group::pp);
    const int stage = comm->rank();
    const auto bytes = static_cast<int64_t>(kCount * sizeof(float));
    const DeviceArray<float> out((std::vector<float>(kCount)));
    std::vector<DeviceArray<float>> arrived;
    std::vector<float> expected;
    std::map<int, int64_t> sequences;
    const auto take = [&](int peer, float content) {
      arrived.emplace_back(std::vector<float>(kCount));
      expected.push_back(content);
      const CommTiming timing = comm->recv(peer, 0, arrived.back().data(), bytes, 0);
      require(timing.sequence == sequences[peer]++, "sequence");
    };
    int64_t num_up = 0;
    int64_t num_down = 0;
    // The copy leaves on the rank's stream, so overwriting waits for the stream, as kernels do.
    const auto give = [&](int peer, float content) {
      double turn = 0;
      rank.world.communicator(Group::cp)->all_reduce(&turn, 1, base::DType::f64, 0);
      std::fill(out.data(), out.data() + kCount, content);
      const CommTiming timing = comm->send(peer, 0, out.data(), bytes, {}, 0);
      require(timing.sequence == (peer > stage ? num_up : num_down)++, "sequence");
      require(timing.sent_bytes == bytes, "bytes");
    };
    for (const plan::ScheduleStep& step : plan::one_f_one_b(kStages, stage, kMicroBatches)) {
      const auto m = static_cast<float>(step.micro_batch);
      if (step.is_forward) {
        if (stage > 0) take(stage - 1, m + static_cast<float>(stage) / 8);
        if (stage + 1 < kStages) give(stage + 1, m + static_cast<float>(stage + 1) / 8);
      } else {
        if (stage + 1 < kStages) take(stage + 1, -m - static_cast<float>(stage) / 8);
        if (stage > 0) give(stage - 1, -m - static_cast<float>(stage - 1) / 8);
      }
    }
    double last = 1;
    rank.world.communicator(Group::world)->all_reduce(&last, 1, base::DType::f64, 0);
    require(last == kStages, "the end");
    for (size_t i = 0; i < arrived.size(); ++i) {
      require(arrived[i].values() == std::vector<float>(kCount, expected[i]), "a message");
    }
  });
}

// More messages on their way than there are copies for: the sender waits, nothing is lost.
BOOST_AUTO_TEST_CASE(many_messages_on_their_way) {
  NcclTest test;
  constexpr int kMessages = 100;
  int num_allocated = 0;
  test.options.allocate = [&num_allocated](int64_t bytes) -> void* {
    ++num_allocated;
    return new char[static_cast<size_t>(bytes)];
  };
  test.options.release = [](void* memory) { delete[] static_cast<char*>(memory); };
  test.expect_fine({.pp = 2}, [](NcclRank& rank) {
    const auto comm = rank.world.communicator(Group::pp);
    std::vector<DeviceArray<double>> kept;  // freeing device memory waits for what is on its way
    for (int i = 0; i < kMessages; ++i) {
      const int64_t bytes = 8 * (1 + i % 7);
      kept.emplace_back(std::vector<double>(static_cast<size_t>(1 + i % 7), i));
      const DeviceArray<double>& data = kept.back();
      if (rank.rank == 0) {
        comm->send(1, 0, data.data(), bytes, {}, 0);
        comm->send(1, 0, data.data(), 0, {}, 0);  // an empty one goes nowhere
      } else {
        const DeviceArray<double> got(std::vector<double>(static_cast<size_t>(1 + i % 7)));
        comm->recv(0, 0, got.data(), bytes, 0);
        comm->recv(0, 0, got.data(), 0, 0);
        require(got.values() == data.values(), "a message");
      }
    }
  });
  BOOST_TEST(num_allocated > 1);
  BOOST_TEST(num_allocated < kMessages);
}

BOOST_AUTO_TEST_CASE(captured_calls_are_not_waited_for) {
  NcclTest test;
  test.expect_fine({.dp = 2}, [](NcclRank& rank) {
    const auto comm = rank.world.communicator(Group::dp_cp);
    const DeviceArray<float> data({5.0F});
    rank.rendezvous.barrier();
    fakes::set_capturing(rank.stream, true);
    comm->all_reduce(data.data(), 1, base::DType::f32, 0);
    require(data.values()[0] == 5.0F, "captured, not run");
    double on_host = 1;
    const testing::Outcome outcome =
        testing::outcome_of([&] { comm->all_reduce(&on_host, 1, base::DType::f64, 0); });
    require(testing::contains(outcome.text, "host values in a graph"), "host values");
    fakes::set_capturing(rank.stream, false);
    rank.world.watch("a replay");
    rank.world.check();
  });
}

BOOST_AUTO_TEST_CASE(bad_arguments) {
  NcclTest test;
  test.expect_fine({.dp = 2}, [](NcclRank& rank) {
    const auto comm = rank.world.communicator(Group::world);
    const auto refused = [](const std::function<void()>& body, const std::string& part) {
      const testing::Outcome outcome = testing::outcome_of(body);
      require(testing::contains(outcome.text, part), part + " in: " + outcome.text);
    };
    char byte = 0;
    refused([&] { comm->send(2, 0, &byte, 1, {}, 0); }, "has no peer 2");
    refused([&] { comm->recv(rank.rank, 0, &byte, 1, 0); }, "has no peer");
    const AllToAllLane lane{&byte, &byte, 1};
    const std::vector<int64_t> one = {1};
    const std::vector<int64_t> two = {1, 2};
    const std::vector<int64_t> other = {2, 1};
    const std::vector<int64_t> negative = {-1, -1};
    refused([&] { comm->all_to_all({&lane, 1}, one, two, 0); }, "with counts for 1 and 2");
    refused([&] { comm->all_to_all({&lane, 1}, two, other, 0); }, "sends itself");
    refused([&] { comm->all_to_all({&lane, 1}, negative, negative, 0); }, "-1 rows");
    std::vector<double> large(200'000);
    refused([&] { comm->all_reduce(large.data(), 200'000, base::DType::f64, 0); },
            "a call takes 1048576 at most");
    rank.world.check();
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
