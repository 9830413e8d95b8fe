#pragma once
/// @file command.h
/// `convtrace weights`: whether two programs hold the same weights.

#include "tools/common/commands.h"

namespace convtrace::weights {

void add_weights(tools::Commands& commands);

}  // namespace convtrace::weights
