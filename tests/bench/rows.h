#pragma once
/// @file rows.h
/// Rows of a benchmark program: medians with their spread, printed as JSON for run_all.py.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

namespace convtrace::bench {

template <typename Function>
double seconds_of(Function&& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// @param one, @param other  each returns a time. @return their ratio in each of `pairs` pairs, in
/// alternating order, so that a drift of the machine favours neither.
template <typename One, typename Other>
std::vector<double> ratios_of(int pairs, One&& one, Other&& other) {
  std::vector<double> ratios;
  for (int i = 0; i < pairs; ++i) {
    double above = 0;
    if (i % 2 == 0) above = one();
    const double below = other();
    if (i % 2 != 0) above = one();
    ratios.push_back(above / below);
  }
  return ratios;
}

inline double median_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

enum class Goal { kAtMost, kAtLeast };

struct Row {
  const char* name;
  const char* unit;
  Goal direction;
  double goal;
  const char* against;
};

/// Prints the brackets of the list, and the separators between its rows.
class Rows {
 public:
  Rows() { std::printf("["); }
  ~Rows() { std::printf("]\n"); }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  /// @param samples  not empty. The row's value is their median, its spread the middle half over
  /// the median.
  void print(const Row& row, std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    const double median = samples[samples.size() / 2];
    const double middle_half = samples[samples.size() * 3 / 4] - samples[samples.size() / 4];
    const bool at_most = row.direction == Goal::kAtMost;
    const bool ok = at_most ? median <= row.goal : median >= row.goal;
    std::printf(
        "%s{\"name\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"goal\": \"%s %g\", "
        "\"against\": \"%s\", \"ok\": %s, \"spread\": %.3f}",
        first_ ? "" : ",\n ", row.name, median, row.unit, at_most ? "<=" : ">=", row.goal,
        row.against, ok ? "true" : "false", middle_half / median);
    first_ = false;
  }

  /// Prints a median without a goal.
  void fact(const char* name, const char* unit, const char* against, std::vector<double> samples) {
    std::printf("%s{\"name\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"against\": \"%s\"}",
                first_ ? "" : ",\n ", name, median_of(std::move(samples)), unit, against);
    first_ = false;
  }

 private:
  bool first_ = true;
};

}  // namespace convtrace::bench
