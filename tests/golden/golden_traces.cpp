#include "tests/golden/golden_traces.h"

#include <limits>

#include "format/base/checksum.h"
#include "reader/trace_reader.h"
#include "tests/golden/golden_values.h"
#include "tests/support/describe.h"
#include "tests/support/trace_builder.h"
#include "tools/cli/base/record_json.h"

namespace convtrace::test {
namespace {

using namespace format;

void write_tiny(const std::string& path) {
  TraceBuilder(path)
      .meta(fixed_meta())
      .step(3)
      .diagnostic(Level::kWarning, "golden", "hello")
      .enter("h.0.mlp")
      .close();
}

/// One step: the same as the others but for addresses, generations and values.
void put_step(TraceBuilder& trace, uint32_t step) {
  const uint64_t moved = step == 2 ? 0x40000 : 0;
  const MemorySpec memory{.address = 0x7f0000001000 + moved,
                          .bytes = 4096,
                          .generation = 10 + step,
                          .device = {Device::Type::kCuda, 0},
                          .stream = 7,
                          .stack = {"alloc", "main"}};
  trace.step(step).enter("h.0").alloc(memory);
  for (const uint64_t offset : {uint64_t{0}, uint64_t{256}}) {
    trace.launch({.kernel = "_Z3addPf",
                  .family = "add",
                  .scope = "h.0",
                  .grid = {4, 2, 1},
                  .block = {128, 1, 1},
                  .stream = 7,
                  .operands = {{0, 0, Confidence::kPointerBase, 0x7e0000000000, 1, 0},
                               {2, 8, Confidence::kWordInterior, memory.address + offset,
                                memory.generation, offset}}});
  }
  const float s = static_cast<float>(step);
  trace.stats({.scope = "h.0",
               .op = "demo::gelu",
               .device = {Device::Type::kCuda, 0},
               .value = {5, 0, memory.generation, 1},
               .address = memory.address,
               .values = {1.0f + s, -2.0f, 0.5f, 0.0f, 3.0f * s},
               .range_hashes = {11, 12 + step}});
  trace.stats({.scope = "h.0", .slot = "input:0", .capture = Capture::kHash, .values = {1.0f, s}});
  trace.leave("h.0").free(memory);
  Copy copy;
  copy.destination = memory.address;
  copy.source = 0x10;
  copy.bytes = 64;
  copy.stream = 7;
  trace.copy(copy);
}

/// Sums that need all 128 bits, and an extreme that has no other sign.
Stats integer_stats() {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr uint64_t kMagnitude = uint64_t{1} << 63;
  return {.count = 3,
          .finite = 3,
          .positive = 1,
          .negative = 2,
          .saturated = 2,
          .min = Scalar::i64(kLeast),
          .max = Scalar::i64(5),
          .amax = Scalar::u64(kMagnitude),
          .amin_nonzero = Scalar::u64(5),
          .sum = {5, ~uint64_t{0}},  // 5 - 2^64
          .l1 = {5, 1},
          .l2 = 0x1p63 * 1.4142135623730951,
          .mean = -0x1p64 / 3,
          .std = 0x1p63,
          .hash = 99};
}

void put_all(TraceBuilder& trace) {
  trace.meta(fixed_meta()).fact("version.torch", "2.13.0");
  for (uint32_t step = 0; step < 4; ++step) {
    put_step(trace, step);
    if (step == 1) trace.flush();
  }
  trace.stats({.scope = "h.0",
               .slot = "input:1",
               .dtype = DType::kI64,
               .shape = std::vector<uint64_t>{3},
               .stats = integer_stats()});
  trace.finding({.kind = FindingKind::kFreedUnderOutput,
                 .level = Level::kError,
                 .scope = "h.0",
                 .op = "demo::gelu",
                 .slot = "output:0",
                 .other = "input:0",
                 .bytes = 4096,
                 .free_stack = {"free", "main"},
                 .message = "freed"});
  trace.loss(LossReason::kQueueFull, 3).cost(1000, 2000, 3000);
}

void write_full(const std::string& path) {
  TraceBuilder trace(path);
  put_all(trace);
  trace.close();
}

void write_unclosed(const std::string& path) {
  TraceBuilder trace(path);
  put_all(trace);
  trace.leave_unclosed();
}

/// Every kind of synchronisation, as two streams and the host use it in equal steps.
void write_syncs(const std::string& path) {
  TraceBuilder trace(path);
  trace.meta(fixed_meta()).step(0);
  const auto put = [&trace](SyncKind kind, uint64_t stream, uint64_t event, uint32_t flags = 0) {
    trace.event(Sync{
        .header = {}, .kind = kind, .device = 1, .stream = stream, .event = event, .flags = flags});
  };
  put(SyncKind::kStreamCreate, 0x55550010, 0, 1);
  put(SyncKind::kEventCreate, 0, 0x55550020, 2);
  for (uint32_t step = 1; step < 4; ++step) {
    trace.step(step);
    put(SyncKind::kEventRecord, 0, 0x55550020);
    put(SyncKind::kStreamWait, 0x55550010, 0x55550020);
    put(SyncKind::kStreamDone, 0x55550010, 0);
    put(SyncKind::kEventDone, 0, 0x55550020);
  }
  put(SyncKind::kContextDone, 0, 0);
  put(SyncKind::kEventDestroy, 0, 0x55550020);
  put(SyncKind::kStreamDestroy, 0x55550010, 0);
  trace.close();
}

/// Operands that looks have found to be outputs, summed by either variant.
void write_outputs(const std::string& path) {
  TraceBuilder trace(path);
  trace.meta(fixed_meta()).step(0);
  for (uint32_t launch = 1; launch <= 4; ++launch) {
    TensorStats event;
    event.device = {Device::Type::kCuda, 1};
    event.dtype = DType::kI64;
    event.extent = Extent::kBlock;
    event.address = 0x7F0000000000 + launch * 512;
    event.bytes = 24;
    event.stats = integer_stats();
    event.variant = launch % 2;
    event.looks = launch == 4 ? 0 : 8 + launch;
    event.changes = launch == 4 ? 0 : 7;
    event.capture = launch == 3 ? Capture::kHash : Capture::kStats;
    trace.event(event);
  }
  trace.close();
}

/// A tagged op that gives its input's memory away in each step; what it took was never written.
void write_ops(const std::string& path) {
  TraceBuilder trace(path);
  trace.meta(fixed_meta()).step(0);
  Definitions& names = trace.definitions();
  Op op;
  op.place.scope = names.intern("h.0");
  op.op = names.intern("demo::gelu");
  const auto put = [&](OpMoment moment, const Op& fields) {
    Op event = fields;
    event.moment = moment;
    event.place = op.place;
    event.op = op.op;
    trace.event(event);
  };
  for (uint32_t step = 1; step < 4; ++step) {
    trace.step(step);
    Op tensor;
    tensor.slot = names.intern("input:0");
    tensor.address = 0x7F0000000040 + step * 4096;
    tensor.bytes = 256;
    tensor.value = {.storage = 9 + step, .offset = 64, .generation = 20 + step, .version = 1};
    tensor.storage_bytes = 512;
    tensor.written = step == 2;
    tensor.frees_reported = true;
    put(OpMoment::kBegin, {});
    put(OpMoment::kInput, tensor);
    tensor.slot = names.intern("output:0");
    tensor.value.storage += 100;
    put(OpMoment::kOutput, tensor);
    Op end;
    end.has_schema = true;
    end.declares_alias = step == 3;
    put(OpMoment::kEnd, end);
    const StringId frame = names.intern("forward (train.py:9)");
    Op with_stack;
    with_stack.stack = names.intern_stack(std::span(&frame, 1));
    put(OpMoment::kStack, with_stack);
    Op death;
    death.value.storage = 9 + step;
    death.stack = with_stack.stack;
    death.moment = OpMoment::kStorageDeath;
    trace.event(death);
  }
  TensorStats read;
  read.op = op.op;
  read.slot = names.intern("input:0");
  read.poisoned = 3;
  trace.event(read);
  trace.close();
}

/// Indices and labels with padding; a device has not counted it.
void write_padding(const std::string& path) {
  TraceBuilder trace(path);
  trace.meta(fixed_meta()).step(0);
  const std::vector<uint64_t> shape = {2, 3}, rows = {1, 2}, others = {0, 3};
  for (uint32_t batch = 0; batch < 4; ++batch) {
    TensorStats event;
    event.dtype = DType::kI64;
    event.bytes = 48;
    event.has_shape = true;
    event.shape = shape;
    event.stats = integer_stats();
    event.padding = batch < 3 ? Padding::kEmbedding : Padding::kLabels;
    event.pad_index = batch < 3 ? 0 : -100;
    event.pad_count = batch == 2 ? kNotCounted : 3;
    if (batch < 2) event.pad_rows = batch == 0 ? rows : others;
    trace.event(event);
  }
  trace.close();
}

/// Collectives of two steps, and what they sent and received.
void write_collectives(const std::string& path) {
  TraceBuilder trace(path);
  auto& names = trace.meta(fixed_meta()).definitions();
  for (uint32_t step = 0; step < 2; ++step) {
    trace.step(step);
    Collective sum;
    sum.place = {names.intern("h.0"), 0, Phase::kBackward};
    sum.op = names.intern("all_reduce");
    sum.group = names.intern("c10d:0");
    sum.members = names.intern("0-3,8");
    sum.reduction = names.intern("sum");
    sum.group_rank = 2;
    sum.group_size = 5;
    sum.dtype = DType::kBF16;
    sum.device = {Device::Type::kCuda, 1};
    sum.stream = 0x10;
    sum.sent = sum.received = 6;
    sum.number = step;
    sum.id = 2 * step + 1;
    trace.event(sum);
    TensorStats value;
    value.dtype = DType::kI64;
    value.slot = names.intern("sent:0");
    value.op = sum.op;
    value.stats = integer_stats();
    value.collective = sum.id;
    trace.event(value);
    Collective send;
    send.op = names.intern("send");
    send.group = sum.group;
    send.group_rank = 2;
    send.group_size = 5;
    send.peer = 4;
    send.sent = 3;
    send.number = step;
    send.id = sum.id + 1;
    trace.event(send);
    value.slot = names.intern("received:0");
    trace.event(value);
  }
  trace.close();
}

/// Values with the hashes of version 2, as FORMAT.md 6.10 lists them.
void write_hashes(const std::string& path) {
  TraceMeta meta = fixed_meta();
  meta.required_features = kFeatureHash2;
  TraceBuilder trace(path);
  trace.meta(meta).step(0);
  const auto value = [&](uint64_t bytes, uint64_t hash) {
    Stats stats;
    stats.count = bytes, stats.hash = hash;
    trace.stats({.slot = "output:" + std::to_string(bytes),
                 .dtype = DType::kU8,
                 .capture = Capture::kHash,
                 .stats = stats,
                 .bytes = bytes});
  };
  value(1, 0x100);
  value(4, 0x100000000);
  value(5, 0x4e8f1a1fcaf3ab94);
  value(1024, 0xd1c98f990acceb94);
  trace.close();
}

/// Changes a byte of the file header and seals it anew.
std::string with_header_byte(std::string bytes, size_t at, char value) {
  const auto header = std::as_writable_bytes(std::span(bytes)).first<64>();
  header[at] = static_cast<std::byte>(value);
  store_le(&header[60], checksum32(header.first<60>()));
  return bytes;
}

}  // namespace

const GoldenTrace kGolden[kGoldenTraces] = {
    {"tiny", write_tiny},         {"full", write_full},
    {"unclosed", write_unclosed}, {"values", write_values},
    {"syncs", write_syncs},       {"outputs", write_outputs},
    {"padding", write_padding},   {"ops", write_ops},
    {"hashes", write_hashes},     {"collectives", write_collectives},
    {"packed", write_packed}};

const MustFail kMustFail[kMustFailFiles] = {
    {"empty", [](std::string) { return std::string(); }},
    {"cut_header", [](std::string bytes) { return bytes.substr(0, 63); }},
    {"not_a_trace", [](std::string bytes) { return std::string(bytes.size(), 'x'); }},
    {"version_2", [](std::string bytes) { return with_header_byte(std::move(bytes), 8, 2); }},
    {"required_feature",
     [](std::string bytes) { return with_header_byte(std::move(bytes), 48, 1 << 5); }},
    {"damaged_header_no_records",
     [](std::string bytes) { return bytes.replace(60, 4, 4, 'x').substr(0, 64); }},
};

std::string reading_of(const std::string& path) {
  auto opened = reader::TraceReader::open(path);
  if (!opened.ok()) {
    return std::string(to_string(opened.status().code)) + ' ' +
           std::to_string(opened.status().detail) + '\n';
  }
  std::string text;
  while (const Event* event = opened.value()->next()) text += describe(*event) + '\n';
  return text + to_string(opened.value()->state()) + '\n';
}

std::string json_of(const std::string& path) {
  auto opened = reader::TraceReader::open(path);
  if (!opened.ok()) return {};
  const TraceMeta& meta = opened.value()->meta();
  std::string text = tools::meta_record_json(meta).dump() + '\n';
  while (const Event* event = opened.value()->next())
    text += tools::event_json(*event, opened.value()->definitions(), meta.rank).dump() + '\n';
  return text;
}

}  // namespace convtrace::test
