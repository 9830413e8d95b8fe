#pragma once
/// @file python_answer.h
/// Asks a Python for facts about itself, with one child process for all checks that need them.
///
/// Errors:   null for a Python that does not run, or whose answer is invalid.

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace convtrace::tools::doctor {

/// @return an object:
///   python   [major, minor]
///   torch    version, or null
///   hooks    names of the memory hooks that its libc10.so exports
///   cupti    paths of libcupti that its packages bring
///   trouble  what went wrong when looking, if anything did
[[nodiscard]] nlohmann::json python_answer(const std::string& python);

}  // namespace convtrace::tools::doctor
