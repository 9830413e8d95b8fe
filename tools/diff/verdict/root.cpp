#include "tools/diff/verdict/root.h"

#include <algorithm>

namespace convtrace::diff {

std::optional<RootChoice> choose_root(std::span<const Comparison> comparisons,
                                      const Lineage& lineage) {
  const auto diverged = [](const Comparison& c) {
    return c.verdict >= Class::kDiverged && c.verdict != Class::kChangedBetween;
  };
  auto first =
      std::ranges::find_if(comparisons, [&](const Comparison& c) { return diverged(c) && c.born; });
  if (first == comparisons.end()) first = std::ranges::find_if(comparisons, diverged);
  std::optional<RootChoice> root;
  if (first != comparisons.end()) {
    root = {static_cast<uint32_t>(first - comparisons.begin()), {}};
  }
  // The value was still right at its producer: whatever parted after that may be a victim of it.
  const auto changed = std::ranges::min_element(lineage.changed, {}, &ChangedBetween::producer);
  if (changed != lineage.changed.end() && (!root || changed->producer < root->match)) {
    return RootChoice{changed->producer, *changed};
  }
  return root;
}

}  // namespace convtrace::diff
