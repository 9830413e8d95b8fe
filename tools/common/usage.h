#pragma once
/// @file usage.h
/// The message for a wrong command line: one line with the program's name. It begins with an option
/// that is unknown: what is missing or too much beside it is often its consequence.

#include <CLI/App.hpp>
#include <string>

#include "tools/common/complaints.h"

namespace convtrace::tools {

/// @return the first unknown option and the option of the command that is nearest to it; "" if all
/// options are known.
[[nodiscard]] std::string unknown_option(const CLI::App& app);

/// For `CLI::App::failure_message`.
inline std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  const std::string unknown = unknown_option(*app);
  return app->get_name() + ": " +
         numbered(MessageId::kUsage, unknown.empty() ? error.what() : unknown) + " (see --help)\n";
}

}  // namespace convtrace::tools
