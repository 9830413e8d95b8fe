#include "tools/diff/compare/dimensions.h"

#include <algorithm>
#include <ranges>

#include "tools/common/element.h"

namespace convtrace::diff {
namespace {

bool is_activation(Role kind) {
  return kind == Role::kInput || kind == Role::kOutput || kind == Role::kGradOutput ||
         kind == Role::kGradInput || is_other(kind);
}

/// The numbers of the dimensions in the candidate's order, those of size 1 left out.
std::vector<size_t> long_ones(std::span<const uint64_t> shape, const std::vector<size_t>& order) {
  std::vector<size_t> result;
  for (const size_t dimension : order)
    if (shape[dimension] != 1) result.push_back(dimension);
  return result;
}

/// @return the samples if they include all elements, else none: in another order of dimensions a
/// partial sample takes other elements.
std::vector<std::byte> all_samples(const ValueView& value) {
  const ValueRecord& record = value.record;
  const size_t all = record.stats.count * tools::component_bytes(record.dtype);
  if (record.stats.count > format::kMaxWhole || value.samples.size() < all) return {};
  return {value.samples.begin(), value.samples.begin() + static_cast<ptrdiff_t>(all)};
}

ValueRecord without_places(ValueRecord record) {
  record.in_pieces = true;
  record.stats.sketch = {};
  return record;
}

}  // namespace

std::optional<Turned> turned(const std::vector<DimensionRule>& rules,
                             const format::Definitions& names, const ValueView& base,
                             const ValueView& cand) {
  const ValueRecord &a = base.record, &b = cand.record;
  if (!is_activation(a.kind) || !a.has_shape || !b.has_shape ||
      base.shape.size() != cand.shape.size() || a.stats.hash == b.stats.hash)
    return std::nullopt;
  const auto rule =
      std::ranges::find_if(rules.rbegin(), rules.rend(),
                           [&](const DimensionRule& one) { return fits(one.pattern, names, a); });
  if (rule == rules.rend() || rule->order.size() > base.shape.size()) return std::nullopt;
  std::vector<size_t> own(base.shape.size()), order(rule->order.begin(), rule->order.end());
  for (size_t i = 0; i < own.size(); ++i) own[i] = i;
  order.insert(order.end(), own.begin() + static_cast<ptrdiff_t>(order.size()), own.end());
  for (size_t i = 0; i < order.size(); ++i)
    if (cand.shape[i] != base.shape[order[i]]) return std::nullopt;
  Turned result{a, b, {base.shape.begin(), base.shape.end()}, {}, {}};
  if (long_ones(base.shape, own) == long_ones(base.shape, order)) {  // no element has moved
    result.base_samples.assign(base.samples.begin(), base.samples.end());
    result.cand_samples.assign(cand.samples.begin(), cand.samples.end());
    return result;
  }
  result.base_record = without_places(a);
  result.cand_record = without_places(b);
  result.base_samples = all_samples(base);
  result.cand_samples = all_samples(cand);
  return result;
}

}  // namespace convtrace::diff
