#include "tools/check/model/second_moment.h"

#include <algorithm>
#include <limits>

namespace convtrace::check {
namespace {

/// By the class, the setting whose last number is the share that an average of squares keeps.
struct Row {
  std::string_view name, setting;
};
constexpr Row kKeepsSquares[] = {
    {"torch.optim.adam.Adam", "betas"},
    {"torch.optim.adamw.AdamW", "betas"},
    {"torch.optim.nadam.NAdam", "betas"},
    {"torch.optim.radam.RAdam", "betas"},
    {"torch.optim.sparse_adam.SparseAdam", "betas"},
    {"torch.optim.rmsprop.RMSprop", "alpha"},
    {"torch.optim.adadelta.Adadelta", "rho"},
    {"torch.optim.adagrad.Adagrad", ""},
};

constexpr double kLimitOfF32 = std::numeric_limits<float>::max();

/// The last number of "(0.9, 0.999)", or of "0.99".
std::optional<double> last_number(std::string_view text) {
  if (text.ends_with(')')) text.remove_suffix(1);
  const size_t comma = text.rfind(", ");
  return Facts::number(comma == std::string_view::npos ? text : text.substr(comma + 2));
}

const Row* row_of(std::string_view name) {
  const auto row = std::ranges::find(kKeepsSquares, name, &Row::name);
  return row == std::end(kKeepsSquares) ? nullptr : row;
}

}  // namespace

Overflow squared_overflow(const Value& gradient, const Facts& facts) {
  if (!gradient.finite()) return Overflow::kNone;
  const double largest = gradient.stats.amax.as_f64(),
               limit = format::largest_finite(gradient.dtype);
  if (!(limit > 0) || !(largest * largest > limit)) return Overflow::kNone;
  const Facts::Settings& classes = facts.settings("class");
  if (classes.empty()) return Overflow::kNone;
  double least_share = 1;
  for (const auto& [group, name] : classes) {
    const Row* const row = row_of(name);
    if (row == nullptr) return Overflow::kNone;
    if (row->setting.empty()) continue;
    for (const auto& [of, value] : facts.settings(row->setting))
      if (const auto kept = last_number(value); kept)
        least_share = std::min(least_share, 1 - *kept);
  }
  if (least_share * largest * largest > limit) return Overflow::kCertain;
  // For 16-bit gradients the average may be computed in 32 bits, and a weight may stay by rounding.
  return limit >= kLimitOfF32 ? Overflow::kPossible : Overflow::kNone;
}

std::string_view optimizer_class(const Facts& facts) {
  const Facts::Settings& classes = facts.settings("class");
  if (classes.empty()) return "the optimizer";
  const std::string_view name = classes.begin()->second;
  return name.substr(name.rfind('.') + 1);
}

}  // namespace convtrace::check
