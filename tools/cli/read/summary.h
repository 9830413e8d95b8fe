#pragma once
/// @file summary.h
/// The figures that one pass over a trace gives: counts, losses, sizes, and the cost of tracing.
///
/// Place:    info.cpp prints it.

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "reader/trace_reader.h"
#include "tools/trace/model/losses.h"

namespace convtrace::tools {

struct Summary {
  static constexpr size_t kEventKinds = std::variant_size_v<format::Event>;

  std::array<uint64_t, kEventKinds> records{};
  diff::Losses lost;
  std::array<uint64_t, 4> findings{};  ///< by level, unsuppressed
  uint64_t suppressed = 0;             ///< number of findings that a rule suppresses
  std::optional<std::pair<uint32_t, uint32_t>> steps;
  uint64_t modules = 0;  ///< names of modules that were called
  struct LossValue {
    uint32_t step = 0;
    double value = 0;
  };
  std::optional<std::pair<LossValue, LossValue>> losses;  ///< the first and the last recorded

  /// Size of the records of a kind, as stored in the file.
  struct Size {
    uint64_t records = 0;
    uint64_t bytes = 0;      ///< with header and padding
    uint64_t raw_bytes = 0;  ///< size of the payloads before compression
  };
  Size meta, defs, events, values;
  uint64_t rest_bytes = 0;  ///< file header, index, footer, and damaged bytes

  /// Bytes of the tensors with statistics, in the step that has most of them.
  uint64_t value_bytes_a_step = 0;

  uint64_t event_count = 0;
  std::optional<std::pair<uint64_t, uint64_t>> times_ns;  ///< times of the first and the last event
  uint64_t cost_host_ns = 0, cost_device_ns = 0;          ///< as measured by convtrace

  /// @return seconds between the first and the last event; 0 without two of them.
  [[nodiscard]] double seconds() const;
};

/// Reads all events of `trace`.
[[nodiscard]] Summary summarize(reader::TraceReader& trace);

}  // namespace convtrace::tools
