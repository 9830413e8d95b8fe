#include "tests/simulate/layout.h"

#include <utility>

namespace convtrace::simulate {

Layout Layout::choose(uint32_t ranks, uint32_t data, uint32_t tensor, uint32_t stages) {
  Layout made{ranks, data, tensor, stages};
  const auto fits = [ranks](uint64_t size) { return size != 0 && ranks % size == 0; };
  if (tensor == 0) {
    made.tensor = 1;
    const uint32_t others = (data == 0 ? 2 : data) * (stages == 0 ? 1 : stages);
    for (const uint32_t size : {2U, 4U, 8U})
      if (fits(uint64_t{size} * others)) made.tensor = size;
  }
  if (stages == 0) {
    made.stages = 1;
    const uint32_t others = made.tensor * (data == 0 ? 2 : data);
    for (const uint32_t size : {2U, 4U, 5U})
      if (fits(uint64_t{size} * others)) made.stages = size;
    if (data != 0 && fits(uint64_t{made.tensor} * data)) made.stages = ranks / (made.tensor * data);
  }
  if (data == 0 && fits(uint64_t{made.tensor} * made.stages))
    made.data = ranks / (made.tensor * made.stages);
  if (uint64_t{made.data} * made.tensor * made.stages != ranks) made.ranks = 0;
  return made;
}

std::string members_text(const std::vector<uint32_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(ranks[i]);
    if (last > i) text += '-' + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

Groups::Groups(const Layout& layout) : at_(layout.ranks * kGroupKinds) {
  struct Kind {
    GroupKind kind;
    const char* name;
    uint32_t count, size, stride;
  };
  const uint32_t replica = layout.tensor * layout.data;
  const Kind kinds[] = {
      {GroupKind::kWorld, "c10d:world", 1, layout.ranks, 1},
      {GroupKind::kTensor, "c10d:tp", layout.ranks / layout.tensor, layout.tensor, 1},
      {GroupKind::kData, "c10d:dp", layout.ranks / layout.data, layout.data, layout.tensor},
      {GroupKind::kPipeline, "c10d:pp", replica, layout.stages, replica},
  };
  for (const Kind& kind : kinds) {
    for (uint32_t i = 0; i < kind.count; ++i) {
      const uint32_t first = i / kind.stride * kind.stride * kind.size + i % kind.stride;
      std::vector<uint32_t> members;
      for (uint32_t m = 0; m < kind.size; ++m) members.push_back(first + m * kind.stride);
      const bool named = kind.kind == GroupKind::kWorld;
      add(kind.kind, kind.name + (named ? "" : std::to_string(i)), std::move(members));
    }
  }
}

void Groups::add(GroupKind kind, std::string name, std::vector<uint32_t> members) {
  if (members.size() < 2) return;
  for (uint32_t m = 0; m < members.size(); ++m)
    at_[members[m] * kGroupKinds + static_cast<size_t>(kind)] = {
        static_cast<uint32_t>(groups_.size()), m};
  groups_.push_back({std::move(name), std::move(members)});
}

}  // namespace convtrace::simulate
