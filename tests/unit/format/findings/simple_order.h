#pragma once
/// @file simple_order.h
/// What comes before what on four streams, by the rules of the programming guide: slow and simple,
/// written down for every piece of work. Streams: 0 legacy, 1 and 2 non-blocking, 3 blocking.

#include <array>
#include <bitset>
#include <cstddef>
#include <vector>

#include "tests/support/catch.h"

namespace convtrace::test {

inline constexpr size_t kMostWork = 192;
inline constexpr size_t kStreamCount = 4, kEvents = 2;

/// One piece of work: all that comes before it.
using Ancestors = std::bitset<kMostWork>;

/// What comes before what, by the rules of the programming guide.
class SimpleOrder {
 public:
  size_t work(size_t stream) {
    Ancestors before = host_;
    follow(stream, before);
    if (stream == 0) {
      follow(3, before);
    } else if (stream == 3) {
      follow(0, before);
    }
    return add(stream, before);
  }
  void record(size_t event, size_t stream) { recorded_[event] = work(stream) + 1; }
  void wait(size_t event, size_t stream) {
    const size_t node = work(stream);
    if (recorded_[event] != 0) come_behind(node, recorded_[event] - 1);
  }
  void host_waits_for_event(size_t event) {
    if (recorded_[event] != 0) host_learns(recorded_[event] - 1);
  }
  void host_waits_for_stream(size_t stream) {
    if (last_[stream] != 0) host_learns(last_[stream] - 1);
    if (stream == 0 && last_[3] != 0) host_learns(last_[3] - 1);
    if (stream == 3 && last_[0] != 0) host_learns(last_[0] - 1);
  }
  void host_waits_for_all() {
    for (size_t stream = 0; stream < kStreamCount; ++stream) host_waits_for_stream(stream);
  }
  [[nodiscard]] bool before(size_t earlier, size_t later) const { return nodes_[later][earlier]; }
  [[nodiscard]] bool done(size_t node) const { return host_[node]; }
  [[nodiscard]] size_t size() const { return nodes_.size(); }
  [[nodiscard]] size_t stream_of(size_t node) const { return streams_[node]; }

 private:
  void follow(size_t stream, Ancestors& before) const {
    if (last_[stream] == 0) return;
    before |= nodes_[last_[stream] - 1];
    before.set(last_[stream] - 1);
  }
  size_t add(size_t stream, const Ancestors& before) {
    nodes_.push_back(before);
    streams_.push_back(stream);
    last_[stream] = nodes_.size();
    return nodes_.size() - 1;
  }
  void come_behind(size_t node, size_t earlier) {
    nodes_[node] |= nodes_[earlier];
    nodes_[node].set(earlier);
  }
  void host_learns(size_t node) {
    host_ |= nodes_[node];
    host_.set(node);
  }
  std::vector<Ancestors> nodes_;
  std::vector<size_t> streams_;
  std::array<size_t, kStreamCount> last_{};  ///< plus one
  std::array<size_t, kEvents> recorded_{};   ///< plus one
  Ancestors host_;
};

}  // namespace convtrace::test
