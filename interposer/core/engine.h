#pragma once
/// @file engine.h
/// The engine: all parts of the injected library, connected. One for each process that may train.
///
/// Life:     start() reads settings and installs hooks; it creates no file and no thread. The first
///           launch, device allocation, module forward or tagged op begins the trace: the writer
///           thread starts and opens the file. The end of the process drains it. The engine is
///           never destroyed, since hooks may run after everything else.
/// Threads:  any.
/// Errors:   none reach the host; see state.h.
/// Source:   docs/architecture.md.

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cupti/interceptor.h"
#include "cupti/memory/address_map.h"
#include "format/base/mutex.h"
#include "format/model/definitions.h"
#include "format/model/event_sink.h"
#include "format/settings/settings.h"
#include "interposer/core/control/live_controls.h"
#include "interposer/core/memory/memory_journal.h"
#include "interposer/core/memory/stack_texts.h"
#include "interposer/core/nccl/nccl_recorder.h"
#include "interposer/core/observer/observer_port.h"
#include "interposer/core/observer/op_recorder.h"
#include "interposer/core/queue/event_queue.h"
#include "interposer/core/runtime/fact_table.h"
#include "interposer/core/runtime/process_threads.h"
#include "interposer/core/runtime/spent_time.h"
#include "interposer/core/writer/live_judge.h"
#include "interposer/core/writer/writer_thread.h"

namespace convtrace::engine {

/// The settings that lifecycle.h has read.
struct EngineOptions {
  settings::Settings settings;
  std::vector<settings::Rule> rules;  ///< rules for all ranks
  Rank rank;
  std::string start_folder;
  std::vector<std::string> environment;  ///< CONVTRACE_ variables, to read the file again
  bool announced = false;                ///< started by `convtrace run`
  cupti::InterceptorOptions cuda{};      ///< callbacks; the engine sets the rest
};

class Engine final : public format::EventSink,
                     private WriterClient,
                     private ObserverHost,
                     private NcclHost,
                     private MemoryListener {
 public:
  explicit Engine(EngineOptions options);

  /// format::EventSink. Begins the trace if the event is a reason for one.
  void emit(const format::Event& event) noexcept override;

  /// Calls of the observer.
  uint32_t submit(std::span<const std::byte> batch) {
    const SpentTime::Call call(spent_);
    return port_.submit(batch);
  }
  [[nodiscard]] uint32_t flags() const noexcept { return port_.flags(); }
  format::Definitions& definitions() noexcept { return definitions_; }
  [[nodiscard]] const settings::Settings& settings() const noexcept { return settings_; }

  /// Calls of the preload library's hooks.
  NcclRecorder& nccl() noexcept { return nccl_; }
  void report_memory(const void* pointer, int64_t bytes, uint64_t device);
  /// Made at first use: when the driver starts, or at the first launch through the gate.
  /// @return null if that failed.
  cupti::Interceptor* interceptor() noexcept;
  /// Records the call stack of the launch that follows on the calling thread.
  void note_launch_stack() noexcept;
  [[nodiscard]] cupti::Interceptor* interceptor_if_made() const noexcept {
    return interceptor_.load(std::memory_order_acquire);
  }
  [[nodiscard]] cupti::Position position() const noexcept;
  bool apply_memory_reports(bool all) noexcept;
  /// Call when tracing is on: decides whether memory of CPU tensors is watched.
  void begin_cpu_watch() noexcept;
  /// Call when the program has a CUDA context: CONVTRACE_CPU_ALLOC=auto ends the watch.
  /// @return whether it is the first one.
  bool note_context() noexcept;
  /// @return whether CONVTRACE_INCLUDE and CONVTRACE_EXCLUDE select the kernel.
  [[nodiscard]] bool wants(format::KernelId kernel) noexcept;

  /// @return whether a fork child must not be traced: the engine has a file, a thread or CUDA.
  [[nodiscard]] bool bound_to_process() const noexcept {
    return begun_.load() || interceptor_.load() != nullptr;
  }

  /// Call before a fork. If the process has no threads but the caller and those of convtrace, these
  /// end, for at most `deadline_ns`; the next event starts them again.
  void pause_threads(uint64_t deadline_ns) noexcept;

  /// Writes all queued events and closes the trace, within `deadline_ns`.
  /// @param exit_status  of the program, if known.
  void finish(uint64_t deadline_ns, std::optional<int> exit_status = std::nullopt);

 private:
  [[nodiscard]] bool is_wanted(const format::Event& event) noexcept;
  void begin_trace() noexcept;
  /// Ends tracing if the rank, as known by now, is not to be traced. @return whether it is.
  bool check_rank();
  void expect_custom_ops() noexcept;
  void report_matches();
  void say(uint32_t step, const std::vector<Notice>& lines);
  void follow_config();
  void follow_rank();
  void rules_changed() noexcept;
  cupti::Interceptor* make_interceptor();
  void end_cpu_watch(const char* why) noexcept;

  OpenTrace open_trace() override;
  bool before_drain() override;
  std::optional<format::TraceMeta> changed_meta(OpenTrace& trace) override;
  std::span<const format::Finding> judge(const format::Event& event) noexcept override;
  uint64_t take_host_ns() noexcept override { return spent_.take(); }
  Status write_values(format::TraceWriter& writer, uint64_t max_bytes, bool last) override;
  void give_up_values(format::LossReason reason) noexcept override { values_.close(reason); }

  format::SampleOutcome submit_to_device(std::span<cupti::DeviceRequest> batch, uint64_t stream,
                                         cupti::Results results) noexcept override;
  void fold_waiting() noexcept override;
  [[nodiscard]] bool is_settled(const format::TensorStats& event,
                                uint64_t stream) noexcept override;
  void describe_kernel(uint64_t function, cupti::KernelSignature signature) noexcept override;
  void on_custom_op() noexcept override;
  void on_fact(std::string_view name, std::string_view value) override;
  [[nodiscard]] bool queue_value(const format::TensorStats& event,
                                 const stats::Layout& elements) noexcept override;
  void on_spent(uint64_t ns) noexcept override { spent_.add(ns); }
  [[nodiscard]] uint64_t spent_so_far() const noexcept override { return spent_.total(); }

  format::SampleOutcome submit_at_once(std::span<cupti::DeviceRequest> batch,
                                       uint64_t stream) noexcept override;
  std::optional<uint8_t> prepare_device(std::optional<uint8_t> device) noexcept override;
  [[nodiscard]] cupti::Position place_of_thread() const noexcept override { return position(); }
  [[nodiscard]] CommRank job_rank() const noexcept override;

  void on_allocated(const MemoryReport& report, const cupti::MemoryRange& range,
                    std::span<void* const> stack) override;
  void on_freed(const MemoryReport& report, const cupti::MemoryRange& range,
                std::span<void* const> stack) override;
  void on_reports_lost(uint64_t count) noexcept override;

  [[nodiscard]] format::TraceMeta meta();

  const settings::Settings settings_;  ///< at the start of the program
  const std::string start_folder_;
  const bool announced_;
  const cupti::InterceptorOptions cuda_callbacks_;
  format::Definitions definitions_;
  FactTable facts_;
  LiveControls controls_;
  cupti::AddressMap addresses_;
  Wakeup wakeup_;
  EventQueue queue_{wakeup_};
  WriterThread writer_;
  StackTexts stacks_{definitions_, facts_};
  LiveJudge judge_;  ///< used by the writer thread only
  MemoryJournal journal_{addresses_, *this};
  OpRecorder ops_{*this, addresses_, journal_, stacks_};
  ValueStore values_;
  stats::HelperThreads helpers_{spare_threads()};
  ObserverPort port_;
  NcclRecorder nccl_;
  SpentTime spent_;
  std::optional<format::TraceMeta> process_meta_;  ///< used by the writer thread only
  bool named_ = true;  ///< the trace has the name of its rank; used by the writer thread only
  std::atomic<bool> rank_told_{false};  ///< by the program, and not in the trace yet
  std::atomic<bool> begun_{false};
  std::atomic<bool> has_context_{false};
  Mutex interceptor_mutex_;  ///< held while the interceptor is made
  std::atomic<cupti::Interceptor*> interceptor_{nullptr};
};

}  // namespace convtrace::engine
