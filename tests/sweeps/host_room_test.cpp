// What the machine has left, as its files say, and what is made of it.
#include "sweeps/host_room.h"

#include <boost/test/unit_test.hpp>
#include <filesystem>

#include "kernels/base/environment_failure.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

/// A machine made of files.
struct Machine {
  tests::TempFolder folder;
  std::string root = folder.file("root");

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    tests::write_text(root + path, text);
  }
};

spec::TrialSpec trial_of_ranks(int64_t num_ranks) {
  spec::TrialSpec trial = tests::small_trial();
  trial.knobs = {};
  trial.knobs.data_parallel_size = num_ranks;
  trial.hardware.memory_bytes = 0;
  return trial;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(host_room, Machine)

BOOST_AUTO_TEST_CASE(without_files_nothing_is_known) {
  const HostState host = read_host(root);
  BOOST_TEST(!host.available_bytes.has_value());
  BOOST_TEST(!host.num_oom_kills.has_value());
  BOOST_TEST(host.num_cores > 0);
  BOOST_CHECK_NO_THROW(check_host_memory(trial_of_ranks(1), int64_t{1} << 60, host));
  BOOST_TEST(read_host().available_bytes.value_or(1) > 0);
}

BOOST_AUTO_TEST_CASE(the_machine_says_what_is_left) {
  write("/proc/meminfo", "MemTotal: 900000 kB\nMemFree: 5 kB\nMemAvailable: 102400 kB\n");
  write("/proc/vmstat", "a 1\noom_kill 12\n");
  const HostState host = read_host(root);
  BOOST_TEST(host.available_bytes.value() == 100 * kMiB);
  BOOST_TEST(!host.is_group_limit);
  BOOST_TEST(host.num_oom_kills.value() == 12);
}

BOOST_AUTO_TEST_CASE(a_control_group_may_leave_less_than_the_machine) {
  write("/proc/meminfo", "MemAvailable: 102400 kB\n");
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.current", "1000\n");
  BOOST_TEST(read_host(root).available_bytes.value() == 100 * kMiB);
  // The limit of a group above it counts; cached files are given up.
  write("/sys/fs/cgroup/a/memory.max", "20971520\n");
  write("/sys/fs/cgroup/a/memory.current", "10485760\n");
  write("/sys/fs/cgroup/a/memory.stat", "anon 7\ninactive_file 1048576\n");
  const HostState host = read_host(root);
  BOOST_TEST(host.available_bytes.value() == 11 * kMiB);
  BOOST_TEST(host.is_group_limit);
}

BOOST_AUTO_TEST_CASE(control_groups_of_version_1_have_other_names) {
  write("/proc/meminfo", "MemAvailable: 102400 kB\n");
  write("/proc/self/cgroup", "3:cpu,cpuacct:/x\n5:memory:/\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n");
  BOOST_TEST(!read_host(root).is_group_limit);
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n");
  BOOST_TEST(read_host(root).available_bytes.value() == 2 * kMiB - 4096);
}

BOOST_AUTO_TEST_CASE(all_ranks_of_this_machine_need_room) {
  tuner::Prediction prediction;
  prediction.peak_bytes = 1000 * kMiB;
  const int64_t one = host_bytes_of(trial_of_ranks(1), prediction);
  BOOST_TEST(one > 1000 * kMiB);
  BOOST_TEST(one < 1200 * kMiB);
  BOOST_TEST(host_bytes_of(trial_of_ranks(4), prediction) > 4000 * kMiB);
  for (const int64_t peak : {1000, 10, 10, 10}) prediction.ranks.push_back({peak * kMiB, {}});
  BOOST_TEST(host_bytes_of(trial_of_ranks(4), prediction) < 1200 * kMiB);
  // A device holds what it has, whatever was predicted.
  spec::TrialSpec small = trial_of_ranks(4);
  small.hardware.memory_bytes = 100 * kMiB;
  BOOST_TEST(host_bytes_of(small, prediction) < 500 * kMiB);
  spec::TrialSpec device = trial_of_ranks(4);
  device.backend = spec::BackendKind::cuda;
  BOOST_TEST(host_bytes_of(device, prediction) == 0);
}

BOOST_AUTO_TEST_CASE(a_refusal_says_what_is_there_and_what_is_needed) {
  HostState host;
  host.available_bytes = 100 * kMiB;
  BOOST_CHECK_NO_THROW(check_host_memory(trial_of_ranks(2), 100 * kMiB, host));
  BOOST_CHECK_EXCEPTION(
      check_host_memory(trial_of_ranks(2), 200 * kMiB, host), base::EnvironmentFailure,
      tests::says("this machine has 100 MiB of memory left", "2 ranks", "200 MiB (100 MiB each)"));
  host.is_group_limit = true;
  BOOST_CHECK_EXCEPTION(check_host_memory(trial_of_ranks(1), 200 * kMiB, host),
                        base::EnvironmentFailure, tests::says("control group", "one rank"));
}

BOOST_AUTO_TEST_CASE(ranks_that_share_cores_are_told_of) {
  HostState host;
  host.num_cores = 4;
  BOOST_TEST(cores_note(trial_of_ranks(4), host) == "");
  BOOST_TEST(cores_note(trial_of_ranks(8), host) ==
             "note: 8 ranks share 4 cores: in virtual time their steps take no longer for it, only "
             "the trials do");
  spec::TrialSpec wall = trial_of_ranks(8);
  wall.clock = spec::ClockMode::wall;
  BOOST_TEST(cores_note(wall, host).find("waiting for a core counts") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
