#pragma once
/// @file renames.h
/// Paths of modules that two programs name differently, as the user says it.
///
/// Threads:  pure functions.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace convtrace::diff {

/// A module path in the baseline, or the beginning of one, and its counterpart in the candidate.
struct ScopeRename {
  std::string base, cand;
};

/// @return the path with `to` in place of its beginning, `from`; nullopt if it begins otherwise. A
/// part `*` of `from` is any one part, which stands for the `*` of `to` with the same number.
[[nodiscard]] std::optional<std::string> renamed(std::string_view path, std::string_view from,
                                                 std::string_view to);

/// @return the baseline's path of a module, by the first rule that applies; nullopt: none does.
[[nodiscard]] std::optional<std::string> path_in_base(std::string_view cand,
                                                      std::span<const ScopeRename> rules);

/// Modules that one program has as one and another as several beside each other.
/// By the name of the one, without its path, the names of the several: "qkv_proj" of "q_proj",
/// "k_proj" and "v_proj".
using FusedNames = std::map<std::string, std::vector<std::string>, std::less<>>;

/// The names that frameworks give to fused parameters.
[[nodiscard]] FusedNames usual_fused_names();

/// @return the path of a module beside the one at `path`.
[[nodiscard]] std::string beside(std::string_view path, std::string_view name);

}  // namespace convtrace::diff
