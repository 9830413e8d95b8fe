#pragma once
/// @file stories.h
/// Groups the findings of one bug: findings about the same memory, and repetitions of a finding by
/// the same op or kernel.
///
/// Threads:  pure functions.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/model/events.h"

namespace convtrace::tools {

/// The part of a finding that the grouping needs.
struct StoryPart {
  format::FindingKind kind = format::FindingKind::kOutputAliasesInput;
  format::Level level = format::Level::kWarning;
  bool suppressed = false;
  uint32_t rank = 0;
  uint32_t step = 0;
  std::string place;                     ///< phase and module, for people
  std::string op{}, kernel{};            ///< as in the record; empty if none
  std::string slot{}, other{};           ///< as in the record
  uint64_t storage = 0, generation = 0;  ///< 0: not known
  uint64_t address = 0, bytes = 0;
  size_t stacks = 0;  ///< number of call stacks it has, at most three
};

/// One bug: the indices of its findings.
using Story = std::vector<size_t>;

/// Two findings are about the same memory if they have one storage or one generation, or if their
/// ranges overlap in one step, unless their generations differ.
/// @param parts  in the order in which they were found.
/// @return groups that contain every finding once, ordered by their first findings. In each group
/// the error that explains the others comes first (a stale read explains nothing), the others in
/// the order in which they were found.
[[nodiscard]] std::vector<Story> tell_stories(std::span<const StoryPart> parts);

/// Describes the findings of a story after its first, a line each: "stale-read (error) 3 times in
/// steps 0 to 2, backward h.0.mlp, op demo::gelu". Escaped as far as `place` and `code` are.
[[nodiscard]] std::vector<std::string> story_lines(std::span<const StoryPart> parts,
                                                   const Story& story);

}  // namespace convtrace::tools
