#include "tools/common/stories.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

/// Sets that grow together.
class Groups {
 public:
  explicit Groups(size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }
  size_t of(size_t one) {
    while (parent_[one] != one) one = parent_[one] = parent_[parent_[one]];
    return one;
  }
  /// The earlier one stands for both.
  void join(size_t a, size_t b) {
    const auto [first, second] = std::minmax({of(a), of(b)});
    parent_[second] = first;
  }

 private:
  std::vector<size_t> parent_;
};

template <typename Key>
class JoinBy {
 public:
  explicit JoinBy(Groups& groups) : groups_(groups) {}
  void see(const Key& key, size_t index) {
    groups_.join(index, first_.emplace(key, index).first->second);
  }

 private:
  Groups& groups_;
  std::map<Key, size_t> first_;
};

bool one_life(const StoryPart& a, const StoryPart& b) {
  return a.generation == 0 || b.generation == 0 || a.generation == b.generation;
}

void join_overlaps(std::span<const StoryPart> parts, Groups& groups) {
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return parts[i].bytes == 0 || parts[i].address == 0; });
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    return std::tuple(parts[i].rank, parts[i].step, parts[i].address);
  });
  for (size_t i = 0; i < order.size(); ++i) {
    const StoryPart& a = parts[order[i]];
    for (size_t j = i + 1; j < order.size(); ++j) {
      const StoryPart& b = parts[order[j]];
      if (b.rank != a.rank || b.step != a.step || b.address - a.address >= a.bytes) break;
      if (one_life(a, b)) groups.join(order[i], order[j]);
    }
  }
}

/// Smaller explains better.
auto explains(const StoryPart& part) {
  return std::tuple(part.suppressed, part.level, part.kind == format::FindingKind::kStaleRead,
                    3 - part.stacks);
}

}  // namespace

std::vector<Story> tell_stories(std::span<const StoryPart> parts) {
  Groups groups(parts.size());
  JoinBy<std::tuple<uint32_t, char, uint64_t>> memory(groups);
  using Code = std::tuple<std::string, std::string>;
  JoinBy<std::tuple<format::FindingKind, Code, std::string, std::string>> code(groups);
  for (size_t i = 0; i < parts.size(); ++i) {
    const StoryPart& part = parts[i];
    if (part.storage != 0) memory.see({part.rank, 's', part.storage}, i);
    if (part.generation != 0) memory.see({part.rank, 'g', part.generation}, i);
    if (!part.op.empty() || !part.kernel.empty())
      code.see({part.kind, {part.op, part.kernel}, part.slot, part.other}, i);
  }
  join_overlaps(parts, groups);
  std::map<size_t, Story> stories;
  for (size_t i = 0; i < parts.size(); ++i) stories[groups.of(i)].push_back(i);
  std::vector<Story> all;
  for (auto& [first, story] : stories) {
    const auto lead =
        std::ranges::min_element(story, {}, [&](size_t i) { return explains(parts[i]); });
    std::rotate(story.begin(), lead, lead + 1);
    all.push_back(std::move(story));
  }
  return all;
}

std::vector<std::string> story_lines(std::span<const StoryPart> parts, const Story& story) {
  struct Line {
    std::string what, where;
    uint64_t count = 0;
    uint32_t first = format::kNoStep, last = 0;
  };
  std::vector<Line> lines;
  for (size_t i = 1; i < story.size(); ++i) {
    const StoryPart& part = parts[story[i]];
    const std::string what = std::string(to_string(part.kind)) + " (" +
                             std::string(to_string(part.level)) +
                             (part.suppressed ? ", suppressed)" : ")");
    std::string where = part.place;
    if (!part.kernel.empty()) {
      where += ", kernel " + escape_text(kernel_title(part.kernel));
    } else if (!part.op.empty()) {
      where += ", op " + escape_text(part.op);
    }
    auto line = std::ranges::find_if(
        lines, [&](const Line& one) { return one.what == what && one.where == where; });
    if (line == lines.end()) line = lines.insert(line, {what, where});
    ++line->count;
    if (part.step == format::kNoStep) continue;
    line->first = std::min(line->first, part.step);
    line->last = std::max(line->last, part.step);
  }
  std::vector<std::string> texts;
  for (const Line& line : lines) {
    std::string text = line.what;
    if (line.count > 1) text += ' ' + count_text(line.count) + " times";
    if (line.first == line.last) text += " in step " + std::to_string(line.first);
    if (line.first < line.last)
      text += " in steps " + std::to_string(line.first) + " to " + std::to_string(line.last);
    texts.push_back(text + ", " + line.where);
  }
  return texts;
}

}  // namespace convtrace::tools
