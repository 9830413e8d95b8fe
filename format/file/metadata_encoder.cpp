#include "format/file/metadata_encoder.h"

#include <algorithm>

#include "format/base/bytes.h"
#include "format/schema/defs_generated.h"
#include "format/schema/meta_generated.h"
#include "format/schema/sums_generated.h"

namespace convtrace::format {
namespace {

std::string cut(std::string_view text) { return std::string(text.substr(0, kMaxStringBytes)); }

std::vector<std::byte> bytes_from(const flatbuffers::FlatBufferBuilder& builder) {
  const Bytes bytes = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  return {bytes.begin(), bytes.end()};
}

/// In a recovered trace some ids are not defined, while a payload has one run of ids for each kind.
/// @return the id before the first defined one after `from`, at most `to`.
template <typename AnyId>
uint32_t before_next(const Definitions& definitions, AnyId from, uint32_t to) {
  const uint32_t next = definitions.next(from).value;
  return next == 0 ? to : std::min(next - 1, to);
}

template <typename AnyId>
bool goes_on(const Definitions& definitions, AnyId last, uint32_t to, size_t size) {
  return last.value < to && size < kMaxDefsBytes && definitions.has(AnyId{last.value + 1});
}

}  // namespace

std::vector<std::byte> encode_meta(const TraceMeta& meta) {
  wire::MetaT to;
  to.uuid.assign(meta.uuid.begin(), meta.uuid.end());
  to.start_realtime_ns = meta.start_realtime_ns;
  to.start_monotonic_ns = meta.start_monotonic_ns;
  to.required_features = meta.required_features;
  to.tool_version = cut(meta.tool_version);
  to.host = cut(meta.host);
  to.pid = meta.pid;
  to.rank = meta.rank;
  to.world_size = meta.world_size;
  for (const std::string& argument : meta.command_line) to.command_line.push_back(cut(argument));
  for (const auto& [name, value] : meta.facts) {
    to.fact_name.push_back(cut(name));
    to.fact_value.push_back(cut(value));
  }
  flatbuffers::FlatBufferBuilder builder;
  wire::FinishMetaBuffer(builder, wire::Meta::Pack(builder, &to));
  return bytes_from(builder);
}

DefsPayload encode_defs(const Definitions& definitions, const Definitions::Counts& from,
                        const Definitions::Counts& to) {
  wire::DefsT defs;
  Definitions::Counts end;
  size_t size = 0;
  end.strings = before_next(definitions, StringId{from.strings}, to.strings);
  defs.first_string = end.strings + 1;
  for (; goes_on(definitions, StringId{end.strings}, to.strings, size); ++end.strings) {
    const std::string_view text = definitions.text({end.strings + 1});
    defs.strings.emplace_back(text);
    size += text.size() + 3 * sizeof(uint32_t);
  }
  end.kernels = before_next(definitions, KernelId{from.kernels}, to.kernels);
  defs.first_kernel = end.kernels + 1;
  for (; goes_on(definitions, KernelId{end.kernels}, to.kernels, size); ++end.kernels) {
    const KernelDef kernel = definitions.kernel({end.kernels + 1});
    defs.kernel_name.push_back(kernel.name.value);
    defs.kernel_family.push_back(kernel.family.value);
    size += 2 * sizeof(uint32_t);
  }
  end.stacks = before_next(definitions, StackId{from.stacks}, to.stacks);
  defs.first_stack = end.stacks + 1;
  for (; goes_on(definitions, StackId{end.stacks}, to.stacks, size); ++end.stacks) {
    const std::span<const StringId> frames = definitions.stack({end.stacks + 1});
    defs.frame_count.push_back(static_cast<uint16_t>(frames.size()));
    for (const StringId frame : frames) defs.frames.push_back(frame.value);
    size += sizeof(uint16_t) + frames.size_bytes();
  }
  flatbuffers::FlatBufferBuilder builder;
  wire::FinishDefsBuffer(builder, wire::Defs::Pack(builder, &defs));
  const size_t items = defs.strings.size() + defs.kernel_name.size() + defs.frame_count.size();
  return {bytes_from(builder), end, static_cast<uint32_t>(items)};
}

std::vector<std::byte> encode_sums(std::span<const StepSums> sums, uint64_t events) {
  flatbuffers::FlatBufferBuilder builder;
  std::unique_ptr<wire::StepSumsT> to = pack(sums);
  if (!to) to = std::make_unique<wire::StepSumsT>();
  to->events = events;
  wire::FinishStepSumsBuffer(builder, wire::StepSums::Pack(builder, to.get()));
  return bytes_from(builder);
}

}  // namespace convtrace::format
