#pragma once
/// @file command.h
/// `convtrace origin`: where a job went wrong first.

#include "tools/common/commands.h"

namespace convtrace::origin {

void add_origin(tools::Commands& commands);

}  // namespace convtrace::origin
