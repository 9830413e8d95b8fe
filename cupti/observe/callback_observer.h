#pragma once
/// @file callback_observer.h
/// Records what CUPTI reports: changes of memory, handles, captures and contexts. A launch that
/// passed the gate is compared with the gate's record; any other launch is recorded here.
///
/// Place:    the receiver of subscriber.h.
/// Threads:  any, inside CUDA calls of the host. Copies data and makes no CUDA call, except
///           cuptiGetDeviceId, which CUPTI allows there.

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

  /// Records a free by the program that did not reach the driver. @param current  context of the
  /// thread.
  void freed(uint64_t address, const CurrentContext& current);

  /// @return launches that CUPTI reported and that did not pass the gate.
  [[nodiscard]] uint64_t launches_outside_gate() const noexcept { return outside_gate_.load(); }

 private:
  void count(const CallbackEntry& entry, const CUpti_CallbackData& call) noexcept;
  void observe(const CallbackEntry& entry, const CUpti_CallbackData& call);
  void observe_launch(const LaunchInfo& launch, const CallbackEntry& entry,
                      const CUpti_CallbackData& call);
  [[nodiscard]] bool is_captured(const MemoryChange& change, const CallbackEntry& entry) const;
  /// Records a write of memory that the call has put into a stream.
  void note_write(const MemoryChange& change, const CallbackEntry& entry,
                  const CUpti_CallbackData& call);
  /// Records a successful call that changed memory.
  void memory_changed(const MemoryChange& change, const CallbackEntry& entry,
                      const CUpti_CallbackData& call);
  void observe_memory(const MemoryChange& change, const CallbackEntry& entry,
                      const CUpti_CallbackData& call);
  /// Records that the host waits for a copy, if the copy waits and an end of it is host memory.
  void observe_copy_wait(const MemoryChange& change, const CallbackEntry& entry,
                         const CUpti_CallbackData& call);
  void observe_capture(const CaptureChange& change, const CUpti_CallbackData& call);
  void emit_sync(const SyncChange& change, const CUpti_CallbackData& call);
  void observe_sync(SyncChange change, const CallbackEntry& entry, const CUpti_CallbackData& call);
  MemoryRecorder::At at(const CallbackEntry& entry, const CUpti_CallbackData& call);
  /// @param id  CUPTI's of the context; 0: it has none, or none is known. @return the context's
  /// device. A new context with an id is added to those that convtrace may use.
  uint8_t device_of(CUcontext context, uint32_t id);
  uint8_t device_of(const CUpti_CallbackData& call) {
    return device_of(call.context, call.contextUid);
  }

  CudaState& state_;
  Gate& gate_;
  const CuptiApi& cupti_;
  MemoryRecorder memory_;
  std::atomic<uint64_t> outside_gate_{0};
  /// Calls of this thread that count() has begun.
  static inline thread_local uint32_t begun_ = 0;
};

}  // namespace convtrace::cupti
