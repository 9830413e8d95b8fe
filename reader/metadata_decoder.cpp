#include "reader/metadata_decoder.h"

#include <algorithm>
#include <map>

#include "format/schema/defs_generated.h"
#include "format/schema/meta_generated.h"
#include "reader/columns/text_budget.h"
#include "reader/columns/verified_payload.h"

namespace convtrace::reader {
namespace {

namespace wire = format::wire;
using format::StringId;

constexpr flatbuffers::uoffset_t kMaxTables = 16;  // one table; strings are not counted

template <typename T>
size_t size_of(const flatbuffers::Vector<T>* values) {
  return values != nullptr ? values->size() : 0;
}

std::string text(const flatbuffers::String* string) {
  if (string == nullptr) return {};
  return std::string(string->c_str(), std::min<size_t>(string->size(), format::kMaxStringBytes));
}

Status corrupt(const char* site) { return Status::make(StatusCode::kCorrupt, site); }

Status define_strings(const wire::Defs& defs, format::Definitions& definitions) {
  for (uint32_t i = 0; i < size_of(defs.strings()); ++i) {
    const flatbuffers::String* string = defs.strings()->Get(i);
    const std::string_view view(string->c_str(), string->size());
    CONVTRACE_TRY(definitions.define(StringId{defs.first_string() + i}, view));
  }
  return kOkStatus;
}

Status define_kernels(const wire::Defs& defs, format::Definitions& definitions) {
  const size_t count = size_of(defs.kernel_name());
  if (size_of(defs.kernel_family()) != count) return corrupt("kernels");
  for (uint32_t i = 0; i < count; ++i) {
    const format::KernelDef kernel{{defs.kernel_name()->Get(i)}, {defs.kernel_family()->Get(i)}};
    CONVTRACE_TRY(definitions.define(format::KernelId{defs.first_kernel() + i}, kernel));
  }
  return kOkStatus;
}

Status define_stacks(const wire::Defs& defs, format::Definitions& definitions) {
  size_t next = 0;
  std::vector<StringId> frames;
  for (uint32_t i = 0; i < size_of(defs.frame_count()); ++i) {
    const size_t count = defs.frame_count()->Get(i);
    if (count > format::kMaxFrames || count > size_of(defs.frames()) - next)
      return corrupt("stacks");
    frames.clear();
    for (size_t end = next + count; next < end; ++next)
      frames.push_back({defs.frames()->Get(static_cast<uint32_t>(next))});
    CONVTRACE_TRY(definitions.define(format::StackId{defs.first_stack() + i}, frames));
  }
  return kOkStatus;
}

}  // namespace

Status decode_meta(Bytes raw, format::TraceMeta& meta) {
  const auto* data = reinterpret_cast<const uint8_t*>(raw.data());
  flatbuffers::Verifier verifier(data, raw.size(), kMaxDepth, kMaxTables);
  if (!wire::VerifyMetaBuffer(verifier)) return corrupt("META");
  const wire::Meta& from = *wire::GetMeta(data);
  if (size_of(from.uuid()) != meta.uuid.size()) return corrupt("META uuid");
  if (size_of(from.fact_name()) != size_of(from.fact_value())) return corrupt("META facts");
  TextBudget budget(raw.size());
  if (!budget.take(from.tool_version()) || !budget.take(from.host()) ||
      !budget.take(from.command_line()) || !budget.take(from.fact_name()) ||
      !budget.take(from.fact_value())) {
    return Status::make(StatusCode::kLimitExceeded, "META texts");
  }

  std::copy_n(from.uuid()->data(), meta.uuid.size(), meta.uuid.begin());
  meta.start_realtime_ns = from.start_realtime_ns();
  meta.start_monotonic_ns = from.start_monotonic_ns();
  meta.required_features = from.required_features();
  meta.tool_version = text(from.tool_version());
  meta.host = text(from.host());
  meta.pid = from.pid();
  meta.rank = from.rank();
  meta.world_size = from.world_size();
  meta.command_line.clear();
  for (uint32_t i = 0; i < size_of(from.command_line()); ++i)
    meta.command_line.push_back(text(from.command_line()->Get(i)));
  std::map<std::string, std::string> facts(meta.facts.begin(), meta.facts.end());
  for (uint32_t i = 0; i < size_of(from.fact_name()); ++i)
    facts.insert_or_assign(text(from.fact_name()->Get(i)), text(from.fact_value()->Get(i)));
  meta.facts.assign(facts.begin(), facts.end());
  return kOkStatus;
}

Status decode_defs(Bytes raw, format::Definitions& definitions) {
  const auto* data = reinterpret_cast<const uint8_t*>(raw.data());
  flatbuffers::Verifier verifier(data, raw.size(), kMaxDepth, kMaxTables);
  if (!wire::VerifyDefsBuffer(verifier)) return corrupt("DEFS");
  const wire::Defs& defs = *wire::GetDefs(data);
  if (!TextBudget(raw.size()).take(defs.strings()))
    return Status::make(StatusCode::kLimitExceeded, "DEFS texts");
  CONVTRACE_TRY(define_strings(defs, definitions));
  CONVTRACE_TRY(define_kernels(defs, definitions));
  return define_stacks(defs, definitions);
}

Status decode_sums(Bytes raw, std::vector<format::StepSums>& sums, uint64_t& events) {
  const auto* data = reinterpret_cast<const uint8_t*>(raw.data());
  flatbuffers::Verifier verifier(data, raw.size(), kMaxDepth, kMaxTables);
  if (!wire::VerifyStepSumsBuffer(verifier)) return corrupt("SUMS");
  events = wire::GetStepSums(data)->events();
  return append_sums(*wire::GetStepSums(data), sums) ? kOkStatus : corrupt("SUMS");
}

}  // namespace convtrace::reader
