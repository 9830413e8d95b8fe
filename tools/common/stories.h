#pragma once
/// @file stories.h
/// Which findings tell of one bug: those about the same memory, and what the same op or kernel did
/// again.
///
/// Threads:  pure functions.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/model/events.h"

namespace convtrace::tools {

/// What is asked of a finding.
struct StoryPart {
  format::FindingKind kind = format::FindingKind::kOutputAliasesInput;
  format::Level level = format::Level::kWarning;
  bool suppressed = false;
  uint32_t rank = 0;
  uint32_t step = 0;
  std::string place;                     ///< for people: phase and module
  std::string code{};                    ///< op or kernel; empty if none
  std::string slot{}, other{};           ///< as in the record
  uint64_t storage = 0, generation = 0;  ///< 0: not known
  uint64_t address = 0, bytes = 0;
  size_t stacks = 0;  ///< how many of its three it has
};

/// One bug: indices of its findings.
using Story = std::vector<size_t>;

/// Findings are about the same memory if they are about one storage or one generation, or if their
/// ranges overlap in one step, unless two generations say that these were two lives.
/// @param parts  in the order in which they were found.
/// @return every finding in one story, stories by their earliest finding. In each the error that
/// explains the others is first (a stale read explains nothing), the others follow as they were
/// found.
[[nodiscard]] std::vector<Story> tell_stories(std::span<const StoryPart> parts);

/// What belongs to a story's first finding, a line each: "stale-read (error) 3 times in steps 0 to
/// 2, backward h.0.mlp, op demo::gelu". Not escaped where `place` and `code` are not.
[[nodiscard]] std::vector<std::string> story_lines(std::span<const StoryPart> parts,
                                                   const Story& story);

}  // namespace convtrace::tools
