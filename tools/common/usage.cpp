#include "tools/common/usage.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "format/settings/nearest.h"

namespace convtrace::tools {

std::string unknown_option(const CLI::App& app) {
  const CLI::App* asked = &app;
  while (!asked->get_subcommands().empty()) asked = asked->get_subcommands().front();
  std::vector<std::string> names;
  for (const CLI::Option* option : asked->get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  for (const std::string& word : app.remaining(true)) {
    if (!word.starts_with("-") || word == "-" || word == "--") continue;
    const std::string option = word.substr(0, word.find('='));
    const std::string_view near = settings::nearest(option, views);
    return "unknown option " + settings::quoted(option) +
           (near.empty() ? "" : "; the nearest is " + std::string(near));
  }
  return "";
}

}  // namespace convtrace::tools
