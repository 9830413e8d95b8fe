#pragma once
/// @file fact_groups.h
/// Groups the differing facts of single modules into the lines of a report.
///
/// Place:    facts.cpp.
/// Threads:  plain values.

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/meta.h"
#include "tools/diff/facts/facts.h"

namespace convtrace::diff {

/// @return key and value of each part of "p=0.1, sizes=(2, 3), name='a, b'", without parts that
/// have no `=` and without a truncated last part.
[[nodiscard]] std::map<std::string, std::string> parse_settings(std::string_view text);

/// @return "model.py: class A" of the fact "code.model.py.A", "model.py" of a file's; "" for a fact
/// that is no fingerprint of code.
[[nodiscard]] std::string code_name(std::string_view fact);

/// Names of facts that hold the source of a file or class begin with it; its fingerprint's with `code.`.
inline constexpr std::string_view kSource = "source.";

/// @return the differences of the two runs' code fingerprints, one for each file or class.
[[nodiscard]] std::vector<FactDifference> code_differences(const format::TraceMeta& base,
                                                           const format::TraceMeta& cand);

/// @param name  of such a difference. @return whether it concerns the class with that path:
/// `model.Net`, or `__main__.Net` of a script.
[[nodiscard]] bool is_class(std::string_view name, std::string_view path);

/// @param name  of such a difference. @return whether it concerns a class of that name without path.
[[nodiscard]] bool is_class_named(std::string_view name, std::string_view kind);

/// @param name  of such a difference. @return whether it concerns the class of the code at `place`.
[[nodiscard]] bool is_class_at(std::string_view name, const CodePlace& place);

/// @return whether code of both runs differs and the lines of no difference are known.
[[nodiscard]] bool lacks_source(std::span<const FactDifference> facts);

/// Joins equal differences of several ranks, and of modules whose names differ in numbers only.
[[nodiscard]] std::vector<FactDifference> grouped(std::span<const FactDifference> facts);

}  // namespace convtrace::diff
