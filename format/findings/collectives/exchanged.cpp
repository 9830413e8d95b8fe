#include "format/findings/collectives/exchanged.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace convtrace::judge {
namespace {

using format::TensorStats;

/// Operations that put something in the place of what was there.
bool replaces(std::string_view op) {
  constexpr std::array<std::string_view, 5> kOps = {"recv", "broadcast", "all_gather", "scatter",
                                                    "all_to_all"};
  return std::ranges::find(kOps, op) != kOps.end();
}

/// Memory without a generation was there before the trace, and is: when it is given out again, it has
/// one.
bool overlap(const TensorStats& a, const TensorStats& b) {
  return a.value.generation == b.value.generation && a.address < b.address + b.bytes &&
         b.address < a.address + a.bytes;
}

}  // namespace

void Exchanged::see(const TensorStats& event) {
  const bool received = definitions_.text(event.slot).starts_with("received");
  const bool replacing = received && replaces(definitions_.text(event.op));
  std::vector<TensorStats>& list = replacing ? replacing_ : others_;
  if (list.size() == kMost) return;
  TensorStats& kept = list.emplace_back(event);
  kept.shape = {};
  kept.range_hashes = {};
  kept.samples = kept.leading = {};
  kept.pad_rows = {};
}

std::optional<Exchanged::Overwritten> Exchanged::look(const TensorStats& gradient) const {
  if (replacing_.empty() || replacing_.size() == kMost || others_.size() == kMost) return {};
  const auto meets = [&gradient](const TensorStats& one) { return overlap(one, gradient); };
  if (std::ranges::any_of(others_, meets)) return {};
  const auto first = std::ranges::find_if(replacing_, meets);
  if (first == replacing_.end()) return {};
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  for (const TensorStats& one : replacing_)
    if (meets(one))
      parts.emplace_back(std::max(one.address, gradient.address),
                         std::min(one.address + one.bytes, gradient.address + gradient.bytes));
  std::ranges::sort(parts);
  uint64_t covered = 0, end = 0;
  for (const auto& [from, to] : parts) {
    if (to > end) covered += to - std::max(from, end);
    end = std::max(end, to);
  }
  if (covered == gradient.bytes) return {};
  return Overwritten{.by = *first, .address = parts.front().first, .bytes = covered};
}

void Exchanged::forget() {
  replacing_.clear();
  others_.clear();
}

}  // namespace convtrace::judge
