#pragma once
/// @file run.h
/// Judges the traces of one run, all ranks.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/check/model/result.h"

namespace convtrace::check {

using Wanted = std::function<bool(std::string_view)>;

/// @param paths  traces, or folders of traces. @param wanted  which ids are looked for.
/// @param error  one line, escaped, when a path cannot be read.
/// @return false with `error` set.
[[nodiscard]] bool check_run(const std::vector<std::string>& paths, const Wanted& wanted,
                             CheckResult& result, std::string& error);

/// The same while the traces are being written: waits until all are closed, their processes are
/// gone, or Ctrl-C. @param tell  called with each finding that is made before the end.
[[nodiscard]] bool check_live(const std::vector<std::string>& paths, const Wanted& wanted,
                              const std::function<void(const Finding&)>& tell, CheckResult& result,
                              std::string& error);

}  // namespace convtrace::check
