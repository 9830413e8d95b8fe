#pragma once
/// @file output_learner.h
/// Learns which pointers among a kernel's parameters lead to memory that the kernel writes.
///
/// A signature does not say so. A probe compares the hash of the memory before a launch with the
/// hash after it. The first launches are probed, and later ones now and then: a kernel may write a
/// buffer only in some launches, and another stream may have caused a change.
///
/// Place:    one for each kernel that a rule with `outputs = "auto"` matches (function_table.h).
///           The gate asks before a launch; results of probes arrive when the device is done.
/// Threads:  any, without a lock.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace convtrace::cupti {

class OutputLearner {
 public:
  /// Results of the probes of one word.
  struct Evidence {
    uint32_t probes = 0;
    uint32_t changes = 0;  ///< probes that found the memory changed

    /// Rare changes may be made by another stream, as to an input that the next batch is copied
    /// into.
    [[nodiscard]] bool is_output() const noexcept {
      return changes > 0 && uint64_t{changes} * kRarest >= probes;
    }
  };

  enum class Wish : uint8_t { kNothing, kTake, kProbe };

  static constexpr uint32_t kFirstProbes = 8;  ///< launches that are all probed
  static constexpr uint32_t kProbeAgain = 64;  ///< later, one launch in so many is probed
  /// A word with fewer changes than one in so many probes is no output.
  static constexpr uint32_t kRarest = 16;

  /// @param words 8-byte words of the kernel's parameters.
  explicit OutputLearner(size_t words) : evidence_(words) {}

  /// Counts a launch. @return whether all of its words are to be probed.
  [[nodiscard]] bool begin_launch() noexcept {
    const uint32_t launch = launches_.fetch_add(1, std::memory_order_relaxed);
    return launch < kFirstProbes || launch % kProbeAgain == 0;
  }

  /// @param probe_all  what begin_launch() said.
  [[nodiscard]] Wish wish(size_t word, bool probe_all) const noexcept {
    const Evidence known = evidence(word);
    // Results of probes come late, and some words are no pointers in the first launches.
    if (probe_all || known.probes < kFirstProbes) return Wish::kProbe;
    return known.is_output() ? Wish::kTake : Wish::kNothing;
  }

  /// Adds the result of a probe. @return all evidence about the word, with this one.
  Evidence add(size_t word, bool changed) noexcept {
    const uint64_t one = kProbe + (changed ? kChange : 0);
    return unpack(evidence_[word].fetch_add(one, std::memory_order_relaxed) + one);
  }

  [[nodiscard]] Evidence evidence(size_t word) const noexcept {
    return unpack(evidence_[word].load(std::memory_order_relaxed));
  }

 private:
  static constexpr uint64_t kProbe = 1;
  static constexpr uint64_t kChange = uint64_t{1} << 32;
  static Evidence unpack(uint64_t both) noexcept {
    return {static_cast<uint32_t>(both), static_cast<uint32_t>(both >> 32)};
  }

  std::atomic<uint32_t> launches_{0};
  std::vector<std::atomic<uint64_t>> evidence_;  ///< by word: probes, and changes above
};

}  // namespace convtrace::cupti
