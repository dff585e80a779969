// The fake device itself: what would hang or be undefined on a card fails the launch by name, and
// what is right works as on a card.
#include "tests/fakes/simt/simt.h"

#include <bit>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace moetune::kernels::cuda {
BOOST_AUTO_TEST_SUITE(simt_fake)

namespace {

constexpr unsigned kLowHalf = 0x0000FFFFU;

/// The message of the launch, or "" when it went well.
template <typename... P, typename... A>
std::string message_of(void (*kernel)(P...), const LaunchShape& shape, A... args) {
  try {
    launch(kernel, shape, nullptr, args...);
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// --- kernels that are wrong -------------------------------------------------------------------

void one_thread_returns_before_the_barrier() {
  if (threadIdx.x == 37) return;
  __syncthreads();
}

void barriers_in_two_branches() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

void barrier_against_shuffle() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __shfl_xor_sync(kAllLanes, 1, threadIdx.x == 40 ? 1 : 2);
    if (threadIdx.x == 40) return;
    __syncthreads();
  }
}

void lane_misses_a_shuffle() {
  if (threadIdx.x % kWarp != 5) __shfl_xor_sync(kAllLanes, 1.0F, 1);
}

void lane_is_not_in_its_mask() { __shfl_sync(kLowHalf, 1, 0); }

void reads_a_lane_outside_of_the_mask() {
  if (threadIdx.x < 16) __shfl_sync(kLowHalf, 1, 20);
}

void throws(int at) {
  MOETUNE_CHECK(static_cast<int>(threadIdx.x) != at, "thread {} is not wanted", at);
  __syncthreads();
}

void touches_shared_memory_behind_the_end(int length, int* was_seen) {
  auto* shared = block_shared<float>();
  if (simt::has_address_sanitizer()) {
    *was_seen = !simt::is_poisoned(shared + length - 1) && simt::is_poisoned(shared + length);
  } else {
    shared[length] = 0.0F;
  }
}

void forgets_a_barrier(int* sums) {
  auto* shared = block_shared<int>();
  shared[threadIdx.x] = 1;
  atomicAdd(&sums[blockIdx.x], shared[(threadIdx.x + 1) % blockDim.x]);
}

// --- kernels that are right -------------------------------------------------------------------

void reverses_the_block(const int* from, int* to) {
  auto* shared = block_shared<int>();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  shared[threadIdx.x] = from[i];
  __syncthreads();
  to[i] = shared[blockDim.x - 1 - threadIdx.x];
}

struct Shuffles {
  std::vector<int> by_index = std::vector<int>(32);
  std::vector<int> up = std::vector<int>(32);
  std::vector<int> down = std::vector<int>(32);
  std::vector<int> flipped = std::vector<int>(32);
  std::vector<int> segment = std::vector<int>(32);
  std::vector<double> wide = std::vector<double>(32);
  std::vector<unsigned> ballot = std::vector<unsigned>(32);
  std::vector<unsigned> half_ballot = std::vector<unsigned>(32);
  std::vector<unsigned> same = std::vector<unsigned>(32);
};

void shuffles(Shuffles* result) {
  const auto lane = static_cast<int>(threadIdx.x);
  result->by_index[lane] = __shfl_sync(kAllLanes, lane, (lane + 3) % 32);
  result->up[lane] = __shfl_up_sync(kAllLanes, lane, 2);
  result->down[lane] = __shfl_down_sync(kAllLanes, lane, 2);
  result->flipped[lane] = __shfl_xor_sync(kAllLanes, lane, 5);
  result->segment[lane] = __shfl_up_sync(kAllLanes, lane, 1, 8);
  result->wide[lane] = __shfl_xor_sync(kAllLanes, lane + 0.5, 1);
  result->ballot[lane] = __ballot_sync(kAllLanes, lane % 2);
  result->same[lane] = __match_any_sync(kAllLanes, lane / 16);
  if (lane < 16) {
    result->half_ballot[lane] = __ballot_sync(kLowHalf, lane == 3);
  } else {
    result->half_ballot[lane] = __ballot_sync(~kLowHalf, lane == 31);
  }
  __syncwarp();
}

void reductions(float* sum, float* maximum, int* count) {
  auto* scratch = block_shared<float>();
  const auto i = static_cast<float>(threadIdx.x);
  for (int round = 0; round < 3; ++round) {
    const float total = block_sum(i + static_cast<float>(round), scratch);
    const float largest = block_max(-i, scratch);
    const int odd = __syncthreads_count(static_cast<int>(threadIdx.x % 2));
    if (threadIdx.x == 0) {
      sum[round] = total;
      maximum[round] = largest;
      count[round] = odd;
    }
  }
}

/// Both forms of a device's loop over lanes: as the fake does it, and as a device does.
void combined_lanes(int width, int lowest, float* combined, float* shuffled) {
  const auto lane = static_cast<int>(threadIdx.x);
  const float own = 1.0F / static_cast<float>(lane + 3);  // sums depend on their order
  combined[lane] = sum_lanes(own, width, lowest) + 100.0F * max_lanes(own, width) +
                   static_cast<float>(1000 * sum_up_to_lane(lane));
  float sum = own;
  float largest = own;
  for (int distance = width / 2; distance > 0; distance /= 2) {
    if (distance >= lowest) sum += __shfl_xor_sync(kAllLanes, sum, distance);
    largest = max_or_nan(largest, __shfl_xor_sync(kAllLanes, largest, distance));
  }
  int up_to = lane;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int below = __shfl_up_sync(kAllLanes, up_to, distance);
    if (lane >= distance) up_to += below;
  }
  shuffled[lane] = sum + 100.0F * largest + static_cast<float>(1000 * up_to);
}

void nan_in_one_lane(float* result) {
  const float value = threadIdx.x == 70 ? NAN : 1.0F;
  *result = block_max(value, block_shared<float>());
}

void atomics(int* count, float* sum, double* wide, unsigned* maximum, int* changed) {
  atomicAdd(count, 1);
  atomicAdd(sum, 0.5F);
  atomicAdd(wide, 0.25);
  atomicMax(maximum, threadIdx.x);
  if (atomicCAS(changed, 0, 1) == 0) atomicAdd(changed, 10);
}

void many_barriers(int* total) {
  auto* shared = block_shared<int>();
  for (int step = 0; step < 10; ++step) {
    shared[threadIdx.x] = step;
    __syncthreads();
    const int next = shared[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
    if (warp_sum(1.0F) != 32.0F) return;
    if (threadIdx.x == 0) atomicAdd(total, next);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_barrier_that_a_thread_misses_fails) {
  const std::string message = message_of(one_thread_returns_before_the_barrier, {2, 64});
  BOOST_TEST(contains(message, "block (0,0,0)"), message);
  BOOST_TEST(contains(message, "waits for thread 37, which has returned"), message);
  BOOST_TEST(contains(message, "simt_test.cpp"), message);
}

BOOST_AUTO_TEST_CASE(barriers_of_two_lines_do_not_meet) {
  const std::string message = message_of(barriers_in_two_branches, {1, 64});
  BOOST_TEST(contains(message, "barriers of two lines meet"), message);
}

BOOST_AUTO_TEST_CASE(threads_waiting_for_each_other_fail) {
  const std::string message = message_of(barrier_against_shuffle, {1, 64});
  BOOST_TEST(message != "");
}

BOOST_AUTO_TEST_CASE(a_shuffle_that_a_lane_misses_fails) {
  const std::string message = message_of(lane_misses_a_shuffle, {1, 96});
  BOOST_TEST(contains(message, "waits for lane 5, which has returned"), message);
  BOOST_TEST(contains(message_of(lane_misses_a_shuffle, {1, 4}), "does not have"));
}

BOOST_AUTO_TEST_CASE(masks_are_checked) {
  BOOST_TEST(contains(message_of(lane_is_not_in_its_mask, {1, 32}), "which is not in it"));
  BOOST_TEST(contains(message_of(reads_a_lane_outside_of_the_mask, {1, 32}), "reads lane 20"));
}

BOOST_AUTO_TEST_CASE(exceptions_reach_the_caller) {
  const std::string message = message_of(throws, {3, 128}, 77);
  BOOST_TEST(contains(message, "thread (77,0,0): thread 77 is not wanted"), message);
  BOOST_TEST(message_of(throws, {3, 128}, -1) == "");  // and the device works on
}

BOOST_AUTO_TEST_CASE(shared_memory_ends_where_it_ends) {
  int was_seen = 0;
  for (const int length : {1, 2, 7, 100}) {
    const LaunchShape shape{1, 1, static_cast<size_t>(length) * sizeof(float)};
    const std::string message =
        message_of(touches_shared_memory_behind_the_end, shape, length, &was_seen);
    BOOST_TEST((was_seen == 1 || contains(message, "of shared memory")), message);
  }
}

BOOST_AUTO_TEST_CASE(a_forgotten_barrier_shows) {
  std::vector<int> sums(2);
  launch(forgets_a_barrier, {2, 64, 64 * sizeof(int)}, nullptr, sums.data());
  BOOST_TEST((sums[0] != 64 || sums[1] != 64));  // shared memory is filled with -1
}

BOOST_AUTO_TEST_CASE(impossible_shapes_are_refused) {
  BOOST_TEST(contains(message_of(throws, {1, 1025}, -1), "cannot be launched"));
  BOOST_TEST(contains(message_of(throws, {dim3(1, 70000), 32}, -1), "cannot be launched"));
  BOOST_TEST(contains(message_of(throws, {1, 32, 300 * 1024}, -1), "of shared memory"));
  BOOST_TEST(message_of(throws, {1, 32, 200 * 1024}, -1) == "");
  BOOST_TEST(message_of(throws, {0, 32}, 0) == "");  // nothing to do
}

BOOST_AUTO_TEST_CASE(blocks_share_memory_and_wait) {
  std::vector<int> from(96);
  std::vector<int> to(96);
  std::iota(from.begin(), from.end(), 0);
  launch(reverses_the_block, {3, 32, 32 * sizeof(int)}, nullptr, from.data(), to.data());
  for (int i = 0; i < 96; ++i) BOOST_TEST(to[i] == i / 32 * 32 + 31 - i % 32);
}

BOOST_AUTO_TEST_CASE(shuffles_and_votes) {
  Shuffles result;
  launch(shuffles, {2, 32}, nullptr, &result);  // lanes in rising order, then in falling
  for (int lane = 0; lane < 32; ++lane) {
    BOOST_TEST(result.by_index[lane] == (lane + 3) % 32);
    BOOST_TEST(result.up[lane] == (lane < 2 ? lane : lane - 2));
    BOOST_TEST(result.down[lane] == (lane > 29 ? lane : lane + 2));
    BOOST_TEST(result.flipped[lane] == (lane ^ 5));
    BOOST_TEST(result.segment[lane] == (lane % 8 == 0 ? lane : lane - 1));
    BOOST_TEST(result.wide[lane] == (lane ^ 1) + 0.5);
    BOOST_TEST(result.ballot[lane] == 0xAAAAAAAAU);
    BOOST_TEST(result.half_ballot[lane] == (lane < 16 ? 1U << 3 : 1U << 31));
    BOOST_TEST(result.same[lane] == (lane < 16 ? kLowHalf : ~kLowHalf));
  }
}

BOOST_AUTO_TEST_CASE(lanes_that_meet_once_get_the_bits_of_shuffles) {
  for (const auto& [width, lowest] :
       {std::pair(1, 1), std::pair(2, 1), std::pair(8, 1), std::pair(32, 1), std::pair(32, 4)}) {
    std::vector<float> combined(32);
    std::vector<float> shuffled(32);
    launch(combined_lanes, {2, 32}, nullptr, width, lowest, combined.data(), shuffled.data());
    for (size_t lane = 0; lane < 32; ++lane) {
      BOOST_TEST(std::bit_cast<uint32_t>(combined[lane]) ==
                 std::bit_cast<uint32_t>(shuffled[lane]));
    }
  }
}

BOOST_AUTO_TEST_CASE(reductions_of_the_block) {
  for (const unsigned threads : {32U, 64U, 1024U}) {
    std::vector<float> sum(3);
    std::vector<float> maximum(3);
    std::vector<int> count(3);
    launch(reductions, {1, threads, 32 * sizeof(float)}, nullptr, sum.data(), maximum.data(),
           count.data());
    const auto n = static_cast<float>(threads);
    for (int round = 0; round < 3; ++round) {
      BOOST_TEST(sum[round] == n * (n - 1) / 2 + n * static_cast<float>(round));
      BOOST_TEST(maximum[round] == 0.0F);
      BOOST_TEST(count[round] == static_cast<int>(threads / 2));
    }
  }
  float result = 0.0F;
  launch(nan_in_one_lane, {1, 128, 32 * sizeof(float)}, nullptr, &result);
  BOOST_TEST(std::isnan(result));
}

BOOST_AUTO_TEST_CASE(atomic_operations) {
  int count = 0;
  float sum = 0.0F;
  double wide = 0.0;
  unsigned maximum = 0;
  int changed = 0;
  launch(atomics, {4, 48}, nullptr, &count, &sum, &wide, &maximum, &changed);
  BOOST_TEST(count == 192);
  BOOST_TEST(sum == 96.0F);
  BOOST_TEST(wide == 48.0);
  BOOST_TEST(maximum == 47U);
  BOOST_TEST(changed == 11);
}

// 16384 threads with 70 waits each; asserts no time, but the suite would be felt to crawl.
BOOST_AUTO_TEST_CASE(sixty_four_blocks_of_256) {
  int total = 0;
  launch(many_barriers, {64, 256, 256 * sizeof(int)}, nullptr, &total);
  BOOST_TEST(total == 64 * 45);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels::cuda
