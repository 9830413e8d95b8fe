#pragma once
/// @file run.h
/// Judges the traces of one run, all ranks.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/check/model/result.h"

namespace convtrace::check {

/// @param paths  traces, or folders of traces. @param wanted  which ids are looked for.
/// @param error  one line, escaped, when a path cannot be read.
/// @return false with `error` set.
[[nodiscard]] bool check_run(const std::vector<std::string>& paths,
                             const std::function<bool(std::string_view)>& wanted,
                             CheckResult& result, std::string& error);

}  // namespace convtrace::check
