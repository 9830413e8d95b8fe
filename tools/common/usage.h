#pragma once
/// @file usage.h
/// The message for a wrong command line: one line with the program's name.

#include <CLI/App.hpp>
#include <string>

#include "tools/common/complaints.h"

namespace convtrace::tools {

/// For `CLI::App::failure_message`.
inline std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  return app->get_name() + ": " + numbered(MessageId::kUsage, error.what()) + " (see --help)\n";
}

}  // namespace convtrace::tools
