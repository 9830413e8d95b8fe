#pragma once
/// @file reference.h
/// Generates the manual page, the shell completion and the message for a wrong command line of a
/// program from its command line definition.
///
/// Place:    the build calls `PROGRAM --generate man|bash`, so neither can be out of date.

#include <CLI/App.hpp>
#include <string>
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

/// For `CLI::App::failure_message`: one line with the program's name. It begins with an option that is
/// unknown: what is missing or too much beside it is often its consequence.
[[nodiscard]] std::string usage_message(const CLI::App* app, const CLI::Error& error);

}  // namespace convtrace::tools
