#pragma once
/// @file reference.h
/// Generates the manual page and the shell completion of a program from its command line
/// definition.
///
/// Place:    the build calls `PROGRAM --generate man|bash`, so neither can be out of date.

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convtrace::tools {

/// An additional section of the page: its title, and pairs of a term and its text.
struct ManualSection {
  std::string title;
  std::vector<std::pair<std::string, std::string>> entries;
};

[[nodiscard]] std::string manual_page(const CLI::App& app,
                                      const std::vector<ManualSection>& sections = {});

/// @return completion for bash; zsh loads it with bashcompinit.
[[nodiscard]] std::string bash_completion(const CLI::App& app);

}  // namespace convtrace::tools
