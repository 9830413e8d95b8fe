#pragma once
/// @file request.h
/// A request for the statistics of a tensor on a device.

#include <cstdint>

#include "cupti/stats/tile/tensor_view.h"
#include "format/model/events.h"
#include "format/settings/rule_book.h"

namespace convtrace::cupti {

class OutputLearner;
class StreamUses;

/// Half of a probe (output_learner.h): the hash from before a launch, or the value after it.
struct Probe {
  OutputLearner* learner = nullptr;  ///< null: no probe; outlives its results
  uint64_t id = 0;                   ///< joins the two halves
  uint32_t word = 0;
  bool before = false;
};

/// A read by convtrace that the program does not know of (stream_uses.h).
struct OwnRead {
  StreamUses* uses = nullptr;  ///< null: the read is not checked; outlives its results
  uint64_t generation = 0;     ///< generation of the memory that is read
  uint64_t number = 0;
};

/// When the results of a batch come.
enum class Results : uint8_t {
  kSoon,
  kLater,  ///< at the latest behind the next fold_waiting() or batch, which is certain to follow
};

/// One tensor on a device whose statistics are wanted. `event` is complete except for its
/// statistics. Its shape span is borrowed for the call, everything else is copied.
struct DeviceRequest {
  stats::TensorView view;
  format::TensorStats event;
  const settings::Rule* rule = nullptr;  ///< the rule that asks for it, or null
  uint32_t samples = 8;                  ///< above 8: also records this many of the first elements
  Probe probe{};
  OwnRead read{};
  /// If not 0: reads of one stream with equal moments see equal content (work_clock.h).
  uint64_t moment = 0;
};

}  // namespace convtrace::cupti
