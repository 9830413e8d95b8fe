#include "format/file/columns/rare_tables.h"

#include "format/model/definitions.h"
#include "format/schema/chunk_generated.h"

namespace convtrace::format {
namespace {

/// What a FlatBuffers table takes beside its texts; an estimate for the close rule.
constexpr size_t kTableBytes = 160;

std::string cut(std::string_view text) { return std::string(text.substr(0, kMaxStringBytes)); }

}  // namespace

RareTables::RareTables() = default;
RareTables::~RareTables() = default;

void RareTables::put(const Finding& e) {
  auto to = std::make_unique<wire::FindingT>();
  to->scope = e.place.scope.value;
  to->call = e.place.call;
  to->phase = static_cast<uint8_t>(e.place.phase);
  to->kind = static_cast<uint8_t>(e.kind);
  to->level = static_cast<uint8_t>(e.level);
  to->suppressed = e.suppressed;
  to->op = e.op.value;
  to->kernel = e.kernel.value;
  to->slot = e.slot.value;
  to->other = e.other.value;
  to->address = e.address;
  to->bytes = e.bytes;
  to->storage = e.value.storage;
  to->storage_offset = e.value.offset;
  to->generation = e.value.generation;
  to->version = e.value.version;
  to->alloc_stack = e.alloc_stack.value;
  to->launch_stack = e.launch_stack.value;
  to->free_stack = e.free_stack.value;
  to->message = cut(e.message);
  finding_.push_back(std::move(to));
  bytes_ += kTableBytes + e.message.size();
}

void RareTables::put(const Diagnostic& e) {
  auto to = std::make_unique<wire::DiagnosticT>();
  to->level = static_cast<uint8_t>(e.level);
  to->site = cut(e.site);
  to->message = cut(e.message);
  diagnostic_.push_back(std::move(to));
  bytes_ += kTableBytes + e.site.size() + e.message.size();
}

void RareTables::put(const Loss& e) {
  auto to = std::make_unique<wire::LossT>();
  to->reason = static_cast<uint8_t>(e.reason);
  to->count = e.count;
  loss_.push_back(std::move(to));
  bytes_ += kTableBytes;
}

void RareTables::put(const Cost& e) {
  auto to = std::make_unique<wire::CostT>();
  to->host_ns = e.host_ns;
  to->device_ns = e.device_ns;
  to->bytes = e.bytes;
  cost_.push_back(std::move(to));
  bytes_ += kTableBytes;
}

void RareTables::put(const Fact& e) {
  auto to = std::make_unique<wire::FactT>();
  to->scope = e.scope.value;
  to->name = e.name.value;
  to->value = cut(e.value);
  fact_.push_back(std::move(to));
  bytes_ += kTableBytes + e.value.size();
}

void RareTables::move_to(wire::ChunkT& chunk) {
  chunk.finding = std::move(finding_);
  chunk.diagnostic = std::move(diagnostic_);
  chunk.loss = std::move(loss_);
  chunk.cost = std::move(cost_);
  chunk.fact = std::move(fact_);
}

void RareTables::clear() {
  finding_.clear();
  diagnostic_.clear();
  loss_.clear();
  cost_.clear();
  fact_.clear();
  bytes_ = 0;
}

}  // namespace convtrace::format
