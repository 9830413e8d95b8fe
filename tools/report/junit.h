#pragma once
/// @file junit.h
/// JUnit XML of any report, for continuous integration.

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace convtrace::report {

/// Its texts are escaped for a terminal.
struct JunitCase {
  std::string name{};
  std::string failure{};  ///< "": it did not fail
  std::string details{};
  std::string skipped{};  ///< why, of one that did not fail; "": it passed
};

/// @param suite  the command's name. @param cases  of it, in the class `class_name`.
void write_junit(std::string_view suite, std::string_view class_name,
                 const std::vector<JunitCase>& cases, std::ostream& out);

}  // namespace convtrace::report
