#include "tools/check/story/series.h"

#include <algorithm>
#include <cmath>

namespace convtrace::check {
namespace {

constexpr double kTimesChange = 3, kFewSteps = 40, kLeastLog = 0.6931471805599453;  // log 2
constexpr size_t kNear = 3, kLeastClimb = 4, kLeastToInfinity = 2;
constexpr double kLeastClimbLog = 2.302585092994046;  // log 10

/// The compared numbers: logarithms, if all are above 0.
class Curve {
 public:
  explicit Curve(std::span<const double> numbers) : numbers_(numbers) {
    const auto first_bad =
        std::ranges::find_if(numbers, [](double x) { return !std::isfinite(x); });
    size_ = static_cast<size_t>(first_bad - numbers.begin());
    in_logs_ = std::ranges::all_of(numbers.first(size_), [](double x) { return x > 0; });
    for (const double x : numbers.first(size_)) x_.push_back(in_logs_ ? std::log(x) : x);
  }

  [[nodiscard]] size_t finite() const { return size_; }  ///< how many, from the first on
  [[nodiscard]] double at(size_t i) const { return x_[i]; }
  [[nodiscard]] double number(size_t i) const { return numbers_[i]; }

  /// @return the index of the largest of the three numbers before one.
  [[nodiscard]] size_t top_before(size_t i) const {
    size_t top = i - 1;
    for (size_t k = i - std::min(i, kNear); k < i; ++k)
      if (x_[k] > x_[top]) top = k;
    return top;
  }
  /// @return the least rise that counts, for a change of `largest` in `count` steps before.
  [[nodiscard]] double least(double largest, size_t count) const {
    const double few = kFewSteps / static_cast<double>(count * count);
    return std::max(largest * (kTimesChange + few), in_logs_ ? kLeastLog : 0.0);
  }
  [[nodiscard]] double least_climb(double largest) const {
    if (!in_logs_) return largest > 0 ? largest * kFewSteps : HUGE_VAL;
    return std::max(largest * kTimesChange, kLeastClimbLog);
  }
  /// @return whether a number is clearly above another one: twice as large, or just larger if the
  /// series has numbers below 0.
  [[nodiscard]] bool above(size_t i, size_t other) const {
    return at(i) - at(other) > (in_logs_ ? kLeastLog : 0.0);
  }

 private:
  std::span<const double> numbers_;
  std::vector<double> x_;
  size_t size_ = 0;
  bool in_logs_ = true;
};

/// @return the largest change between neighbours among the first `count` numbers.
double largest_change(const Curve& curve, size_t count) {
  double largest = 0;
  for (size_t i = 1; i < count; ++i)
    largest = std::max(largest, std::abs(curve.at(i) - curve.at(i - 1)));
  return largest;
}

/// The rise that ends a series, if it does.
std::optional<Rise> last_climb(const Curve& curve, size_t whole) {
  const size_t size = curve.finite();
  if (size == 0) return std::nullopt;
  size_t begin = size - 1;  // the number before the climb
  while (begin > 0 && curve.at(begin) > curve.at(begin - 1)) --begin;
  const size_t length = size - 1 - begin;
  const bool ends_bad = size < whole;
  if (length < (ends_bad ? kLeastToInfinity : kLeastClimb)) return std::nullopt;
  const double climbed = curve.at(size - 1) - curve.at(begin);
  if (!(climbed > curve.least_climb(largest_change(curve, begin + 1)))) return std::nullopt;
  Rise rise{.kind = Rise::Kind::kBlowUp, .at = begin + 1, .most = curve.number(size - 1)};
  const size_t top = curve.top_before(begin + 1);
  rise.before = curve.number(top);
  // The return to the level before is not part of the rise.
  while (rise.at + 1 < size && !curve.above(rise.at, top)) ++rise.at;
  rise.first = curve.number(rise.at);
  if (ends_bad) rise.end = size;
  return rise;
}

}  // namespace

std::vector<Rise> rises_of(std::span<const double> numbers) {
  const Curve curve(numbers);
  const size_t size = curve.finite();
  const std::optional<Rise> climb = last_climb(curve, numbers.size());
  std::vector<Rise> rises;
  double largest = size > 1 ? std::abs(curve.at(1) - curve.at(0)) : 0;
  for (size_t i = 2; i < size; ++i) {
    if (climb && i >= climb->at) break;
    const size_t top = curve.top_before(i);
    const bool rose = i >= kNear && curve.at(i) - curve.at(top) > curve.least(largest, i - 1);
    if (!rose) {
      largest = std::max(largest, std::abs(curve.at(i) - curve.at(i - 1)));
      continue;
    }
    Rise rise{
        .kind = Rise::Kind::kJump, .at = i, .first = curve.number(i), .before = curve.number(top)};
    const double back = curve.at(top) + largest;
    size_t end = i;
    for (; end < size && curve.at(end) > back; ++end)
      rise.most = std::max(rise.most, curve.number(end));
    if (end < size) {
      rise.kind = Rise::Kind::kSpike;
      rise.end = end;
      largest = std::max(largest, curve.at(i) - curve.at(top));
    }
    rises.push_back(rise);
    if (end >= size) break;
    i = end;
  }
  if (climb) {
    rises.push_back(*climb);
  } else if (size < numbers.size()) {
    Rise rise{.kind = Rise::Kind::kNotFinite, .at = size, .end = size};
    if (size > 0) rise.before = rise.most = numbers[size - 1];
    rises.push_back(rise);
  }
  return rises;
}

}  // namespace convtrace::check
