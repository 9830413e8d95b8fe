#pragma once
/// @file shown_cause.h
/// A cause that follows from the values alone: one run's values occur elsewhere in the other run.
///
/// Place:    this room finds it in the root's step and beside it; cause/rules.cpp tells it.

#include <string>
#include <vector>

namespace convtrace::diff {

struct ShownCause {
  std::string rule;                   ///< its name in the JSON report
  std::string text;                   ///< one line
  std::vector<std::string> evidence;  ///< the connection to the root
  bool is_certain = true;             ///< false: a setting or a generator may be the reason
  double factor = 0;                  ///< that all gradients have; 0: none
};

/// @return the run, in words.
[[nodiscard]] inline const char* run_name(bool in_base) {
  return in_base ? "baseline" : "candidate";
}

}  // namespace convtrace::diff
