// Stochastic rounding: each draw counted, and what the generator promises.
#include "kernels/stochastic_round.h"

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <vector>

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(stochastic_round)

namespace {

constexpr uint32_t kDraws = 65536;

float rounded(float value, uint32_t draw) {
  return std::bit_cast<float>(uint32_t{stochastic_bf16(std::bit_cast<uint32_t>(value), draw)}
                              << 16U);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_mean_over_all_draws_is_the_number) {
  // Also numbers that are bf16 already, next to a power of two, negative, and subnormal.
  for (const float value : {1.0F, 0.999F, 1.9999F, -3.14159F, 1e-30F, 3e-39F, -1e-42F, 0.0F}) {
    BOOST_TEST_CONTEXT(value) {
      double sum = 0.0;
      for (uint32_t draw = 0; draw < kDraws; ++draw) {
        sum += static_cast<double>(rounded(value, draw));
      }
      BOOST_TEST(sum / kDraws == static_cast<double>(value));  // no rounding: sums of few bits
      BOOST_TEST(std::signbit(rounded(value, 0)) == std::signbit(value));
    }
  }
}

BOOST_AUTO_TEST_CASE(nan_and_infinity_stay) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const uint32_t draw : {0U, 1U, kDraws - 1}) {
    BOOST_TEST(rounded(kInfinity, draw) == kInfinity);
    BOOST_TEST(rounded(-kInfinity, draw) == -kInfinity);
    BOOST_TEST(std::isnan(rounded(std::bit_cast<float>(0x7F800001U), draw)));
    BOOST_TEST(std::isnan(rounded(std::bit_cast<float>(0xFFFFFFFFU), draw)));
  }
}

// Published: the first numbers of the sequence that begins at 1234567.
BOOST_AUTO_TEST_CASE(the_sequence_is_splitmix64) {
  const uint64_t expected[] = {6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                               4593380528125082431U, 16408922859458223821U};
  for (int64_t i = 0; i < 5; ++i) BOOST_TEST(rounding_bits(1234567, i) == expected[i]);
}

// Bits of neighbours, in steps, seeds, elements and between both draws, agree by half.
BOOST_AUTO_TEST_CASE(neighbours_are_unlike) {
  constexpr int64_t kCount = 1 << 16;
  constexpr double kSigma = 0.5 / 256.0;  // of a share of kCount
  const uint64_t key = rounding_key(7, 3);
  struct Other {
    const char* name;
    uint64_t key;
    int64_t shift;
  };
  for (const Other& other :
       {Other{"next step", rounding_key(7, 4), 0}, Other{"next seed", rounding_key(8, 3), 0},
        Other{"next element", key, 1}}) {
    BOOST_TEST_CONTEXT(other.name) {
      std::vector<int64_t> num_equal(64);
      for (int64_t i = 0; i < kCount; ++i) {
        const uint64_t same = ~(rounding_bits(key, i) ^ rounding_bits(other.key, i + other.shift));
        for (size_t bit = 0; bit < 64; ++bit) num_equal[bit] += (same >> bit) & 1U;
      }
      for (const int64_t count : num_equal) {
        BOOST_TEST(std::fabs(static_cast<double>(count) / kCount - 0.5) < 5 * kSigma);
      }
    }
  }
  // Of m and v, the sum of products of what is left of their draws around the middle.
  double covariance = 0.0;
  for (int64_t i = 0; i < kCount; ++i) {
    const uint64_t bits = rounding_bits(key, i);
    covariance += (draw_of_m(bits) / 65535.0 - 0.5) * (draw_of_v(bits) / 65535.0 - 0.5);
  }
  BOOST_TEST(std::fabs(covariance / kCount) < 5.0 / 12.0 / 256.0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
