#pragma once
/// @file golden_values.h
/// Parts of the golden traces: what all of them say of their run, and those that hold values.

#include <string>

#include "format/model/meta.h"

namespace convtrace::test {

[[nodiscard]] format::TraceMeta fixed_meta();

void write_values(const std::string& path);
void write_packed(const std::string& path);

}  // namespace convtrace::test
