#include "interposer/core/nccl/nccl_recorder.h"

#include <algorithm>
#include <utility>

#include "format/base/clock.h"
#include "interposer/core/nccl/transfer.h"
#include "interposer/core/runtime/loss_of.h"
#include "interposer/core/runtime/thread_context.h"

namespace convtrace::engine {
namespace {

constexpr int kSuccess = 0;     // ncclSuccess
constexpr int kInProgress = 7;  // ncclInProgress
/// The result ring takes whole batches.
constexpr size_t kMostAtOnce = 256;
/// Limit for one group; further wishes are counted as lost.
constexpr size_t kMostWishes = 4096;

bool is_good(int result) { return result == kSuccess || result == kInProgress; }

/// @return whether a kernel on that device may read `bytes` bytes from `address` on.
bool is_readable(const cupti::MemoryRange& range, uint8_t device, uint64_t address,
                 uint64_t bytes) {
  if (range.freed || range.source == format::MemorySource::kMulticast) return false;
  const bool on_device = range.device == format::Device{format::Device::Type::kCuda, device};
  if (!on_device && range.source != format::MemorySource::kHost) return false;
  return address >= range.base && bytes <= range.bytes &&
         address - range.base <= range.bytes - bytes;
}

}  // namespace

/// A call of the program.
struct NcclRecorder::Call {
  cupti::Position position;
  format::StringId op;
  format::DType dtype;
  uint8_t device;
  uint64_t stream;
  uint64_t id;
  uint32_t occurrence;  ///< calls of this op before it at its place in this step
};

void NcclRecorder::Nesting::ended(int kind, bool good) noexcept {
  if (kind == CONVTRACE_NCCL_GROUP_BEGINS && good) ++groups_;
  const bool ends = kind == CONVTRACE_NCCL_GROUP_ENDS || kind == CONVTRACE_NCCL_GROUP_DROPPED;
  if (ends && groups_ > 0) --groups_;  // NCCL leaves the group also when it fails
}

bool NcclRecorder::Nesting::enqueues(int kind) noexcept {
  return kind == CONVTRACE_NCCL_GROUP_ENDS ? groups_ <= 1 : groups_ == 0 && is_transfer(kind);
}

NcclRecorder::Group& NcclRecorder::group() {
  if (group_ == nullptr) group_ = new Group;
  return *group_;
}

void NcclRecorder::forget_group() noexcept { delete std::exchange(group_, nullptr); }

void NcclRecorder::begins(const convtrace_nccl_call& call) {
  if (is_transfer(call.kind)) {
    transfer(call);
  } else if (call.kind == CONVTRACE_NCCL_COMM_ENDS) {
    communicators_.forget(call.comm);  // once it has ended, another one may have its handle
  } else if (call.kind == CONVTRACE_NCCL_COMM_MADE) {
    (void)deps_.host.prepare_device(std::nullopt);  // while NCCL connects the members
  }
  if (Nesting::enqueues(call.kind) && group_ != nullptr) submit(group_->sent);
}

void NcclRecorder::ended(const convtrace_nccl_call& call, int result) {
  if (call.kind == CONVTRACE_NCCL_COMM_MADE) made(call, is_good(result));
  if (call.kind == CONVTRACE_NCCL_COMMS_MADE && result == kSuccess) made_all(call);
  if (call.kind == CONVTRACE_NCCL_COMM_SPLIT || call.kind == CONVTRACE_NCCL_COMM_SHRUNK)
    made_part(call, is_good(result));
  if (!Nesting::enqueues(call.kind) || group_ == nullptr) return;
  if (result == kSuccess) {
    for (const Promise& promise : group_->promised)
      if (*promise.made != nullptr) communicators_.add(*promise.made, promise.communicator);
    submit(group_->received);
  } else if (result == kInProgress) {
    lose(format::LossReason::kStreamUnsafe, group_->received.size());
  }
}

/// @return nullopt for one whose making was not seen, or that cannot be asked.
std::optional<Communicator> NcclRecorder::communicator_of(const convtrace_nccl_call& call) {
  std::optional<Communicator> known = communicators_.find(call.comm);
  if (!known || known->rank.size != 0) return known;
  int rank = -1;
  int size = 0;
  if (call.library == nullptr || call.library->comm_count == nullptr ||
      call.library->comm_user_rank == nullptr ||
      call.library->comm_count(call.comm, &size) != kSuccess ||
      call.library->comm_user_rank(call.comm, &rank) != kSuccess || size <= 0 || rank < 0) {
    return std::nullopt;
  }
  known->rank = {static_cast<uint32_t>(rank), static_cast<uint32_t>(size)};
  known->members = members(known->rank);
  communicators_.set_rank(call.comm, known->rank, known->members);
  return known;
}

void NcclRecorder::transfer(const convtrace_nccl_call& call) {
  const std::optional<Communicator> comm = communicator_of(call);
  if (!comm) return;
  const std::string_view op = name_of(call.kind);
  const Elements elements = elements_of(call, comm->rank.rank, comm->rank.size);
  const Call known{.position = deps_.host.place_of_thread(),
                   .op = deps_.definitions.intern(op),
                   .dtype = dtype_of(call.type),
                   .device = comm->device.value_or(0),
                   .stream = reinterpret_cast<uint64_t>(call.stream),
                   .id = next_id_.fetch_add(1),
                   .occurrence = 0};
  const std::string_view reduction = reduction_of(call.kind, call.reduction);
  format::Collective event;
  event.header.step = known.position.step;
  event.place = known.position.place;
  event.op = known.op;
  event.group = comm->group;
  event.members = comm->members;
  if (!reduction.empty()) event.reduction = deps_.definitions.intern(reduction);
  event.group_rank = comm->rank.rank;
  event.group_size = comm->rank.size;
  if (has_peer(call.kind)) event.peer = static_cast<uint32_t>(call.peer);
  event.dtype = known.dtype;
  event.device = {format::Device::Type::kCuda, known.device};
  event.stream = known.stream;
  event.sent = elements.sent;
  event.received = elements.received;
  event.number = communicators_.count_call(call.comm, call.kind, call.peer);
  event.id = known.id;
  deps_.sink.emit(event);
  if (ThreadContext* const thread = this_thread()) ++thread->scope.nccl_calls;

  if (!known.position.capture || !deps_.names.wants(known.position.place.scope)) return;
  Call place = known;
  place.occurrence = count_at(known.position.place, known.position.step, op);
  deps_.journal.apply_reports();  // so that the blocks that hold the tensors are known
  if (elements.sent != 0) wish(place, "sent:0", call.send, elements.sent, group().sent);
  if (elements.received != 0)
    wish(place, "received:0", call.receive, elements.received, group().received);
}

/// Notes a tensor to be read. Neither NCCL nor a stream knows the size of its memory, so a tensor that
/// is not inside a known block is not read.
void NcclRecorder::wish(const Call& call, std::string_view slot, const void* address,
                        uint64_t count, std::vector<Wish>& wishes) {
  const uint64_t at = reinterpret_cast<uint64_t>(address);
  const uint64_t element = format::element_bytes(call.dtype);
  const auto range = deps_.addresses.find(at);
  const bool readable = call.dtype != format::DType::kUnknown && range &&
                        count <= UINT64_MAX / element &&
                        is_readable(*range, call.device, at, count * element);
  if (!readable || wishes.size() >= kMostWishes)
    return lose(readable ? format::LossReason::kRingFull : format::LossReason::kTensorKind, 1);
  const uint32_t step = call.position.step;
  const format::Place& place = call.position.place;
  const CaptureRules::Decision decision =
      deps_.captures.decide(format::Capture::kStats, place.scope, step);
  Wish wished{.request = {}, .stream = call.stream};
  cupti::DeviceRequest& request = wished.request;
  request.samples = decision.samples;
  request.view = stats::dense_view(address, call.dtype, count);
  format::TensorStats& event = request.event;
  event.header.step = step;
  event.place = {place.scope, call.occurrence, place.phase};
  event.slot = deps_.definitions.intern(slot);
  event.op = call.op;
  event.device = {format::Device::Type::kCuda, call.device};
  event.dtype = call.dtype;
  event.capture = decision.capture;
  event.value.offset = at - range->base;
  event.value.generation = range->generation;
  event.address = at;
  event.bytes = count * element;
  event.has_shape = true;
  event.collective = call.id;
  wishes.push_back(wished);
}

/// Queues the noted tensors in order, in one batch for each run of tensors on one stream.
void NcclRecorder::submit(std::vector<Wish>& wishes) noexcept try {
  const auto on = [](const Wish& wish) {
    return std::pair(wish.request.event.device.index, wish.stream);
  };
  std::ranges::stable_sort(wishes, {}, on);
  std::vector<cupti::DeviceRequest> batch;
  for (size_t first = 0; first < wishes.size(); first += batch.size()) {
    batch.clear();
    for (size_t i = first; i < wishes.size() && batch.size() < kMostAtOnce; ++i) {
      if (on(wishes[i]) != on(wishes[first])) break;
      batch.push_back(wishes[i].request);
    }
    for (cupti::DeviceRequest& request : batch) request.event.shape = shape_of(request.view);
    const format::SampleOutcome outcome = deps_.host.submit_at_once(batch, wishes[first].stream);
    if (outcome != format::SampleOutcome::kSampled) lose(loss_of(outcome), batch.size());
  }
  wishes.clear();
} catch (...) {  // no memory
  lose(format::LossReason::kRingFull, wishes.size());
  wishes.clear();
}

void NcclRecorder::lose(format::LossReason reason, uint64_t count) noexcept {
  if (count == 0) return;
  format::Loss event;
  event.reason = reason;
  event.count = count;
  deps_.sink.emit(event);
}

format::StringId NcclRecorder::members(CommRank rank) {
  const CommRank job = deps_.host.job_rank();
  const std::string text = members_text(rank, job.rank, job.size);
  return text.empty() ? format::StringId{} : deps_.definitions.intern(text);
}

/// NCCL gives the handle at once, also inside a group.
void NcclRecorder::made(const convtrace_nccl_call& call, bool good) {
  if (!good || call.made == nullptr || *call.made == nullptr || call.id == nullptr ||
      call.size <= 0 || call.rank < 0) {
    return;
  }
  Communicator made;
  made.name = name_of_id(call.id, call.id_bytes);
  made.group = deps_.definitions.intern(made.name);
  made.rank = {static_cast<uint32_t>(call.rank), static_cast<uint32_t>(call.size)};
  made.members = members(made.rank);
  made.device = deps_.host.prepare_device(std::nullopt);
  communicators_.add(*call.made, made);
}

/// Its members are all in this process, so any name will do that no other group has.
void NcclRecorder::made_all(const convtrace_nccl_call& call) {
  if (call.made == nullptr || call.size <= 0) return;
  const uint64_t unique[] = {now_ns(), reinterpret_cast<uint64_t>(call.made[0]),
                             next_id_.fetch_add(1), reinterpret_cast<uint64_t>(this),
                             deps_.host.job_rank().rank};
  const std::string name = name_of_id(unique, sizeof unique);
  for (int i = 0; i < call.size; ++i) {
    Communicator made;
    made.name = name;
    made.group = deps_.definitions.intern(name);
    made.rank = {static_cast<uint32_t>(i), static_cast<uint32_t>(call.size)};
    made.device = static_cast<uint8_t>(call.devices != nullptr ? call.devices[i] : i);
    (void)deps_.host.prepare_device(made.device);
    communicators_.add(call.made[i], made);
  }
}

/// NCCL gives the handle when the part is complete: inside a group, when that ends.
void NcclRecorder::made_part(const convtrace_nccl_call& call, bool good) {
  const std::optional<Communicator> whole = communicators_.find(call.comm);
  if (!whole || !good) return;
  const uint64_t before = communicators_.count_part(call.comm);
  const bool split = call.kind == CONVTRACE_NCCL_COMM_SPLIT;
  if (call.made == nullptr || (split && call.color < 0)) return;
  Communicator made;
  made.name = name_of_part(whole->name, before, split ? std::to_string(call.color) : "shrunk");
  made.group = deps_.definitions.intern(made.name);
  made.device = whole->device;
  if (Nesting::in_group()) {
    group().promised.push_back({call.made, made});
  } else if (*call.made != nullptr) {
    communicators_.add(*call.made, made);
  }
}

uint32_t NcclRecorder::count_at(const format::Place& place, uint32_t step, std::string_view op) {
  const Lock lock(counts_mutex_);
  if (std::exchange(counted_step_, step) != step) counts_.clear();
  return counts_[{static_cast<uint8_t>(place.phase), place.scope.value, op}]++;
}

}  // namespace convtrace::engine
