#include "format/findings/collectives/exchanged.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace convtrace::judge {
namespace {

using format::TensorStats;

/// @return whether the operation replaces the contents of the tensor that it receives into.
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

bool contains(const TensorStats& outer, const TensorStats& inner) {
  return outer.address <= inner.address &&
         inner.address + inner.bytes <= outer.address + outer.bytes;
}

}  // namespace

/// A reduction of whole gradients behind a receive sums up what that has left there, and in front of it
/// leaves nothing to receive.
bool Exchanged::is_reduced_whole(const TensorStats& one, const TensorStats& gradient) const {
  return definitions_.text(one.op) == "all_reduce" && contains(one, gradient);
}

void Exchanged::see(const TensorStats& event) {
  if (all_.size() == kMost) return;
  const bool received = definitions_.text(event.slot).starts_with("received");
  all_.push_back({event, received && replaces(definitions_.text(event.op))});
  TensorStats& kept = all_.back().tensor;
  kept.shape = {};
  kept.range_hashes = {};
  kept.samples = kept.leading = {};
  kept.pad_rows = {};
}

std::optional<Exchanged::Overwritten> Exchanged::look(const TensorStats& gradient) const {
  if (all_.size() == kMost) return {};
  const TensorStats* first = nullptr;
  bool is_reduced = false, any_straddles = false;
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  for (const auto& [tensor, replacing] : all_) {
    if (!overlap(tensor, gradient)) continue;
    if (!replacing && !is_reduced_whole(tensor, gradient)) return {};
    if (!replacing) {
      is_reduced |= first == nullptr;
      continue;
    }
    // Behind a reduction a part may be dealt out again on purpose, as the rows that one rank has worked
    // on. A message from one rank to another hardly is, nor a tensor that reaches beyond the gradient.
    const bool straddles = !contains(gradient, tensor);
    if (is_reduced && !straddles && definitions_.text(tensor.op) != "recv") return {};
    any_straddles |= straddles;
    if (first == nullptr) first = &tensor;
    parts.emplace_back(std::max(tensor.address, gradient.address),
                       std::min(tensor.address + tensor.bytes, gradient.address + gradient.bytes));
  }
  if (first == nullptr) return {};
  std::ranges::sort(parts);
  uint64_t covered = 0, end = 0;
  for (const auto& [from, to] : parts) {
    if (to > end) covered += to - std::max(from, end);
    end = std::max(end, to);
  }
  if (covered == gradient.bytes) return {};
  return Overwritten{.by = *first,
                     .address = parts.front().first,
                     .bytes = covered,
                     .is_reduced = is_reduced,
                     .straddles = any_straddles};
}

}  // namespace convtrace::judge
