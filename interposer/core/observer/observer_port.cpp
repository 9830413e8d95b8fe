#include "interposer/core/observer/observer_port.h"

#include <vector>

#include "cupti/stats/compute.h"
#include "format/base/clock.h"
#include "format/base/log.h"
#include "interposer/core/observer/element_counts.h"
#include "interposer/core/observer/parsed_messages.h"
#include "interposer/core/runtime/loss_of.h"

namespace convtrace::engine {
namespace {

constexpr uint32_t kMaxOperands = 4096;
/// The result ring takes whole batches, so a batch must be small, however many parameters a model
/// has.
constexpr size_t kMaxDeviceBatch = 256;

/// @return `last` for a number that is no enumerator.
template <typename Enum>
Enum checked_enum(uint8_t value, Enum last) {
  return value <= static_cast<uint8_t>(last) ? static_cast<Enum>(value) : last;
}

/// @return false if the message is too short, or its phase is none.
bool has_place(const auto& fixed) {
  return fixed && fixed->phase < format::kEnumCount<format::Phase>;
}

}  // namespace

/// Processes the messages of one submit, on one thread.
class ObserverPort::Batch {
 public:
  Batch(const Deps& around, KnownValues& known, OpenCalls& open)
      : deps_(around), known_(known), open_(open) {}
  ~Batch() {
    launch_device_requests();
    if (may_wait_ && !open_.any()) deps_.host.fold_waiting();
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  /// @return false if the message is malformed.
  bool handle(const Message& message);
  [[nodiscard]] bool watches() const { return watches_; }
  /// Submits the requests that are queued for a device; also called at the end.
  void launch_device_requests() noexcept;

 private:
  bool tensor(const Message& message);
  bool scope(const Message& message);
  bool step(const Message& message);
  bool op(const Message& message);
  bool op_begin(const Message& message);
  bool op_stack(const Message& message, format::StringId of);
  bool storage_dead(const Message& message);
  bool fact(const Message& message);
  bool event_fact(const Message& message);
  bool loss(const Message& message);
  bool spent(const Message& message);
  bool diagnostic(const Message& message);
  bool collective(const Message& message);
  bool collective_values(const Message& message);
  bool flight(const Message& message);
  bool kernel(const Message& message);

  [[nodiscard]] uint64_t generation_of(format::Device device, uint64_t address);
  void describe_unknown_input(TensorRequest& request, bool hash_is_final);
  bool leave_to_writer(TensorRequest& request);
  void compute_here(TensorRequest& request);
  bool store_value(format::TensorStats& event, const stats::TensorView& view);
  void queue_for_device(const TensorRequest& request);
  void lose(format::LossReason reason, uint64_t count) noexcept;
  [[nodiscard]] format::Op op_event(const convtrace_op& fixed, format::OpMoment moment) const;
  bool read_frames(const Message& message, convtrace_frames& fixed, format::StackId& stack);

  const Deps& deps_;
  KnownValues& known_;
  OpenCalls& open_;
  bool may_wait_ = false;  ///< results: a call has ended, or another thread's last one, just now
  bool watches_ = false;
  OfCollective of_;
  std::vector<cupti::DeviceRequest> device_;
  uint64_t device_stream_ = 0;
};

uint32_t ObserverPort::flags() const noexcept {
  if (!deps_.state.active()) return CONVTRACE_SUBMIT_OFF;
  return deps_.steps.capture() ? CONVTRACE_SUBMIT_CAPTURE : 0;
}

uint32_t ObserverPort::submit(std::span<const std::byte> batch) {
  MessageReader reader(batch);
  bool sound = true;
  bool watches = false;
  {
    Batch work(deps_, known_, open_);
    while (sound) {
      const std::optional<Message> message = reader.next();
      if (!message) break;
      sound = work.handle(*message);
    }
    watches = work.watches();
  }
  if (sound && !reader.malformed()) {
    deps_.state.succeeded(FailureKind::kMalformedBatch);
  } else {
    deps_.state.failed(FailureKind::kMalformedBatch, "observer");
  }
  return flags() | (watches ? uint32_t{CONVTRACE_SUBMIT_WATCH} : 0);
}

bool ObserverPort::Batch::handle(const Message& message) {
  switch (message.kind()) {
    case CONVTRACE_MSG_TENSOR: return tensor(message);
    case CONVTRACE_MSG_SCOPE: return scope(message);
    case CONVTRACE_MSG_STEP: return step(message);
    case CONVTRACE_MSG_OP: return op(message);
    case CONVTRACE_MSG_OP_BEGIN: return op_begin(message);
    case CONVTRACE_MSG_OP_STACK: return op_stack(message, {});
    case CONVTRACE_MSG_TENSOR_STACK: return op_stack(message, deps_.definitions.intern("tensor"));
    case CONVTRACE_MSG_STORAGE_DEAD: return storage_dead(message);
    case CONVTRACE_MSG_FACT: return fact(message);
    case CONVTRACE_MSG_EVENT_FACT: return event_fact(message);
    case CONVTRACE_MSG_LOSS: return loss(message);
    case CONVTRACE_MSG_SPENT: return spent(message);
    case CONVTRACE_MSG_DIAGNOSTIC: return diagnostic(message);
    case CONVTRACE_MSG_COLLECTIVE: return collective(message);
    case CONVTRACE_MSG_COLLECTIVE_VALUES: return collective_values(message);
    case CONVTRACE_MSG_FLIGHT: return flight(message);
    case CONVTRACE_MSG_KERNEL: return kernel(message);
    default: return true;  // from a newer observer: skipped by its length
  }
}

bool ObserverPort::Batch::tensor(const Message& message) {
  std::optional<TensorRequest> request = parse_tensor(message);
  if (!request) return false;
  if (of_.id == 0 && !deps_.steps.capture()) return true;
  format::TensorStats& event = request->event;
  if (!deps_.names.wants(event.place.scope)) return true;
  const uint32_t step = of_.id == 0 ? deps_.steps.step() : of_.step;
  event.collective = of_.id;
  const CaptureRules::Decision decision =
      deps_.captures.decide(event.capture, event.place.scope, step);
  event.capture = decision.capture;
  request->samples = decision.samples;
  event.value.generation = generation_of(event.device, event.address);
  event.header.step = step;
  if (!deps_.host.is_settled(event, request->stream)) {
    lose(format::LossReason::kStreamUnsafe, 1);
    return true;
  }
  describe_unknown_input(*request, decision.is_final);
  // A device that reads beyond its memory ends the program; a huge expanded view would take too
  // long.
  if (!in_bounds(*request)) {
    lose(format::LossReason::kTensorKind, 1);
    return true;
  }
  switch (event.device.type) {
    case format::Device::Type::kCpu:
      event.shape = stats::shape_of(request->view);
      if (!leave_to_writer(*request)) compute_here(*request);
      break;
    case format::Device::Type::kCuda: queue_for_device(*request); break;
    case format::Device::Type::kOther: lose(format::LossReason::kTensorKind, 1);
  }
  return true;
}

/// @return the generation of the memory in which a tensor lies, after all reports made so far; 0 if it
/// is not known.
uint64_t ObserverPort::Batch::generation_of(format::Device device, uint64_t address) {
  if (device.type != format::Device::Type::kCpu) {
    deps_.journal.apply_reports();
  } else if (const CpuBlock block = deps_.journal.cpu_block(address); block.generation != 0) {
    return block.generation;
  }
  const auto range = deps_.addresses.find(address);
  return range && !range->freed ? range->generation : 0;
}

/// Gives an input statistics of its own if no record has any.
void ObserverPort::Batch::describe_unknown_input(TensorRequest& request, bool hash_is_final) {
  format::TensorStats& event = request.event;
  const bool is_float = format::number_class(event.dtype) == format::NumberClass::kFloat;
  const bool is_hash = event.capture == format::Capture::kHash;
  if (!is_float || event.place.phase == format::Phase::kBackward) return;
  if (is_hash && hash_is_final) return;
  const bool known = known_.add(event, request.view);
  if (is_hash && !known) event.capture = format::Capture::kStats;
}

/// Leaves a value of which nothing but its hash, or statistics and samples, is wanted to the writer
/// thread. @return false if they are to be computed here.
bool ObserverPort::Batch::leave_to_writer(TensorRequest& request) {
  format::TensorStats& event = request.event;
  const bool usual = event.capture == format::Capture::kHash ||
                     (event.capture == format::Capture::kStats && request.samples != 0 &&
                      request.samples <= stats::kSampleCount);
  const bool more = deps_.poison || event.padding != format::Padding::kNone;
  stats::Layout elements;
  if (!usual || more || event.bytes == 0 || !stats::flatten(request.view, elements).ok())
    return false;
  if (!deps_.host.queue_value(event, elements)) return false;
  deps_.state.succeeded(FailureKind::kStatistics);
  return true;
}

void ObserverPort::Batch::compute_here(TensorRequest& request) {
  format::TensorStats& event = request.event;
  stats::StatsResult result;
  if (!stats::compute_on_cpu(request.view, event.capture, result, deps_.helpers).ok()) {
    lose(format::LossReason::kTensorKind, 1);
    deps_.state.failed(FailureKind::kStatistics, "statistics");
    return;
  }
  deps_.state.succeeded(FailureKind::kStatistics);
  stats::describe(event, result, request.samples != 0);
  std::vector<std::byte> leading;
  if (request.samples > stats::kSampleCount && event.capture != format::Capture::kHash) {
    leading = leading_values(request.view, request.samples);
    event.leading = leading;
  }
  if (deps_.poison) event.poisoned = count_poisoned(request.view);
  PaddingCount padding;
  if (event.padding != format::Padding::kNone) {
    padding = count_padding(request.view, event.pad_index);
    event.pad_count = padding.count;
    event.pad_rows = padding.rows;
  }
  if (event.capture == format::Capture::kSnapshot && !store_value(event, request.view)) return;
  deps_.sink.emit(event);
}

/// @return false if the event is to be dropped.
bool ObserverPort::Batch::store_value(format::TensorStats& event, const stats::TensorView& view) {
  stats::Layout layout;
  if (!stats::flatten(view, layout).ok()) return true;  // its statistics were computed nevertheless
  const ValueStore::Outcome outcome = deps_.values.take(event, layout);
  if (outcome == ValueStore::Outcome::kStatsOnly) event.capture = format::Capture::kStats;
  return outcome != ValueStore::Outcome::kLeftOut;
}

void ObserverPort::Batch::queue_for_device(const TensorRequest& request) {
  const bool other = !device_.empty() && (device_stream_ != request.stream ||
                                          device_.back().event.device != request.event.device);
  if (other || device_.size() == kMaxDeviceBatch) launch_device_requests();
  device_stream_ = request.stream;
  cupti::DeviceRequest& queued = device_.emplace_back();
  queued.view = request.view;
  queued.event = request.event;
  // NaNs and samples show whether an input already contained the pattern.
  if (deps_.poison && queued.event.op && queued.event.capture == format::Capture::kHash)
    queued.event.capture = format::Capture::kStats;
  queued.samples = request.samples;
}

void ObserverPort::Batch::launch_device_requests() noexcept {
  if (device_.empty()) return;
  for (cupti::DeviceRequest& request : device_) request.event.shape = stats::shape_of(request.view);
  const auto results = open_.any() ? cupti::Results::kLater : cupti::Results::kSoon;
  may_wait_ |= results == cupti::Results::kLater;
  const format::SampleOutcome outcome =
      deps_.host.submit_to_device(device_, device_stream_, results);
  if (outcome != format::SampleOutcome::kSampled) lose(loss_of(outcome), device_.size());
  device_.clear();
}

bool ObserverPort::Batch::scope(const Message& message) {
  const auto fixed = message.as<convtrace_scope>();
  if (!has_place(fixed)) return false;
  deps_.journal.apply_reports();  // earlier allocations come earlier in the trace
  format::Scope event;
  event.header.step = deps_.steps.step();
  event.place = {format::StringId{fixed->scope}, fixed->call,
                 static_cast<format::Phase>(fixed->phase)};
  event.enter = fixed->enter != 0;
  if (event.enter) {
    open_.begin();
  } else {
    open_.end();
    may_wait_ = true;
  }
  deps_.sink.emit(event);
  return true;
}

bool ObserverPort::Batch::step(const Message& message) {
  const auto fixed = message.as<convtrace_step>();
  if (!fixed) return false;
  open_.end_all();
  may_wait_ = true;
  deps_.steps.open(fixed->index, now_ns(), deps_.host.spent_so_far());
  deps_.ops.begin_step(fixed->index);
  format::Step event;
  event.header.step = fixed->index;
  event.index = fixed->index;
  deps_.sink.emit(event);
  return true;
}

/// The fields of an op's begin and end.
format::Op ObserverPort::Batch::op_event(const convtrace_op& fixed, format::OpMoment moment) const {
  format::Op event;
  event.header.step = deps_.steps.step();
  event.place = {format::StringId{fixed.scope}, fixed.call,
                 static_cast<format::Phase>(fixed.phase)};
  event.moment = moment;
  event.op = format::StringId{fixed.op};
  return event;
}

bool ObserverPort::Batch::op_begin(const Message& message) {
  const auto fixed = message.as<convtrace_op>();
  if (!has_place(fixed)) return false;
  deps_.host.on_custom_op();
  deps_.sink.emit(op_event(*fixed, format::OpMoment::kBegin));
  return true;
}

bool ObserverPort::Batch::op(const Message& message) {
  const auto fixed = message.as<convtrace_op>();
  if (!has_place(fixed) || fixed->operand_count > kMaxOperands) return false;
  std::vector<convtrace_op_operand> raw(fixed->operand_count);
  if (!message.copy(sizeof *fixed, raw.size(), raw.data())) return false;
  deps_.host.on_custom_op();
  deps_.journal.apply_reports();
  std::vector<format::Op> tensors;
  tensors.reserve(raw.size());
  for (const convtrace_op_operand& one : raw) {
    using Moment = format::OpMoment;
    format::Op& tensor = tensors.emplace_back(
        op_event(*fixed, one.is_output != 0 ? Moment::kOutput : Moment::kInput));
    tensor.written = one.written != 0;
    tensor.borrows = one.borrows != 0;
    tensor.slot = format::StringId{one.slot};
    tensor.device = {checked_enum(one.device_type, format::Device::Type::kOther), one.device_index};
    tensor.address = one.data;
    tensor.bytes = one.bytes;
    tensor.value = {
        .storage = one.storage, .offset = one.data - one.storage_base, .version = one.version};
    tensor.storage_bytes = one.storage_bytes;
  }
  format::Op end = op_event(*fixed, format::OpMoment::kEnd);
  end.declares_alias = fixed->declared_alias != 0;
  end.has_schema = fixed->schema_known != 0;
  if (deps_.ops.record(end, tensors)) watches_ = true;
  return true;
}

bool ObserverPort::Batch::read_frames(const Message& message, convtrace_frames& fixed,
                                      format::StackId& stack) {
  const auto header = message.as<convtrace_frames>();
  if (!header || header->frame_count > format::kMaxFrames) return false;
  fixed = *header;
  std::vector<uint32_t> ids(fixed.frame_count);
  if (!message.copy(sizeof fixed, ids.size(), ids.data())) return false;
  std::vector<format::StringId> frames;
  for (const uint32_t id : ids) frames.push_back(format::StringId{id});
  if (!frames.empty()) stack = deps_.definitions.intern_stack(frames);
  return true;
}

/// @param of  none: the op that returned last.
bool ObserverPort::Batch::op_stack(const Message& message, format::StringId of) {
  convtrace_frames fixed{};
  format::StackId stack;
  if (!read_frames(message, fixed, stack)) return false;
  format::Op event;
  event.header.step = deps_.steps.step();
  event.moment = format::OpMoment::kStack;
  event.slot = of;
  event.stack = stack;
  deps_.sink.emit(event);
  return true;
}

bool ObserverPort::Batch::storage_dead(const Message& message) {
  convtrace_frames fixed{};
  format::StackId stack;
  if (!read_frames(message, fixed, stack)) return false;
  // Allocations of this thread since its last report may confirm older suspicions, which this death
  // could withdraw, so they are applied first.
  deps_.journal.apply_reports();
  format::Op event;
  event.header.step = deps_.steps.step();
  event.moment = format::OpMoment::kStorageDeath;
  event.value.storage = fixed.storage;
  event.stack = stack;
  deps_.sink.emit(event);
  return true;
}

bool ObserverPort::Batch::kernel(const Message& message) {
  const auto fixed = message.as<convtrace_kernel>();
  if (!fixed) return false;
  std::optional<cupti::KernelSignature> signature = parse_kernel(message, deps_.definitions);
  if (!signature) return false;
  deps_.host.describe_kernel(fixed->function, *std::move(signature));
  return true;
}

bool ObserverPort::Batch::fact(const Message& message) {
  const auto fixed = message.as<convtrace_fact>();
  if (!fixed) return false;
  deps_.host.on_fact(deps_.definitions.text(format::StringId{fixed->name}),
                     deps_.definitions.text(format::StringId{fixed->value}));
  return true;
}

bool ObserverPort::Batch::event_fact(const Message& message) {
  const auto fixed = message.as<convtrace_event_fact>();
  if (!fixed || fixed->value_bytes > format::kMaxStringBytes) return false;
  std::string value(fixed->value_bytes, '\0');
  if (!message.copy(sizeof *fixed, value.size(), value.data())) return false;
  format::Fact event{.header = {}, .scope = {fixed->scope}, .name = {fixed->name}, .value = value};
  event.header.step = deps_.steps.step();
  deps_.sink.emit(event);
  return true;
}

bool ObserverPort::Batch::loss(const Message& message) {
  const auto fixed = message.as<convtrace_loss>();
  if (!fixed || fixed->reason >= format::kEnumCount<format::LossReason>) return false;
  lose(static_cast<format::LossReason>(fixed->reason), fixed->count);
  return true;
}

bool ObserverPort::Batch::spent(const Message& message) {
  const auto fixed = message.as<convtrace_spent>();
  if (fixed) deps_.host.on_spent(fixed->ns);
  return fixed.has_value();
}

bool ObserverPort::Batch::diagnostic(const Message& message) {
  const auto fixed = message.as<convtrace_diagnostic>();
  if (!fixed) return false;
  format::Diagnostic event;
  event.header.step = deps_.steps.step();
  event.level = checked_enum(fixed->level, format::Level::kDebug);
  event.site = deps_.definitions.text(format::StringId{fixed->site});
  event.message = deps_.definitions.text(format::StringId{fixed->text});
  const std::string site(event.site), text(event.message);
  log_line({0, event.level, site.c_str()}, "%s", text.c_str());
  deps_.sink.emit(event);
  return true;
}

bool ObserverPort::Batch::collective(const Message& message) {
  std::optional<format::Collective> event = parse_collective(message);
  if (!event) return false;
  event->header.step = deps_.steps.step();
  of_ = {event->id, event->header.step};
  deps_.sink.emit(*event);
  return true;
}

bool ObserverPort::Batch::collective_values(const Message& message) {
  const std::optional<OfCollective> of = parse_collective_values(message);
  if (of) of_ = *of;
  return of.has_value();
}

bool ObserverPort::Batch::flight(const Message& message) {
  std::optional<FlightMessage> told = parse_flight(message);
  if (!told) return false;
  format::Op& event = told->event;
  event.header.step = deps_.steps.step();
  event.value.generation = generation_of(event.device, event.address);
  if (told->line) event.stack = deps_.definitions.intern_stack({&*told->line, 1});
  deps_.sink.emit(event);
  return true;
}

void ObserverPort::Batch::lose(format::LossReason reason, uint64_t count) noexcept {
  format::Loss event;
  event.reason = reason;
  event.count = count;
  deps_.sink.emit(event);
}

}  // namespace convtrace::engine
