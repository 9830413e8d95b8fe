#pragma once
/// @file cuda_emulation.h
/// The part of CUDA C++ that the statistics kernel's source uses, for the host's compiler. So what
/// threads of a block exchange runs as it is written for a device: shuffles, barriers and tickets, which
/// the kernel's replay (tests/support/host_replay.h) writes in another way.
///
/// The threads of a block are coroutines of one thread, each of which runs until it has to wait for
/// others of its warp or block. Noticed are wrong exchanges, and a barrier that only some threads reach.
/// Not noticed: a missing barrier that this order hides; exchanges that lanes reach at different places
/// of the source, or with wrong masks; memory fences, which do nothing; and what is written for devices
/// alone (__CUDA_ARCH__: packed instructions, products of matrices, prefetches). Blocks run one after
/// the other.
///
/// Include it behind all other headers, and then the kernel's source.
/// Source:   CUDA C++ Programming Guide, "C++ Language Extensions".

#include <ucontext.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

namespace convtrace::emulation {

struct Index {
  unsigned x = 0;
};

/// Runs the threads of one block.
class Block {
 public:
  static constexpr unsigned kWarp = 32;

  explicit Block(unsigned threads) : threads_(threads), warps_(threads / kWarp) {
    for (Thread& thread : threads_) thread.stack = std::make_unique<std::byte[]>(kStackBytes);
  }

  /// Runs `body` in every thread. @throws std::logic_error if all wait.
  void run(const std::function<void()>& body) {
    body_ = &body;
    current_ = this;
    for (unsigned i = 0; i < threads_.size(); ++i) begin(i);
    unsigned running = 1;
    while (running > 0) {
      const uint64_t before = moves_;
      running = 0;
      for (unsigned i = 0; i < threads_.size(); ++i) {
        if (threads_[i].over) continue;
        ++running;
        index_.x = i;
        swapcontext(&scheduler_, &threads_[i].context);
      }
      if (running > 0 && moves_ == before) throw std::logic_error("every thread waits");
    }
  }

  static Block& current() { return *current_; }
  [[nodiscard]] Index index() const { return index_; }

  void barrier() { meet(block_); }

  /// Every lane of the warp gives a value. @return those of all lanes.
  template <typename T>
  std::array<T, kWarp> exchange(T value) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    Warp& warp = warps_[index_.x / kWarp];
    auto& values = warp.values[warp.meeting.number % 2];  // nobody is two exchanges ahead
    std::memcpy(&values[index_.x % kWarp], &value, sizeof value);
    meet(warp.meeting);
    std::array<T, kWarp> all;
    for (unsigned lane = 0; lane < kWarp; ++lane) std::memcpy(&all[lane], &values[lane], sizeof(T));
    return all;
  }
  [[nodiscard]] unsigned lane() const { return index_.x % kWarp; }

 private:
  static constexpr size_t kStackBytes = size_t{512} << 10;

  struct Thread {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack;
    bool over = true;
  };
  struct Meeting {
    explicit Meeting(unsigned all) : size(all) {}
    unsigned size;
    unsigned arrived = 0;
    uint64_t number = 0;
  };
  struct Warp {
    Meeting meeting{kWarp};
    std::array<std::array<uint64_t, kWarp>, 2> values;
  };

  void begin(unsigned i) {
    Thread& thread = threads_[i];
    thread.over = false;
    getcontext(&thread.context);
    thread.context.uc_stack = {.ss_sp = thread.stack.get(), .ss_flags = 0, .ss_size = kStackBytes};
    thread.context.uc_link = &scheduler_;
    makecontext(&thread.context, &Block::enter, 0);
  }
  static void enter() {
    Block& block = current();
    const unsigned own = block.index_.x;
    (*block.body_)();
    block.threads_[own].over = true;
    ++block.moves_;
  }

  void meet(Meeting& meeting) {
    ++moves_;
    const uint64_t own = meeting.number;
    if (++meeting.arrived == meeting.size) {
      meeting.arrived = 0;
      ++meeting.number;
      return;
    }
    const unsigned thread = index_.x;
    while (meeting.number == own) swapcontext(&threads_[thread].context, &scheduler_);
  }

  static inline Block* current_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Meeting block_{static_cast<unsigned>(threads_.size())};
  ucontext_t scheduler_;
  const std::function<void()>* body_ = nullptr;
  Index index_;
  uint64_t moves_ = 0;
};

inline Index block_index, grid;

template <typename T, typename Combine>
T reduce(T value, Combine combine) {
  const auto all = Block::current().exchange(value);
  T result = all[0];
  for (unsigned lane = 1; lane < Block::kWarp; ++lane) result = combine(result, all[lane]);
  return result;
}

}  // namespace convtrace::emulation

#define __device__
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__
#define threadIdx (::convtrace::emulation::Block::current().index())
#define blockIdx (::convtrace::emulation::block_index)
#define gridDim (::convtrace::emulation::grid)

inline void __syncthreads() { convtrace::emulation::Block::current().barrier(); }
inline void __threadfence() {}
inline void __threadfence_system() {}

template <typename T>
T __shfl_down_sync(uint32_t, T value, unsigned stride) {
  auto& block = convtrace::emulation::Block::current();
  const unsigned from = block.lane() + stride;
  const auto all = block.exchange(value);
  return from < convtrace::emulation::Block::kWarp ? all[from] : value;
}
template <typename T>
T __shfl_sync(uint32_t, T value, int from, int width = 32) {
  auto& block = convtrace::emulation::Block::current();
  const unsigned begin = block.lane() / static_cast<unsigned>(width) * static_cast<unsigned>(width);
  return block.exchange(value)[begin + static_cast<unsigned>(from) % static_cast<unsigned>(width)];
}
template <typename T>
T __reduce_add_sync(uint32_t, T value) {
  return convtrace::emulation::reduce(value, [](T a, T b) { return static_cast<T>(a + b); });
}
template <typename T>
T __reduce_min_sync(uint32_t, T value) {
  return convtrace::emulation::reduce(value, [](T a, T b) { return b < a ? b : a; });
}
template <typename T>
T __reduce_max_sync(uint32_t, T value) {
  return convtrace::emulation::reduce(value, [](T a, T b) { return b > a ? b : a; });
}
inline uint32_t __ballot_sync(uint32_t, bool is_set) {
  const auto all = convtrace::emulation::Block::current().exchange(is_set);
  uint32_t bits = 0;
  for (unsigned lane = 0; lane < convtrace::emulation::Block::kWarp; ++lane)
    bits |= uint32_t{all[lane]} << lane;
  return bits;
}
inline bool __any_sync(uint32_t mask, bool is_set) { return __ballot_sync(mask, is_set) != 0; }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
template <typename T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}
template <typename T>
T atomicMin(T* to, T value) {
  const T before = *to;
  *to = value < before ? value : before;
  return before;
}
