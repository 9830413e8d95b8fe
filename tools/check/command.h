#pragma once
/// @file command.h
/// `convtrace check`: finds the faults that one run alone proves.

#include "tools/common/commands.h"

namespace convtrace::check {

void add_check(tools::Commands& commands);

}  // namespace convtrace::check
