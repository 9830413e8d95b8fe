#pragma once
/// @file scratch_pool.h
/// Pieces of one block of device memory, for nodes of ours in the program's graphs. The block is
/// got when the context is prepared: nothing is allocated or freed inside the program's calls.
///
/// A piece is given again only for the same number of bytes, once the last result that was computed
/// in it is out: it is then as its user has left it, with its tickets zero.
///
/// Threads:  any.

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace convtrace::cupti {

class ScratchPool {
 public:
  static constexpr size_t kBytes = 64U << 20;  ///< of each context: 160 tensors of the largest need

  /// @param memory of kBytes, zero.
  void set_memory(CUdeviceptr memory) noexcept { memory_ = memory; }

  /// @param is_done whether the result of a ticket is out. @return 0 when there is nothing left.
  template <typename IsDone>
  [[nodiscard]] CUdeviceptr take(size_t bytes, IsDone is_done) {
    const std::lock_guard lock(mutex_);
    for (Piece& piece : pieces_) {
      if (piece.taken || piece.bytes != bytes) continue;
      if (piece.last_ticket && !is_done(*piece.last_ticket)) continue;
      piece.taken = true;
      return piece.address;
    }
    if (memory_ == 0 || bytes > kBytes - used_) return 0;
    pieces_.push_back(
        {.address = memory_ + used_, .bytes = bytes, .last_ticket = {}, .taken = true});
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return pieces_.back().address;
  }

  /// @param last_ticket of what was computed in it.
  void give_back(CUdeviceptr address, std::optional<uint64_t> last_ticket) noexcept {
    const std::lock_guard lock(mutex_);
    const auto piece = std::ranges::lower_bound(pieces_, address, {}, &Piece::address);
    if (piece == pieces_.end() || piece->address != address) return;
    piece->last_ticket = last_ticket;
    piece->taken = false;
  }

 private:
  static constexpr size_t kAlignment = 256;
  static_assert(kBytes % kAlignment == 0);

  struct Piece {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    std::optional<uint64_t> last_ticket;
    bool taken = false;
  };

  std::mutex mutex_;
  CUdeviceptr memory_ = 0;
  size_t used_ = 0;
  std::vector<Piece> pieces_;  ///< by address
};

}  // namespace convtrace::cupti
