#pragma once
/// @file reference.h
/// Manual page and shell completion of a program, made of its command line as it is parsed.
///
/// Place:    `PROGRAM --generate man|bash`, called by the build; so neither can be out of date.

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convtrace::tools {

/// A further section of the page: its title, and pairs of a term and its text.
struct ManualSection {
  std::string title;
  std::vector<std::pair<std::string, std::string>> entries;
};

[[nodiscard]] std::string manual_page(const CLI::App& app,
                                      const std::vector<ManualSection>& sections = {});

/// For bash; zsh takes it through bashcompinit.
[[nodiscard]] std::string bash_completion(const CLI::App& app);

}  // namespace convtrace::tools
