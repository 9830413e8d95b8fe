#pragma once
/// @file records.h
/// What a rank of a made-up job did, before it is written: events with names of the job instead of
/// ids of a trace.
///
/// Threads:  Names has one writer; reading beside it only where nothing is added.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "format/model/collective.h"
#include "format/model/event_enums.h"
#include "tests/simulate/tensor.h"

namespace convtrace::simulate {

/// Index of a text in Names; 0: none.
using Name = uint32_t;

class Names {
 public:
  Names() : texts_(1) {}
  Name of(std::string_view text) {
    const auto [found, added] = numbers_.try_emplace(std::string(text), texts_.size());
    if (added) texts_.emplace_back(text);
    return found->second;
  }
  [[nodiscard]] const std::string& text(Name name) const { return texts_[name]; }
  [[nodiscard]] size_t count() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string, Name> numbers_;
};

struct Record {
  enum class Kind : uint8_t { kStep, kEnter, kLeave, kFact, kStats, kCollective };
  Kind kind = Kind::kStats;
  format::Phase phase = format::Phase::kForward;
  format::DType dtype = format::DType::kUnknown;  ///< kCollective
  Name scope = 0;
  Name slot = 0;  ///< kStats; kCollective: the reduction; kFact: its value
  Name op = 0;    ///< kFact: its name
  uint32_t call = 0;
  uint64_t t_ns = 0;
  uint64_t id = 0;  ///< of the collective
  Value value;
  // kCollective
  uint32_t group = 0, group_rank = 0;
  uint32_t peer = format::kNoPeer;
  uint64_t sent = 0, received = 0, number = 0;
};

}  // namespace convtrace::simulate
