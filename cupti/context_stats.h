#pragma once
/// @file context_stats.h
/// Statistics in one CUDA context: its kernel, its scratch memory, its results.
///
/// Scratch is a fixed number of arenas. An arena belongs to one stream at a time, so that launches
/// which share it are ordered by the stream; another stream gets it once all its results are out.
///
/// Place:    owned by device_stats.cpp.
/// Threads:  prepare() on the helper thread; submit() from any; collect() and forget() from any,
/// one after the other.
/// Errors:   as NotSampled. A CUDA error of ours ends the work in this context.

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "cupti/api.h"
#include "cupti/device_values.h"
#include "cupti/result_ring.h"
#include "cupti/scratch_pool.h"
#include "cupti/stats/batch.h"

namespace convtrace::cupti {

class ContextStats {
 public:
  /// As DeviceStats.
  ContextStats(const DriverApi& driver, CUcontext context, format::EventSink& sink,
               uint32_t most_samples, ValueSink* values, uint64_t value_bytes, bool in_graphs)
      : driver_(driver),
        context_(context),
        most_samples_(most_samples),
        value_bytes_(value_bytes),
        in_graphs_(in_graphs),
        values_(driver, values, sink) {}

  /// What went wrong in CUDA; CUDA_SUCCESS: nothing.
  struct Failure {
    CUresult result = CUDA_SUCCESS;
    const char* call = nullptr;
  };

  /// Loads the kernel and gets the memory. @param stopping asked between calls to the driver.
  [[nodiscard]] Failure prepare(const std::atomic<bool>& stopping) noexcept;
  /// Whether prepare() is over, with whatever end.
  [[nodiscard]] bool is_settled() const noexcept { return phase() != Phase::kPreparing; }

  /// Nobody will prepare it.
  void give_up() noexcept { phase_.store(Phase::kOver); }
  /// @return true once: whoever gets it may wait for the preparation.
  [[nodiscard]] bool may_wait() noexcept { return !waited_.exchange(true); }

  /// As DeviceStats::submit. @param[out] failure of a launch of ours, once.
  [[nodiscard]] format::NotSampled submit(std::span<const DeviceRequest> batch, CUstream stream,
                                          Failure& failure) noexcept;

  /// Puts a launch of the kernel that computes nothing on `stream`, which captures. @param id by
  /// which idle_id() knows it again.
  [[nodiscard]] format::NotSampled launch_idle(CUstream stream, uint64_t id) noexcept;
  [[nodiscard]] bool owns(CUfunction function) const noexcept {
    return phase() != Phase::kPreparing && function != nullptr && function == kernel_;
  }
  /// @param params as the parameters of a node of ours. @return its number.
  [[nodiscard]] static uint64_t idle_id(void** params) noexcept;

  /// Memory for one node. @return 0 if there is none. Makes no call to the driver.
  [[nodiscard]] CUdeviceptr take_scratch(const DeviceRequest& request);
  /// @param last_ticket of what the node has computed.
  void give_back_scratch(CUdeviceptr scratch, std::optional<uint64_t> last_ticket) noexcept;
  /// The next launch of `exec` computes `request` in that node. @return the ticket of its result.
  [[nodiscard]] std::optional<uint64_t> arm(CUgraphExec exec, CUgraphNode node, CUdeviceptr scratch,
                                            const DeviceRequest& request) noexcept;
  /// The launches after it compute nothing there. @param unused a ticket for which nothing comes.
  void disarm(CUgraphExec exec, CUgraphNode node, uint64_t id,
              std::optional<uint64_t> unused) noexcept;

  /// As ResultRing::collect. @return how many results are still under way.
  uint64_t collect(format::EventSink& sink, uint64_t& room) noexcept;

  [[nodiscard]] uint64_t values_under_way() const noexcept { return values_.under_way(); }
  /// As DeviceValues::pump().
  bool pump_values() noexcept;

  /// The context ends: no further call on it. @return how many results are lost by that.
  uint64_t forget(format::EventSink& sink) noexcept;

 private:
  enum class Phase : uint8_t { kPreparing, kReady, kOver };

  struct Arena {
    uint64_t stream_id = 0;
    uint64_t last_ticket = 0;  ///< of the last batch that used it
    bool used = false;
  };

  /// What a batch has been given.
  struct Grant {
    uint64_t first_ticket = 0;
    uint32_t arena = 0;
  };

  [[nodiscard]] Phase phase() const noexcept { return phase_.load(std::memory_order_acquire); }
  Failure load_kernels() noexcept;
  Failure choose_variant() noexcept;
  Failure register_ring() noexcept;
  Failure make_arenas() noexcept;
  bool claim(std::span<const DeviceRequest> batch, uint64_t stream_id, Grant& grant) noexcept;
  Arena* arena_for(uint64_t stream_id) noexcept;
  void stage_values(const Grant& grant, size_t count, CUstream stream) noexcept;
  CUresult launch_all(const Grant& grant, size_t count, CUstream stream) noexcept;
  CUresult launch(const stats::BatchBuilder& builder, CUstream stream) noexcept;
  CUresult zero(CUdeviceptr memory, size_t bytes) noexcept;
  CUresult set_node(CUgraphExec exec, CUgraphNode node, const stats::Batch& batch,
                    uint32_t blocks) noexcept;

  const DriverApi& driver_;
  const CUcontext context_;
  std::atomic<Phase> phase_{Phase::kPreparing};
  std::atomic<bool> waited_{false};
  CUfunction kernel_ = nullptr;
  CUfunction gather_ = nullptr;  ///< copies a tensor in logical order
  stats::Variant variant_ = stats::Variant::kWide;
  const uint32_t most_samples_;
  CUdeviceptr arenas_address_ = 0;
  std::mutex claim_mutex_;  ///< host work only: never held over a call to the driver
  std::array<Arena, 16> arenas_;
  const uint64_t value_bytes_;
  const bool in_graphs_;
  ScratchPool node_memory_;
  DeviceValues values_;
  std::mutex collect_mutex_;
  ResultRing ring_;
};

}  // namespace convtrace::cupti
