#pragma once
/// @file process_facts.h
/// The facts of META about this process that are known before any framework is loaded.
///
/// Threads:  plain functions; the environment is read once, when the trace is opened.

#include <string>
#include <string_view>
#include <vector>

#include "format/model/meta.h"

namespace convtrace::engine {

/// Replaces values whose names look like *token*, *key*, *password*, *secret* (any case) in
/// `--api-key VALUE`, `--api-key=VALUE`, `NAME=VALUE` and `{"name": "VALUE"}`, each up to the end
/// of the argument.
[[nodiscard]] std::vector<std::string> mask_secrets(std::vector<std::string> command_line);

/// @return whether values of that name are secret.
[[nodiscard]] bool is_secret_name(std::string_view name);

/// @return the arguments of this process, unmasked.
[[nodiscard]] std::vector<std::string> read_command_line();

/// @return host name; "unknown" if there is none.
[[nodiscard]] std::string host_name();

/// @return a `switch.*` fact for each environment variable that is set and changes numerical
/// results.
/// @param environment null-terminated "NAME=value" entries.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> numerics_switches(
    const char* const* environment);

/// @return "NAME=#HASH NAME=#HASH ...", sorted: 32 bits of a hash of the value of each other variable that
/// may influence results, without those whose names look secret and those that differ from start to
/// start. Empty if it would exceed 64 KiB.
[[nodiscard]] std::string hashed_environment(const char* const* environment);

/// @param with_environment  whether hashed_environment() is among the facts.
/// @return META without uuid and clocks, which the writer adds.
[[nodiscard]] format::TraceMeta process_meta(const char* const* environment, bool with_environment);

}  // namespace convtrace::engine
