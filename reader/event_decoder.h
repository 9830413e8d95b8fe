#pragma once
/// @file event_decoder.h
/// The events of one EVENTS payload, in seq order, a few at a time.
///
/// Place:    trace_reader.cpp; format/file/event_encoder.h is its mirror.
/// Threads:  one owner thread.
/// Errors:   load() verifies everything, so next() cannot fail on a hostile payload.
/// Source:   format/FORMAT.md section 6.

#include <memory>
#include <span>
#include <vector>

#include "format/base/bytes.h"
#include "format/base/status.h"
#include "format/file/columns/step_sums.h"
#include "format/model/events.h"
#include "reader/columns/definition_check.h"
#include "reader/kind_set.h"

namespace convtrace::reader {

class EventDecoder {
 public:
  EventDecoder();
  ~EventDecoder();

  /// @param raw         payload, aligned to 8 bytes; borrowed until the next load().
  /// @param item_count  from the record header; must be what the payload holds.
  /// @param wanted      events of other kinds are not made, nor are their columns checked.
  /// @return kCorrupt, kLimitExceeded; then there are no events.
  [[nodiscard]] Status load(Bytes raw, uint32_t item_count, KindSet wanted = kAllKinds);

  /// Forgets the chunk: no events.
  void clear();

  /// @return the step sums that the chunk states of itself; none if they are damaged.
  [[nodiscard]] std::vector<format::StepSums> sums() const;

  /// @return number of the first event; those after it have the next ones.
  [[nodiscard]] uint64_t first_seq() const;

  /// @return whether all that the events name is defined, of those wanted and understood; then
  /// DefinitionCheck::resolves() need not be asked for each.
  [[nodiscard]] bool resolved_by(const DefinitionCheck& check) const;

  /// Makes the next events, at most kBatch, in seq order. Those of a kind, or with an enumerator,
  /// that a newer version added are passed over.
  /// @return none at the end. They, with their spans and texts, are valid until the next call,
  /// load() or clear(). Enumerators are always ones that events.h names; definition ids are not
  /// checked.
  [[nodiscard]] std::span<const format::Event> next();
  static constexpr size_t kBatch = 64;

  /// @return how many events next() has passed over since load().
  [[nodiscard]] uint64_t not_understood() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::reader
