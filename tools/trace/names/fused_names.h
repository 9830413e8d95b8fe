#pragma once
/// @file fused_names.h
/// Modules that one program has as one and another as several beside each other.

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace convtrace::diff {

/// By the name of the one, without its path, the names of the several: "qkv_proj" of "q_proj",
/// "k_proj" and "v_proj".
using FusedNames = std::map<std::string, std::vector<std::string>, std::less<>>;

/// The names that frameworks give to what they fuse.
[[nodiscard]] FusedNames usual_fused_names();

/// @return the path of a module beside the one at `path`.
[[nodiscard]] std::string beside(std::string_view path, std::string_view name);

}  // namespace convtrace::diff
