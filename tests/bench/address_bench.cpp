// The address table: rows pointer.*, JSON on stdout.
//
// A launch is 16 words, 5 of them pointers, the others sizes, strides and floats. Its pointers come
// from a window of 64 ranges that moves on, as the tensors of one layer are neighbours in time. The
// same 1500 launches are scanned again and again, as training steps are.
//
// usage: bench_address [--quick]

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cupti/memory/address_map.h"
#include "tests/bench/rows.h"

namespace {

using convtrace::cupti::AddressMap;
using convtrace::cupti::MemoryRange;
using convtrace::format::MemorySource;

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr size_t kWords = 16, kPointers = 5, kWindow = 64, kLaunches = 1500;

/// The least that answers the same question: ranges by base, no freed ranges. A lock for changes,
/// as ours have one; none for lookups.
class MapOfRanges {
 public:
  void allocate(const MemoryRange& range) {
    const std::lock_guard lock(mutex_);
    MemoryRange stored = range;
    stored.generation = ++generations_;
    ranges_.emplace(range.base, stored);
  }
  void release(uint64_t base) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(base);
  }
  [[nodiscard]] const MemoryRange* find(uint64_t address) const {
    auto it = ranges_.upper_bound(address);
    if (it == ranges_.begin()) return nullptr;
    const MemoryRange& range = (--it)->second;
    return address - range.base < range.bytes ? &range : nullptr;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, MemoryRange> ranges_;
  uint64_t generations_ = 0;
};

/// Both hold the same ranges: 70 % below 1 MiB, 25 % 2 to 32 MiB, 5 % to 512 MiB, packed.
struct Memory {
  explicit Memory(size_t count, MemorySource source = MemorySource::kDriver) : random(count) {
    uint64_t next = uint64_t{0x7f} << 40;
    for (size_t i = 0; i < count; ++i) {
      MemoryRange range;
      range.source = source;
      const uint64_t kind = random() % 100;
      if (kind < 70) {
        range.bytes = 512 * (1 + random() % 2048);
      } else {
        range.bytes = 2 * kMiB * (1 + random() % (kind < 95 ? 16 : 256));
        next = (next + 2 * kMiB - 1) & ~(2 * kMiB - 1);
      }
      range.base = next;
      next += range.bytes;
      ranges.push_back(range);
      addresses.allocate(range);
      baseline.allocate(range);
    }
    make_launches();
  }

  void make_launches() {
    launches.resize(kLaunches);
    size_t window = random() % ranges.size();
    for (size_t i = 0; i < launches.size(); ++i) {
      if (i % 16 == 0) window = (window + kWindow / 4) % ranges.size();
      for (uint64_t& word : launches[i]) {
        const uint64_t kinds[] = {random() % 8192, random() % 8192 << 32 | random() % 8192,
                                  0x3f80000000000000 + random() % 1000, 0};
        word = kinds[random() % 4];
      }
      for (size_t p = 0; p < kPointers; ++p) {
        const MemoryRange& range = ranges[(window + random() % kWindow) % ranges.size()];
        launches[i][p * 3] = range.base + (p == 0 ? random() % range.bytes & ~uint64_t{15} : 0);
      }
    }
  }

  std::mt19937_64 random;
  std::vector<MemoryRange> ranges;
  std::vector<std::array<uint64_t, kWords>> launches;
  AddressMap addresses;
  MapOfRanges baseline;
};

template <typename Body>
double ns_of(Body body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

bool g_answers_agree = true;  // so that nothing is optimised away either

struct Times {
  double table = 0, map = 0;
};

Times scan(Memory& memory) {
  const auto& launches = memory.launches;
  uint64_t ours = 0, theirs = 0;
  const double words = static_cast<double>(launches.size() * kWords);
  Times times;
  times.table = ns_of([&] {
    for (const auto& launch : launches) {
      for (const uint64_t word : launch) {
        if (const auto allocation = memory.addresses.allocation_at(word);
            allocation.generation != 0) {
          ours += allocation.base;
        }
      }
    }
  });
  times.map = ns_of([&] {
    for (const auto& launch : launches) {
      for (const uint64_t word : launch) {
        if (const auto* found = memory.baseline.find(word)) theirs += found->base;
      }
    }
  });
  g_answers_agree = g_answers_agree && ours == theirs;
  return {times.table / words, times.map / words};
}

/// Frees random ranges and allocates as many of the same sizes again, in another order: a caching
/// allocator at work.
Times update(Memory& memory) {
  constexpr size_t kBatch = 200, kRounds = 10;
  Times times;
  for (size_t round = 0; round < kRounds; ++round) {
    std::vector<MemoryRange> batch;
    const size_t begin = memory.random() % (memory.ranges.size() - kBatch);
    for (size_t i = 0; i < kBatch; ++i) batch.push_back(memory.ranges[begin + i]);
    std::shuffle(batch.begin(), batch.end(), memory.random);
    times.table += ns_of([&] {
      for (const auto& range : batch) memory.addresses.release(range.base, range.source);
      for (const auto& range : batch) memory.addresses.allocate(range);
    });
    times.map += ns_of([&] {
      for (const auto& range : batch) memory.baseline.release(range.base);
      for (const auto& range : batch) memory.baseline.allocate(range);
    });
  }
  return {times.table / (kBatch * kRounds), times.map / (kBatch * kRounds)};
}

/// Bytes a live or freed generation: 1e5 blocks that fill a GPU, 512 bytes to 8 MiB, of which each
/// second one is freed. Without what the first block takes.
double bytes_per_generation() {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(0, 14);
  AddressMap addresses;
  std::vector<MemoryRange> ranges;
  uint64_t next = uint64_t{0x7f} << 40, fixed = 0;
  for (int i = 0; i < 100'000; ++i) {
    MemoryRange range;
    range.source = MemorySource::kFramework;
    range.base = next;
    range.bytes = 512 * static_cast<uint64_t>(std::exp2(exponent(random)));
    next += range.bytes;
    ranges.push_back(range);
    addresses.allocate(range);
    if (i == 0) fixed = addresses.bytes();
  }
  std::shuffle(ranges.begin(), ranges.end(), random);
  uint64_t freed = 0;
  for (size_t i = 0; i < ranges.size(); i += 2, ++freed)
    addresses.release(ranges[i].base, ranges[i].source);
  return static_cast<double>(addresses.bytes() - fixed) /
         static_cast<double>(addresses.live_count() + freed);
}

}  // namespace

int main(int argc, char** argv) {
  using convtrace::bench::Goal;
  using convtrace::bench::median_of;
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const int repetitions = quick ? 15 : 51;
  std::vector<double> of_blocks, ns, faster, flat, worst_update{0};
  std::string update_against =
      "std::map under a mutex, no freed ranges; ns of alloc+free by live ranges:";
  {
    Memory blocks(2000, MemorySource::kFramework);
    (void)scan(blocks);
    for (int i = 0; i < repetitions; ++i) of_blocks.push_back(scan(blocks).table);
  }
  {
    Memory few(1000), some(10'000), many(1'000'000);
    for (Memory* memory : {&few, &some, &many}) (void)scan(*memory);
    for (int i = 0; i < repetitions; ++i) {
      const Times one = scan(some);
      ns.push_back(one.table);
      faster.push_back(one.map / one.table);
      const double small = scan(few).table;
      flat.push_back(scan(many).table / small);
    }
    for (Memory* memory : {&few, &some, &many}) {
      std::vector<double> ratios, absolute;
      for (int i = 0; i < repetitions; ++i) {
        const Times one = update(*memory);
        ratios.push_back(one.table / one.map);
        absolute.push_back(one.table);
      }
      char text[64];
      std::snprintf(text, sizeof text, " %zu: %.2f (%.0f ns)", memory->ranges.size(),
                    median_of(ratios), median_of(absolute));
      update_against += text;
      if (median_of(ratios) > median_of(worst_update)) worst_update = ratios;
    }
  }
  convtrace::bench::Rows rows;
  rows.print(
      {"pointer.scan_blocks", "ns/word", Goal::kAtMost, 4,
       "absolute, 2000 live blocks of a framework, four of five pointers to their first byte"},
      of_blocks);
  rows.print(
      {"pointer.scan", "ns/word", Goal::kAtMost, 8, "absolute, 1e4 live ranges of the driver"}, ns);
  rows.print({"pointer.scan_vs_map", "x", Goal::kAtLeast, 4, "std::map without lock, 1e4 live"},
             faster);
  rows.print({"pointer.scan_flat", "ratio", Goal::kAtMost, 1.5, "1e6 live over 1e3 live"}, flat);
  rows.print({"pointer.update_vs_map", "ratio", Goal::kAtMost, 1.0, update_against.c_str()},
             worst_update);
  rows.print({"pointer.bytes_per_range", "B", Goal::kAtMost, 64,
              "absolute, address table, 5e4 live and 5e4 freed"},
             {bytes_per_generation()});
  if (!g_answers_agree) std::fprintf(stderr, "bench_address: the answers differ\n");
  return g_answers_agree ? 0 : 1;
}
