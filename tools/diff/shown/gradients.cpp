#include "tools/diff/shown/gradients.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tools/common/element.h"
#include "tools/common/text.h"
#include "tools/diff/compare/compare.h"

namespace convtrace::diff {
namespace {

bool is_gradient(const ValueRecord& record) {
  return is_parameter_gradient(record.kind) && !record.key.op;
}

/// @return the multiple that a gradient without a sketch is, by its samples.
std::optional<Factor> multiple_of_small(const ValueView& base, const ValueView& cand) {
  return multiple_of(tools::decode_elements(base.record.dtype, base.samples),
                     tools::decode_elements(cand.record.dtype, cand.samples), base.record.stats.l2,
                     cand.record.stats.l2);
}

/// The multiple that all gradients have in common.
/// @param factors  of those that differ
/// @param others  norms of gradients that are equal, or too small to have one
std::optional<double> common_factor(std::span<const std::optional<Factor>> factors,
                                    std::span<const std::pair<double, double>> others) {
  std::optional<Factor> first;
  for (const auto& factor : factors) {
    if (!factor || factor->is_one()) return std::nullopt;
    if (!first) first = factor;
    if (!Factor{factor->value / first->value, factor->rest + first->rest}.is_one())
      return std::nullopt;
  }
  if (!first || factors.size() < 2) return std::nullopt;
  constexpr double kOfNorms = 0.01;
  for (const auto& [base, cand] : others)
    if (std::abs(cand - first->value * base) > kOfNorms * cand) return std::nullopt;
  return first->value;
}

/// @return the factor by which a GradScaler multiplied the loss of a step; 1 without one.
double loss_scale(const StepRecords& step) {
  const auto found = std::ranges::find(step.values, Role::kLossScale, &ValueRecord::kind);
  return found == step.values.end() ? 1 : found->stats.mean;
}

/// @param unscaled  the factor is the loss scale, by which one run has divided its gradients already
ShownCause scaled(double factor, uint64_t count, uint64_t passes, bool behind_loss, bool unscaled) {
  const double by = factor > 1 ? factor : 1 / factor;
  const bool of_passes = passes > 1 && Factor{by / static_cast<double>(passes), 0}.is_one();
  std::string why;
  if (of_passes) {
    why = ", and the step has " + tools::count_text(passes) +
          " backward passes: the loss is divided otherwise";
  } else if (!behind_loss) {
    why = ": the loss is scaled or divided otherwise";
  } else if (unscaled) {
    why = std::string(", which is the loss scale: the ") + run_name(factor < 1) +
          "'s are not unscaled here (GradScaler.unscale_ belongs before clipping and every other "
          "use)";
  } else {
    why = ": they are scaled or summed otherwise";
  }
  return {"scaled-gradient",
          "all gradients are " + tools::number_text(factor, 4) + " times the baseline's" + why,
          {"the gradients of " + tools::counted(count, "parameter") + " have this one factor"},
          false,
          factor};
}

}  // namespace

void Gradients::take(const StepRecords& step, bool in_base) {
  OfRun& run = last_[in_base ? 0 : 1];
  if (step.step != run.step + 1) run.last.clear();
  run.step = step.step;
  for (const ValueRecord& record : step.values)
    if (is_gradient(record) && record.kind == Role::kGradient)
      run.last[parameter_key(record)] = {step.step, record.stats.sketch};
}

std::optional<uint32_t> Gradients::added_step(std::span<const Pair> pairs, bool in_base,
                                              uint32_t step) const {
  const OfRun& run = last_[in_base ? 0 : 1];
  if (run.step + 1 != step) return std::nullopt;
  std::optional<uint32_t> found;
  for (const Pair& pair : pairs) {
    const auto before = run.last.find(pair.parameter);
    if (before == run.last.end() || !before->second.sketch.is_known()) return std::nullopt;
    if (found.value_or(before->second.step) != before->second.step) return std::nullopt;
    found = before->second.step;
    const format::Sketch& with = in_base ? *pair.base : *pair.cand;
    const auto added =
        multiple_of(before->second.sketch, minus(with, in_base ? *pair.cand : *pair.base));
    if (!added || !added->is_one()) return std::nullopt;
  }
  return found;
}

std::optional<ShownCause> Gradients::show(const StepRecords& base, const StepRecords& cand,
                                          std::span<const Match> matches, bool behind_loss) const {
  std::vector<Pair> pairs;
  std::vector<std::optional<Factor>> factors;
  std::vector<std::pair<double, double>> others;
  std::unordered_set<uint64_t> seen;
  for (const Match& match : matches) {
    const ValueRecord &a = base.values[match.base], &b = cand.values[match.cand];
    if (!is_gradient(a) || !seen.insert(parameter_key(a)).second) continue;
    const bool is_known = a.stats.sketch.is_known() && b.stats.sketch.is_known();
    if (is_known && a.stats.hash != b.stats.hash) {
      pairs.push_back({parameter_key(a), &a.stats.sketch, &b.stats.sketch});
      factors.push_back(multiple_of(a.stats.sketch, b.stats.sketch));
    } else if (auto small = multiple_of_small(view(base, a), view(cand, b));
               small && !small->is_one()) {
      factors.push_back(small);
    } else {
      others.emplace_back(a.stats.l2, b.stats.l2);
    }
  }
  for (const bool in_base : {false, true}) {
    if (pairs.empty()) break;
    const auto added = added_step(pairs, in_base, base.step);
    if (!added) continue;
    const std::string before = std::to_string(*added), now = std::to_string(base.step);
    const std::string other = run_name(!in_base);
    const std::string some =
        seen.size() == pairs.size() ? "" : " of " + tools::counted(pairs.size(), "parameter");
    return ShownCause{
        "not-zeroed",
        std::string("the ") + run_name(in_base) + "'s gradients" + some +
            " were not set to zero between steps " + before + " and " + now,
        {"those of " + tools::counted(pairs.size(), "parameter") + " are the " + other +
         "'s of step " + now + " and its own of step " + before + " added up"}};
  }
  const auto factor = common_factor(factors, others);
  if (!factor) return std::nullopt;
  const auto passes = std::ranges::count_if(
      base.values, [](const ValueRecord& one) { return one.kind == Role::kLoss; });
  const double by = std::max(*factor, 1 / *factor);
  const bool unscaled =
      std::ranges::any_of(std::array{loss_scale(base), loss_scale(cand)}, [by](double scale) {
        return scale > 1 && Factor{by / scale, 0}.is_one();
      });
  return scaled(*factor, seen.size(), static_cast<uint64_t>(passes), behind_loss, unscaled);
}

}  // namespace convtrace::diff
