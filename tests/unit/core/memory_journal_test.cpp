#include "interposer/core/memory/memory_journal.h"

#include <thread>

#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::engine;

namespace {

constexpr uint64_t kCpu = 0xFF00;  // type 0, index -1
constexpr uint64_t kCuda2 = 0x0201;

struct Seen {
  bool allocated;
  uint64_t address;
  uint64_t generation;
  format::Device device;
};

class Listener final : public MemoryListener {
 public:
  void on_allocated(const MemoryReport&, const cupti::MemoryRange& range,
                    std::span<void* const>) override {
    seen.push_back({true, range.base, range.generation, range.device});
  }
  void on_freed(const MemoryReport&, const cupti::MemoryRange& range,
                std::span<void* const> stack) override {
    free_frames.push_back(stack.size());
    seen.push_back({false, range.base, range.generation, range.device});
  }
  void on_reports_lost(uint64_t count) noexcept override { lost += count; }

  std::vector<Seen> seen;
  std::vector<size_t> free_frames;
  uint64_t lost = 0;
};

struct JournalFixture {
  cupti::AddressMap addresses;
  Listener listener;
  MemoryJournal journal{addresses, listener};

  bool report(uint64_t address, int64_t bytes, uint64_t device = kCpu) {
    return journal.report(reinterpret_cast<const void*>(address), bytes, device);
  }
  /// The live block there, as tensors on that device find it.
  CpuBlock block(uint64_t address, uint64_t device = kCpu) {
    if (device == kCpu) return journal.cpu_block(address);
    journal.apply_reports();
    const auto range = addresses.find(address);
    if (!range || range->freed || range->source != format::MemorySource::kFramework) return {};
    return {range->base, range->bytes, range->generation};
  }
};

}  // namespace

TEST_CASE("memory_journal: reports become generations when applied, not before",
          "[engine][memory]") {
  JournalFixture f;
  const uint64_t device = GENERATE(kCpu, kCuda2);
  f.report(0x1000, 64, device);
  CHECK(f.listener.seen.empty());
  CHECK_FALSE(f.addresses.find(0x1000));
  const CpuBlock first = f.block(0x1000, device);
  REQUIRE(first.generation != 0);
  f.report(0x1000, -64, device);
  f.report(0x1000, 128, device);
  const CpuBlock second = f.block(0x1000, device);
  CHECK(second.generation > first.generation);
  CHECK(second.bytes == 128);
  REQUIRE(f.listener.seen.size() == 3);
  CHECK_FALSE(f.listener.seen[1].allocated);
  CHECK(f.listener.seen[1].generation == first.generation);
}

TEST_CASE(
    "memory_journal: once CPU tensors are not reported their memory is forgotten, others' is not",
    "[engine][memory]") {
  JournalFixture f;
  f.report(0x1000, 64);
  f.report(0x2000, 64, kCuda2);
  f.journal.apply_reports();
  f.report(0x1000, -64);
  f.journal.stop_cpu();
  CHECK_FALSE(f.journal.reported(format::Device::Type::kCpu));
  f.report(0x3000, 64);  // c10 asked in front of the stop
  f.report(0x4000, 64, kCuda2);
  f.journal.apply_reports();
  CHECK(f.listener.seen.size() == 3);  // no free of CPU memory, and no allocation
  CHECK(f.block(0x1000).generation == 0);
  CHECK(f.block(0x3000).generation == 0);
  const auto cuda = f.addresses.find(0x2000);
  REQUIRE(cuda);
  CHECK_FALSE(cuda->freed);
  CHECK(f.journal.reported(format::Device::Type::kCuda));
  f.report(0x2000, -64, kCuda2);
  f.journal.apply_reports();
  CHECK(f.listener.seen.size() == 4);
}

TEST_CASE("memory_journal: a block of a CPU tensor is found by any address in it",
          "[engine][memory]") {
  JournalFixture f;
  f.report(0x1000, 64);
  f.report(0x1040, 64);
  CHECK(f.block(0x0FFF).generation == 0);
  CHECK(f.block(0x1000).base == 0x1000);
  CHECK(f.block(0x103F).base == 0x1000);
  CHECK(f.block(0x1040).base == 0x1040);
  CHECK(f.block(0x1080).generation == 0);
  f.report(0x1000, -64);
  CHECK(f.block(0x1010).generation == 0);
  CHECK(f.block(0x1040).base == 0x1040);
}

TEST_CASE("memory_journal: blocks whose frees were lost end where another overlaps them",
          "[engine][memory]") {
  JournalFixture f;
  f.report(0x1000, 0x100);
  f.report(0x1100, 0x100);
  f.report(0x1200, 0x100);
  f.report(0x1080, 0x100);  // reaches into both of the first two
  CHECK(f.block(0x1000).generation == 0);
  CHECK(f.block(0x1080).bytes == 0x100);
  CHECK(f.block(0x1180).generation == 0);
  CHECK(f.block(0x1200).base == 0x1200);
  const size_t told = f.listener.seen.size();
  f.report(0x1000, -0x100);
  CHECK(f.block(0x1000).generation == 0);
  CHECK(f.listener.seen.size() == told);
}

TEST_CASE("memory_journal: work of a device finds blocks of CPU tensors once it may use them",
          "[engine][memory]") {
  JournalFixture f;
  f.report(0x1000, 64);
  f.report(0x2000, 64);
  const CpuBlock first = f.block(0x1000);
  CHECK_FALSE(f.addresses.find(0x1000));
  f.journal.show_cpu_blocks();
  CHECK(f.journal.apply_reports_if_free());
  const auto found = f.addresses.find(0x1000);
  REQUIRE(found);
  CHECK(found->generation == first.generation);
  CHECK(found->source == format::MemorySource::kFramework);
  f.report(0x2000, -64);
  f.report(0x3000, 64);
  const CpuBlock third = f.block(0x3000);
  CHECK(f.addresses.find(0x2000)->freed);
  CHECK(f.addresses.find(0x3000)->generation == third.generation);
  f.journal.stop_cpu();
  f.report(0x8000, 64, kCuda2);
  f.journal.apply_reports();
  CHECK(f.addresses.find(0x1000)->freed);
  CHECK(f.addresses.find(0x3000)->freed);
}

TEST_CASE("memory_journal: the device comes from the low bytes, CPU's index is none",
          "[engine][memory]") {
  JournalFixture f;
  CHECK_FALSE(f.journal.reported(format::Device::Type::kCuda));
  f.report(0x1000, 64, kCpu);
  f.report(0x2000, 64, kCuda2 | 0xABCD0000);
  f.journal.apply_reports();
  REQUIRE(f.listener.seen.size() == 2);
  CHECK(f.listener.seen[0].device == format::Device{format::Device::Type::kCpu, 0});
  CHECK(f.listener.seen[1].device == format::Device{format::Device::Type::kCuda, 2});
  CHECK(f.journal.reported(format::Device::Type::kCuda));
}

TEST_CASE("memory_journal: of memory that the driver gave the device is the driver's",
          "[engine][memory]") {
  JournalFixture f;
  constexpr format::Device kDevice{format::Device::Type::kCuda, 5};
  f.addresses.allocate({.base = 0x200000, .bytes = 0x200000, .device = kDevice});
  f.report(0x300000, 512, kCuda2);  // a 16-bit index, and what was in the byte before it
  f.report(0x300000, -512, kCuda2);
  f.report(0x800000, 512, kCuda2);  // not of a segment that was seen
  f.journal.apply_reports();
  REQUIRE(f.listener.seen.size() == 3);
  CHECK(f.listener.seen[0].device == kDevice);
  CHECK(f.listener.seen[1].device == kDevice);
  CHECK(f.listener.seen[2].device == format::Device{format::Device::Type::kCuda, 2});
}

TEST_CASE("memory_journal: what was allocated before we looked is freed without a word",
          "[engine][memory]") {
  JournalFixture f;
  f.report(0x5000, -64);
  f.report(0, 64);
  f.report(0x6000, 0);
  f.journal.apply_reports();
  CHECK(f.listener.seen.empty());
}

TEST_CASE("memory_journal: blocks handed between threads keep their order",
          "[engine][memory][threads]") {
  JournalFixture f;
  constexpr int kRounds = 3000;
  std::atomic<int> turn{0};
  const auto player = [&](int me) {
    for (int i = me; i < kRounds; i += 2) {
      while (turn.load(std::memory_order_acquire) != i) std::this_thread::yield();
      f.report(0x7000, i % 4 < 2 ? 64 : -64);  // allocate on one thread, then the other frees
      f.report(0x7000, i % 4 < 2 ? -64 : 64);
      turn.store(i + 1, std::memory_order_release);
    }
  };
  std::thread a(player, 0), b(player, 1);
  while (turn.load() != kRounds) f.journal.apply_reports();
  a.join();
  b.join();
  f.journal.apply_reports();
  uint64_t generation = 0;
  bool ordered = true;
  for (const Seen& seen : f.listener.seen) {
    ordered =
        ordered && (seen.allocated ? seen.generation > generation : seen.generation == generation);
    generation = seen.generation;
  }
  CHECK(ordered);
  CHECK(f.listener.lost == 0);
}

TEST_CASE("memory_journal: an allocation's stack is known while it lives", "[engine][memory]") {
  JournalFixture f;
  f.report(0x1000, 64);
  f.journal.take_stacks(true);
  f.report(0x2000, 64);
  f.journal.take_stacks(false);
  f.report(0x3000, 64);
  CHECK(f.journal.allocation_stack(f.block(0x3000).generation).empty());
  const uint64_t without = f.block(0x1000).generation;
  const uint64_t with = f.block(0x2000).generation;
  REQUIRE(without != with);
  CHECK(f.journal.allocation_stack(without).empty());
  CHECK_FALSE(f.journal.allocation_stack(with).empty());
  f.report(0x2000, -64);
  f.journal.apply_reports();
  CHECK(f.journal.allocation_stack(with).empty());
}

TEST_CASE("memory_journal: a free has its stack where it is asked for", "[engine][memory]") {
  JournalFixture f;
  f.journal.take_stacks(true);
  for (const uint64_t address : {0x1000UL, 0x2000UL}) f.report(address, 64);
  f.report(0x1000, -64);
  f.journal.take_all_stacks();
  f.report(0x2000, -64);
  f.journal.apply_reports();
  REQUIRE(f.listener.free_frames.size() == 2);
  CHECK(f.listener.free_frames[0] == 0);
  CHECK(f.listener.free_frames[1] > 0);
}

TEST_CASE("memory_journal: a full ring counts what it drops", "[engine][memory]") {
  JournalFixture f;
  constexpr uint64_t kReports = 200'000;
  CHECK_FALSE(f.report(0x10000, 64));
  bool crowded = false;
  for (uint64_t i = 1; i < kReports; ++i) crowded = f.report(0x10000 + i * 64, 64);
  CHECK(crowded);
  f.journal.apply_reports();
  CHECK_FALSE(f.report(0x10000, -64));
  CHECK(f.journal.apply_reports_if_free());
  CHECK(f.listener.lost > 0);
  CHECK(f.listener.lost + f.listener.seen.size() == kReports + 1);
}
