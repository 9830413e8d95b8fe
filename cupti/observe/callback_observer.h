#pragma once
/// @file callback_observer.h
/// What CUPTI tells: memory, handles, captures, contexts; and launches, which it cross-checks when
/// they pass our gate and records when they do not.
///
/// Place:    receives from subscriber.h.
/// Threads:  any, inside the host's CUDA calls. Copies data; makes no CUDA call (only
///           cuptiGetDeviceId, which CUPTI allows there).

#include "cupti/gate/cuda_state.h"
#include "cupti/gate/gate.h"
#include "cupti/observe/memory_recorder.h"
#include "cupti/observe/subscriber.h"

namespace convtrace::cupti {

class CallbackObserver final : public CallbackReceiver {
 public:
  CallbackObserver(CudaState& state, Gate& gate, const CuptiApi& cupti)
      : state_(state),
        gate_(gate),
        cupti_(cupti),
        memory_(*state.options.addresses, *state.options.sink) {}

  void on_driver_call(const CallbackEntry& entry, const CUpti_CallbackData& call) noexcept override;
  void on_context_end(CUcontext context) noexcept override;
  void on_cupti_failure(const CUpti_StateData& state) noexcept override;

  /// The program has freed memory, and the driver was not called. @param current  of the thread.
  void freed(uint64_t address, const CurrentContext& current);

  /// @return launches that CUPTI reported and that did not pass the gate.
  [[nodiscard]] uint64_t launches_outside_gate() const noexcept { return outside_gate_.load(); }

 private:
  void observe(const CallbackEntry& entry, const CUpti_CallbackData& call);
  void observe_launch(const LaunchInfo& launch, const CallbackEntry& entry,
                      const CUpti_CallbackData& call);
  [[nodiscard]] bool is_captured(const MemoryChange& change, const CallbackEntry& entry) const;
  /// The call has put a write of memory into a stream.
  void note_write(const MemoryChange& change, const CallbackEntry& entry,
                  const CUpti_CallbackData& call);
  /// A call that changed memory has succeeded.
  void memory_changed(const MemoryChange& change, const CallbackEntry& entry,
                      const CUpti_CallbackData& call);
  void observe_memory(const MemoryChange& change, const CallbackEntry& entry,
                      const CUpti_CallbackData& call);
  /// Tells the host's wait for a copy that waits if an end of it is the host's memory.
  void observe_copy_wait(const MemoryChange& change, const CallbackEntry& entry,
                         const CUpti_CallbackData& call);
  void observe_capture(const CaptureChange& change, const CUpti_CallbackData& call);
  void emit_sync(const SyncChange& change, const CUpti_CallbackData& call);
  void observe_sync(SyncChange change, const CallbackEntry& entry, const CUpti_CallbackData& call);
  MemoryRecorder::At at(const CallbackEntry& entry, const CUpti_CallbackData& call);
  uint8_t device_of(CUcontext context);

  CudaState& state_;
  Gate& gate_;
  const CuptiApi& cupti_;
  MemoryRecorder memory_;
  std::atomic<uint64_t> outside_gate_{0};
};

}  // namespace convtrace::cupti
