#pragma once
/// @file rank_text.h
/// Lists of ranks as texts: "0-3,8".

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convtrace::origin {

/// Most members of a group, so that a hostile text cannot demand more memory.
inline constexpr size_t kMostMembers = 1 << 20;

/// @return ranks by rank in the group; nullopt for an invalid text, or one that names more than
/// `kMostMembers` ranks or one rank twice.
[[nodiscard]] std::optional<std::vector<uint32_t>> parse_ranks(std::string_view text);

/// @param ranks  in any order. @return "0-3, 8"; for a long list the first ranges and the number of
/// ranks.
[[nodiscard]] std::string ranks_text(std::vector<uint32_t> ranks, size_t most_ranges = 8);
/// @return "rank 3", "ranks 0-3, 8".
[[nodiscard]] std::string ranks_named(const std::vector<uint32_t>& ranks);

}  // namespace convtrace::origin
