#pragma once
/// @file nccl_recorder.h
/// Records the collectives and transfers of NCCL: an event when one is called, and statistics of the
/// tensors that this rank sends and receives.
///
/// The statistics are ordinary work on the stream of the call. Sent tensors are read before the call
/// that enqueues the collective, received ones after it. NCCL enqueues when the function returns, or,
/// between ncclGroupStart and ncclGroupEnd, when the outermost group ends. If NCCL returns
/// ncclInProgress it enqueues later, so received tensors are not read.
///
/// Place:    hooks.cpp calls it for the wrappers of the preload library.
/// Threads:  any; a group belongs to its thread. Nothing waits.
/// Errors:   a value that cannot be read is counted as lost. The calls of a communicator whose
///           making was not seen are not recorded: the observer records those of PyTorch.
/// Source:   cupti/abi/hooks_v1.h; NCCL's user guide, "Group Calls".

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "cupti/abi/hooks_v1.h"
#include "cupti/interceptor.h"
#include "cupti/memory/address_map.h"
#include "format/model/definitions.h"
#include "format/model/event_sink.h"
#include "interposer/core/control/capture_rules.h"
#include "interposer/core/control/name_filter.h"
#include "interposer/core/memory/memory_journal.h"
#include "interposer/core/nccl/communicators.h"

namespace convtrace::engine {

/// The functions of the engine that the recorder calls.
class NcclHost {
 public:
  virtual ~NcclHost() = default;
  /// See cupti::Interceptor::submit; does not wait for a context's preparation.
  virtual format::SampleOutcome submit_at_once(std::span<cupti::DeviceRequest> batch,
                                               uint64_t stream) noexcept = 0;
  /// See cupti::Interceptor::prepare.
  virtual std::optional<uint8_t> prepare_device(std::optional<uint8_t> device) noexcept = 0;
  [[nodiscard]] virtual cupti::Position place_of_thread() const noexcept = 0;
  /// This process's rank in the job; of size 0 where that is not known.
  [[nodiscard]] virtual CommRank job_rank() const noexcept = 0;
};

class NcclRecorder {
 public:
  /// All references outlive the recorder.
  struct Deps {
    format::EventSink& sink;
    format::Definitions& definitions;
    const cupti::AddressMap& addresses;
    MemoryJournal& journal;
    CaptureRules& captures;
    NameFilter& names;
    NcclHost& host;
  };
  explicit NcclRecorder(const Deps& deps) : deps_(deps) {}

  /// How deep the calling thread is inside functions of NCCL, which call each other, and inside
  /// groups. Counted in every state of tracing.
  class Nesting {
   public:
    /// @return whether the program made the call, not NCCL.
    static bool enter() noexcept { return inside_++ == 0; }
    /// A call of NCCL has returned. @return whether it was the program's own.
    static bool leave() noexcept { return --inside_ == 0; }
    /// A call of the program has returned. Counts groups.
    static void ended(int kind, bool good) noexcept;
    /// @return whether a call of this kind makes NCCL enqueue work: a transfer outside of groups, or the
    /// end of the outermost group.
    [[nodiscard]] static bool enqueues(int kind) noexcept;
    [[nodiscard]] static bool in_group() noexcept { return groups_ > 0; }

   private:
    static inline thread_local constinit int inside_ __attribute__((tls_model("initial-exec"))) = 0;
    static inline thread_local constinit int groups_ __attribute__((tls_model("initial-exec"))) = 0;
  };

  /// A function of NCCL is about to be called by the program.
  void begins(const convtrace_nccl_call& call);
  /// It has returned `result`. Called before Nesting::ended().
  void ended(const convtrace_nccl_call& call, int result);
  /// The calling thread is in no group any more: drops the tensors noted for it.
  static void forget_group() noexcept;

  /// Ids of calls; the observer counts its own from 1.
  static constexpr uint64_t kFirstId = uint64_t{1} << 32;

 private:
  /// A tensor that is to be read.
  struct Wish {
    cupti::DeviceRequest request;
    uint64_t stream = 0;
  };
  /// A communicator that is made when its group ends.
  struct Promise {
    void* const* made;
    Communicator communicator;
  };
  struct Group {
    std::vector<Wish> sent, received;
    std::vector<Promise> promised;
  };
  struct Call;

  static Group& group();
  void transfer(const convtrace_nccl_call& call);
  [[nodiscard]] std::optional<Communicator> communicator_of(const convtrace_nccl_call& call);
  void wish(const Call& call, std::string_view slot, const void* address, uint64_t count,
            std::vector<Wish>& wishes);
  void submit(std::vector<Wish>& wishes) noexcept;
  void lose(format::LossReason reason, uint64_t count) noexcept;

  void made(const convtrace_nccl_call& call, bool good);
  void made_all(const convtrace_nccl_call& call);
  void made_part(const convtrace_nccl_call& call, bool good);
  [[nodiscard]] format::StringId members(CommRank rank);
  [[nodiscard]] uint32_t count_at(const format::Place& place, uint32_t step, std::string_view op);

  static inline thread_local constinit Group* group_ __attribute__((tls_model("initial-exec"))) =
      nullptr;

  const Deps deps_;
  Communicators communicators_;
  std::atomic<uint64_t> next_id_{kFirstId};

  using At = std::tuple<uint8_t, uint32_t, std::string_view>;  ///< phase, scope, op
  Mutex counts_mutex_;
  uint32_t counted_step_ CONVTRACE_GUARDED_BY(counts_mutex_) = 0;
  std::map<At, uint32_t> counts_ CONVTRACE_GUARDED_BY(counts_mutex_);  ///< calls of that step
};

}  // namespace convtrace::engine
