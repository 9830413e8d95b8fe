#include "tests/simulate/trace_file.h"

#include <span>
#include <utility>

#include "format/file/file_sink.h"

namespace convtrace::simulate {
namespace {

using namespace format;

constexpr uint32_t kRanksOfHost = 8, kFirstPid = 20000;

TraceMeta meta_of(const World& world, uint32_t rank) {
  TraceMeta meta;
  for (uint64_t i = 0; i < meta.uuid.size(); ++i)
    meta.uuid[i] = static_cast<uint8_t>(seed_of({world.seed, rank, i}) | 1);
  meta.start_realtime_ns = 1'790'000'000'000'000'000;
  meta.start_monotonic_ns = 1;
  meta.tool_version = "simulated";
  meta.host = "node" + std::to_string(rank / kRanksOfHost);
  meta.pid = kFirstPid + rank;
  meta.rank = rank;
  meta.world_size = world.layout.ranks;
  meta.command_line = {"python", "train.py"};
  meta.facts = {{"version.torch", "2.9.0"}};
  return meta;
}

}  // namespace

TraceFile::TraceFile(const World& world, const std::string& folder, uint32_t rank)
    : world_(world), meta_(meta_of(world, rank)) {
  const std::string path =
      folder + "/convtrace-" + std::to_string(rank) + '-' + std::to_string(meta_.pid) + ".ctrace";
  auto sink = FileSink::create(path.c_str());
  status_ = sink.status();
  if (!status_.ok()) return;
  auto writer = TraceWriter::create(std::move(sink).value(), meta_, definitions_);
  status_ = writer.status();
  if (status_.ok()) writer_ = std::move(writer).value();
  members_.resize(world.groups.all().size());
  groups_.resize(world.groups.all().size());
}

void TraceFile::append(uint32_t step, const std::vector<Record>& records) {
  ids_.resize(world_.names.count());
  for (const Record& record : records) {
    if (!status_.ok()) return;
    Event event = event_of(record);
    EventHeader& header = header_of(event);
    header.t_ns = record.t_ns;
    header.step = step;
    header.thread = meta_.pid + (record.phase == Phase::kBackward ? 1 : 0);
    status_ = writer_->append(event);
  }
}

void TraceFile::flush() {
  if (status_.ok()) status_ = writer_->flush();
}

void TraceFile::close() {
  if (!status_.ok()) return;
  meta_.facts.insert(meta_.facts.begin(), {"exit.status", "0"});
  status_ = writer_->append_meta(meta_);
  if (status_.ok()) status_ = writer_->close();
}

StringId TraceFile::id(Name name) {
  if (name == 0) return {};
  StringId& known = ids_[name];
  if (!known) known = definitions_.intern(world_.names.text(name));
  return known;
}

Event TraceFile::event_of(const Record& record) {
  const Place place{id(record.scope), record.call, record.phase};
  switch (record.kind) {
    case Record::Kind::kStep: return Step{};
    case Record::Kind::kEnter: return Scope{.header = {}, .place = place, .enter = true};
    case Record::Kind::kLeave: return Scope{.header = {}, .place = place, .enter = false};
    case Record::Kind::kFact:
      return Fact{.header = {},
                  .scope = {},
                  .name = id(record.op),
                  .value = world_.names.text(record.slot)};
    case Record::Kind::kCollective: return collective_of(record);
    case Record::Kind::kStats: break;
  }
  return stats_of(record);
}

Event TraceFile::collective_of(const Record& record) {
  const Group& group = world_.groups.all()[record.group];
  StringId& name = groups_[record.group];
  StringId& members = members_[record.group];
  if (!name) {
    name = definitions_.intern(group.name);
    members = definitions_.intern(members_text(group.members));
  }
  Collective call;
  call.place = {id(record.scope), record.call, record.phase};
  call.op = id(record.op);
  call.group = name;
  call.members = members;
  call.reduction = id(record.slot);
  call.group_rank = record.group_rank;
  call.group_size = static_cast<uint32_t>(group.members.size());
  call.peer = record.peer;
  call.dtype = record.dtype;
  call.sent = record.sent;
  call.received = record.received;
  call.number = record.number;
  call.id = record.id;
  return call;
}

Event TraceFile::stats_of(const Record& record) {
  const Tensor& tensor = *record.value;
  const Summary& summary = *tensor.summary;
  TensorStats event;
  event.place = {id(record.scope), record.call, record.phase};
  event.slot = id(record.slot);
  event.op = id(record.op);
  event.dtype = tensor.dtype;
  event.bytes = tensor.elements.size() * element_bytes(tensor.dtype);
  shape_[0] = tensor.elements.size();
  event.has_shape = true;
  event.shape = shape_;
  event.stats = summary.stats;
  event.variant = summary.variant;
  event.samples = std::span(summary.samples).first(summary.sample_bytes);
  event.collective = record.id;
  return event;
}

}  // namespace convtrace::simulate
