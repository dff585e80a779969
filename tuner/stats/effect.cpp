#include "tuner/stats/effect.h"

#include "tuner/stats/noise_model.h"

namespace moetune::tuner {

LevelDifference exact_difference(double before, double after) {
  LevelDifference difference;
  difference.mean = difference.low = difference.high = after - before;
  return difference;
}

Effect effect_of(const LevelDifference& difference, double sign, double unit) {
  return {sign * difference.mean / unit,
          sign * (sign > 0 ? difference.low : difference.high) / unit,
          sign * (sign > 0 ? difference.high : difference.low) / unit};
}

EndsEffect ends_effect_of(const LevelDifference& difference, double sign, double unit,
                          size_t num_good, size_t num_bad) {
  constexpr size_t kMoreOfEach = kMoreRuns / 2;
  const double noise = difference.noise / unit;
  return {effect_of(difference, sign, unit), true, noise,
          detectable_change(noise, num_good, num_bad),
          detectable_change(noise, num_good + kMoreOfEach, num_bad + kMoreOfEach)};
}

}  // namespace moetune::tuner
