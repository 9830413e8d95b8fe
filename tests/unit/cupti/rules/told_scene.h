#pragma once
/// @file told_scene.h
/// A DeviceScene that is told of the ends of contexts, as under CUPTI: some seeds let no memory be
/// registered, and the driver's own is used then.

#include "tests/unit/cupti/device_scene.h"

namespace convtrace::cupti {

struct ToldScene : DeviceScene {
  explicit ToldScene(ValueSink* values = nullptr, uint64_t value_bytes = 0)
      : DeviceScene(8, values, value_bytes) {
    stats.follow_context_ends(true);
  }
};

}  // namespace convtrace::cupti
