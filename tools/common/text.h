#pragma once
/// @file text.h
/// Formats numbers, counts, errors and kernel names for people.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/base/status.h"
#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::tools {

/// @return the shortest of fixed and scientific form with `digits` significant digits.
[[nodiscard]] std::string number_text(double value, int digits = 6);
/// @return a percentage, "0.2 %", "1,800 %", never in scientific form; "over 99.99 %" where
/// rounding would give 100 %, "under 0.0001 %" where it would give 0.
[[nodiscard]] std::string percent_text(double share, int digits = 3);
/// @return how many times: "2.5", "500,000", "over 1,000,000,000".
[[nodiscard]] std::string times_text(double factor);
/// @return `value` with thousands separators: "1,234,567".
[[nodiscard]] std::string count_text(uint64_t value);
/// @return "1 step", "2 steps".
[[nodiscard]] std::string counted(uint64_t value, std::string_view noun);
/// @return "module h.0.mlp" or "the root module"; not escaped.
[[nodiscard]] std::string module_text(std::string_view scope);
/// @return one line about an error: the text of its code, the place, and errno's text if `detail`
/// is an errno.
[[nodiscard]] std::string status_text(const Status& status);
/// @return the C++ name of a mangled symbol, or `name` itself. Not escaped.
[[nodiscard]] std::string demangled(std::string_view name);
/// @return a kernel's name for a line of text, of about 120 bytes at most: without its return type,
/// its list of parameters, anonymous namespaces and `at::native::`; the middle of a longer one is
/// left out. Names of frameworks' kernels have up to some thousand. Not unique.
[[nodiscard]] std::string kernel_title(std::string_view name);

/// @return the frames of a stack as recorded, innermost first.
[[nodiscard]] std::vector<std::string> stack_texts(const format::Definitions& definitions,
                                                   format::StackId stack);
/// @return 32 hexadecimal digits.
[[nodiscard]] std::string uuid_text(const std::array<uint8_t, 16>& uuid);
/// @return "cpu", "cuda:0"; "other:0" for other types of device.
[[nodiscard]] std::string device_text(format::Device device);

}  // namespace convtrace::tools
