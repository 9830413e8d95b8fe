#pragma once
/// @file process_rank.h
/// The rank of this process in its job: from the launcher or, without one, from the program's
/// process group once that exists.
///
/// Threads:  any.

#include <atomic>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "format/base/log.h"
#include "format/settings/settings.h"
#include "interposer/core/control/output_name.h"

namespace convtrace::engine {

class ProcessRank {
 public:
  /// @param rank  if it is from a launcher, facts of the program are ignored.
  explicit ProcessRank(const Rank& rank) noexcept
      : given_(rank.given),
        counted_(rank.counted),
        rank_(rank.rank),
        world_size_(rank.world_size) {}

  [[nodiscard]] Rank get() const noexcept {
    return {rank_.load(), world_size_.load(), counted_, given_};
  }

  /// Takes a fact of the observer. @return whether it completes the rank: the rank is reported
  /// first, the number of ranks second.
  bool learn(std::string_view fact, std::string_view value) noexcept {
    uint32_t number = 0;
    const char* const end = value.data() + value.size();
    if (given_ || std::from_chars(value.data(), end, number).ptr != end) return false;
    if (fact == "distributed.rank") rank_.store(number);
    if (fact != "distributed.world_size") return false;
    world_size_.store(number);
    return true;
  }

 private:
  const bool given_;
  const bool counted_;
  std::atomic<uint32_t> rank_, world_size_;
};

/// Limits warnings and notices in the log to the first traced rank of the job.
inline void speak_as(const settings::Settings& settings, const Rank& rank) noexcept {
  set_log_rank(rank.rank == settings.ranks.first() ? 0 : rank.rank);
}

}  // namespace convtrace::engine
