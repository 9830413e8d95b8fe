#pragma once
/// @file usage.h
/// How a wrong command line is answered: one line that names the program.

#include <CLI/App.hpp>
#include <string>

namespace convtrace::tools {

/// For `CLI::App::failure_message`.
inline std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  return app->get_name() + ": " + error.what() + " (see --help)\n";
}

}  // namespace convtrace::tools
