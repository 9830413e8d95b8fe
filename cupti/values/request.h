#pragma once
/// @file request.h
/// What is asked for of a tensor on a device.

#include <cstdint>

#include "cupti/stats/tile/tensor_view.h"
#include "format/model/events.h"
#include "format/settings/rule_book.h"

namespace convtrace::cupti {

class OutputLearner;
class StreamUses;

/// Half of a probe (output_learner.h): the hash in front of a launch, or the value behind it.
struct Probe {
  OutputLearner* learner = nullptr;  ///< null: it is no probe; outlives its results
  uint64_t id = 0;                   ///< joins the two halves
  uint32_t word = 0;
  bool before = false;
};

/// A read that the program does not know of (stream_uses.h).
struct OwnRead {
  StreamUses* uses = nullptr;  ///< null: it needs no watch; outlives its results
  uint64_t generation = 0;     ///< of what is read
  uint64_t number = 0;
};

/// One tensor on a device whose statistics an observer wants. `event` is complete but for its
/// numbers; its shape span is borrowed for the call, all else is copied.
struct DeviceRequest {
  stats::TensorView view;
  format::TensorStats event;
  const settings::Rule* rule = nullptr;  ///< that asks for it, if one does
  uint32_t samples = 8;                  ///< above 8: also so many of the first elements
  Probe probe{};
  OwnRead read{};
};

}  // namespace convtrace::cupti
