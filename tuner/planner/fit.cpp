// Least squares in few dimensions.
#include "tuner/planner/fit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "profiler/analysis/stats.h"

namespace moetune::tuner::planner {

namespace {

using Matrix = std::vector<std::vector<double>>;

/// Solves a x = b for a symmetric positive definite a, by Cholesky's factors; false where it is
/// none.
bool solve(Matrix a, std::vector<double> b, std::vector<double>& x) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i][j];
      for (size_t k = 0; k < j; ++k) sum -= a[i][k] * a[j][k];
      if (i == j) {
        if (!(sum > 0)) return false;
        a[i][i] = std::sqrt(sum);
      } else {
        a[i][j] = sum / a[j][j];
      }
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  x = std::move(b);
  return true;
}

constexpr double kHuber = 0.15;
/// Expected spread of the residuals.
constexpr double kSpread = 0.1;
/// Of a normal distribution: so many standard deviations to both sides hold 80 %.
constexpr double kEighty = 1.2816;

class Fitter {
 public:
  Fitter(const std::vector<MeasuredRun>& runs, const Rates& start) : runs_(runs), prior_(start) {
    for (const RateRow& row : rate_table()) {
      if (row.sigma > 0) rows_.push_back(&row);
    }
  }

  Fit fit() {
    std::vector<double> place(rows_.size(), 0);  // logarithms over the prior
    double lambda = 1e-2;
    double cost = cost_at(place);
    constexpr int kMostSteps = 40;
    for (int step = 0; step < kMostSteps; ++step) {
      linearize(place);
      bool is_better = false;
      for (int attempt = 0; attempt < 8 && !is_better; ++attempt) {
        Matrix damped = curvature_;
        for (size_t i = 0; i < damped.size(); ++i) damped[i][i] *= 1 + lambda;
        std::vector<double> move;
        if (solve(damped, slope_, move)) {
          std::vector<double> next = place;
          for (size_t i = 0; i < next.size(); ++i) {
            const RateRow& row = *rows_[i];
            const double low = std::log(row.low / (prior_.*row.member));
            const double high = std::log(row.high / (prior_.*row.member));
            next[i] = std::clamp(next[i] - move[i], low, high);
          }
          const double next_cost = cost_at(next);
          if (next_cost < cost) {
            is_better = true;
            const bool is_done = cost - next_cost < 1e-7 * cost;
            place = next;
            cost = next_cost;
            lambda = std::max(lambda / 4, 1e-9);
            if (is_done) return result(place);
            continue;
          }
        }
        lambda *= 6;
      }
      if (!is_better) break;
    }
    return result(place);
  }

 private:
  [[nodiscard]] Rates rates_at(const std::vector<double>& place) const {
    Rates rates = prior_;
    for (size_t i = 0; i < rows_.size(); ++i) {
      rates.*(rows_[i]->member) = prior_.*(rows_[i]->member) * std::exp(place[i]);
    }
    return rates;
  }

  [[nodiscard]] std::vector<double> residuals(const std::vector<double>& place) const {
    const Rates rates = rates_at(place);
    std::vector<double> all;
    all.reserve(runs_.size());
    for (const MeasuredRun& run : runs_) all.push_back(log_error(run, rates));
    return all;
  }

  [[nodiscard]] double cost_at(const std::vector<double>& place) const {
    double cost = 0;
    const std::vector<double> all = residuals(place);
    for (size_t i = 0; i < all.size(); ++i) {
      const double r = std::abs(all[i]);
      cost += runs_[i].weight * (r < kHuber ? r * r / 2 : kHuber * (r - kHuber / 2));
    }
    for (size_t i = 0; i < place.size(); ++i) cost += prior_cost(i, place[i]);
    return cost;
  }

  /// The prior is scaled by the expected spread.
  [[nodiscard]] double prior_cost(size_t i, double at) const {
    const double pull = at / rows_[i]->sigma;
    return pull * pull / 2 * kSpread * kSpread;
  }

  void linearize(const std::vector<double>& place) {
    constexpr double kStep = 1e-4;
    const size_t n = place.size();
    const std::vector<double> at = residuals(place);
    std::vector<std::vector<double>> slopes;
    for (size_t i = 0; i < n; ++i) {
      std::vector<double> moved = place;
      moved[i] += kStep;
      slopes.push_back(residuals(moved));
      for (size_t r = 0; r < at.size(); ++r) slopes[i][r] = (slopes[i][r] - at[r]) / kStep;
    }
    curvature_.assign(n, std::vector<double>(n, 0));
    slope_.assign(n, 0);
    for (size_t r = 0; r < at.size(); ++r) {
      const double size = std::abs(at[r]);
      const double weight = runs_[r].weight * (size < kHuber ? 1 : kHuber / size);
      for (size_t i = 0; i < n; ++i) {
        slope_[i] += weight * slopes[i][r] * at[r];
        for (size_t j = 0; j <= i; ++j) curvature_[i][j] += weight * slopes[i][r] * slopes[j][r];
      }
    }
    for (size_t i = 0; i < n; ++i) {
      const double pull = kSpread * kSpread / (rows_[i]->sigma * rows_[i]->sigma);
      curvature_[i][i] += pull;
      slope_[i] += pull * place[i];
      for (size_t j = 0; j < i; ++j) curvature_[j][i] = curvature_[i][j];
    }
  }

  Fit result(const std::vector<double>& place) {
    Fit fit;
    fit.rates = rates_at(place);
    std::vector<double> errors = residuals(place);
    double squares = 0;
    for (double& error : errors) {
      error = std::abs(error);
      squares += std::min(error, 2 * kHuber) * std::min(error, 2 * kHuber);
    }
    if (!errors.empty()) fit.median_error = profiler::median(errors);
    const double spread =
        std::sqrt(squares / std::max<double>(1, static_cast<double>(errors.size()) -
                                                    static_cast<double>(place.size())));
    linearize(place);
    for (size_t i = 0; i < place.size(); ++i) {
      std::vector<double> unit(place.size(), 0);
      unit[i] = 1;
      std::vector<double> column;
      const double sigma = solve(curvature_, unit, column)
                               ? std::sqrt(std::max(0.0, column[i])) * std::max(spread, kSpread)
                               : rows_[i]->sigma;
      const double value = fit.rates.*(rows_[i]->member);
      fit.fitted.push_back({std::string(rows_[i]->name), value, value * std::exp(-kEighty * sigma),
                            value * std::exp(kEighty * sigma)});
    }
    return fit;
  }

  const std::vector<MeasuredRun>& runs_;
  Rates prior_;
  std::vector<const RateRow*> rows_;
  Matrix curvature_;
  std::vector<double> slope_;
};

}  // namespace

double log_error(const MeasuredRun& run, const Rates& rates) {
  const StepTime step = run.step->price(rates, run.context);
  return std::log(tokens_per_s_per_device(run.step->run(), step.seconds) / run.tokens_per_s);
}

CaseFit fit_case(const std::vector<MeasuredRun>& runs, const Rates& rates, double prior) {
  double sum = 0;
  double weight = prior;
  for (const MeasuredRun& run : runs) {
    sum += run.weight * std::clamp(log_error(run, rates), -kHuber, kHuber);
    weight += run.weight;
  }
  if (!(weight > 0)) return {};
  const double mean = sum / weight;
  const double sigma = kSpread / std::sqrt(weight);
  return {std::exp(mean), std::exp(mean - kEighty * sigma), std::exp(mean + kEighty * sigma)};
}

Fit fit_rates(const std::vector<MeasuredRun>& runs, const Rates& start) {
  return Fitter(runs, start).fit();
}

std::vector<FittedRate> take_probed(const spec::HardwareSpec& hardware, Rates& rates) {
  using spec::Work;
  // A file without a measurement says 1.
  const auto share = [&](Work work) -> double {
    const double value = hardware.efficiency[static_cast<size_t>(work)];
    return value == 1 ? 0 : value;
  };
  constexpr double kSeq = 4096;
  constexpr double kHeadDim = 128;
  Rates plain = rates;
  plain.attention = 1;
  const double published = attention_flops_per_s(plain, hardware, kSeq, kHeadDim, false, false);
  const Generation generation = generation_of(hardware);
  const auto product = generation == Generation::blackwell ? &Rates::product_blackwell
                       : generation == Generation::ampere  ? &Rates::product_ampere
                                                           : &Rates::product_hopper;
  const auto over = [](double a, double b) { return b > 0 ? a / b : 0; };
  const std::pair<double Rates::*, double> measured[] = {
      {product, share(Work::product)},
      {&Rates::grouped, over(share(Work::grouped), share(Work::product))},
      {&Rates::product_half_rows, hardware.half_rows[static_cast<size_t>(Work::product)]},
      {&Rates::grouped_half_rows, hardware.half_rows[static_cast<size_t>(Work::grouped)]},
      {&Rates::attention, share(Work::attention) * hardware.peak_flops_per_s / published},
      {&Rates::memory_dense, over(1, share(Work::heavy))}};
  constexpr double kEitherSide = 1.1;
  std::vector<FittedRate> taken;
  for (const RateRow& row : rate_table()) {
    for (const auto& [member, value] : measured) {
      // A value outside the plausible range was not a measurement of this rate.
      if (row.member != member || value < row.low || value > row.high) continue;
      rates.*member = value;
      taken.push_back({std::string(row.name), value, value / kEitherSide, value * kEitherSide});
    }
  }
  return taken;
}

}  // namespace moetune::tuner::planner
