#pragma once
/// @file rank_text.h
/// Lists of ranks as texts: "0-3,8".

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convtrace::origin {

/// Of a group, so that a hostile text cannot ask for more memory.
inline constexpr size_t kMostMembers = 1 << 20;

/// @return ranks by rank in the group; nullopt for what is no such text, or names more than
/// `kMostMembers` or one rank twice.
[[nodiscard]] std::optional<std::vector<uint32_t>> parse_ranks(std::string_view text);

/// @param ranks  in any order. @return "0-3, 8", of long lists the first ranges and how many there
/// are.
[[nodiscard]] std::string ranks_text(std::vector<uint32_t> ranks, size_t most_ranges = 8);
/// @return "rank 3", "ranks 0-3, 8".
[[nodiscard]] std::string ranks_named(const std::vector<uint32_t>& ranks);

}  // namespace convtrace::origin
