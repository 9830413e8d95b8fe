#pragma once
/// @file on_threads.h
/// Does numbered pieces of work on several threads.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace convtrace::tools {

/// Calls `work(i)` once for each i < count, on up to `threads` threads, this one included.
/// @param work  must not throw.
template <typename Work>
void on_threads(size_t count, unsigned threads, const Work& work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> others;
  try {
    while (others.size() + 1 < std::min<size_t>(threads, count)) others.emplace_back(run);
  } catch (const std::system_error&) {  // fewer, then
  }
  run();
  for (std::thread& other : others) other.join();
}

}  // namespace convtrace::tools
