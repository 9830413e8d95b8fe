#pragma once
/// @file process_facts.h
/// What META says about this process before any framework has spoken.
///
/// Threads:  plain functions; the environment is read once, when the trace is opened.

#include <string>
#include <string_view>
#include <vector>

#include "format/model/meta.h"

namespace convtrace::engine {

/// Hides values that follow names like *token*, *key*, *password*, *secret* (any case): in
/// `--api-key VALUE`, `--api-key=VALUE`, `NAME=VALUE` and `{"name": "VALUE"}`-like texts each as
/// far as the argument goes.
[[nodiscard]] std::vector<std::string> mask_secrets(std::vector<std::string> command_line);

/// Whether a value of that name must not be shown.
[[nodiscard]] bool is_secret_name(std::string_view name);

/// @return the arguments of this process, unmasked.
[[nodiscard]] std::vector<std::string> read_command_line();

/// @return host name; "unknown" if there is none.
[[nodiscard]] std::string host_name();

/// `switch.*` facts of the environment variables that change numerics, those that are set.
/// @param environment null-terminated "NAME=value" entries.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> numerics_switches(
    const char* const* environment);

/// META as far as this process knows it itself. uuid and clocks are left to the writer.
[[nodiscard]] format::TraceMeta process_meta(const char* const* environment);

}  // namespace convtrace::engine
