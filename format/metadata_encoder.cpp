#include "format/metadata_encoder.h"

#include "format/base/bytes.h"
#include "format/columns/sums_columns.h"
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

}  // namespace

std::vector<std::byte> encode_meta(const TraceMeta& meta) {
  wire::MetaT to;
  to.uuid.assign(meta.uuid.begin(), meta.uuid.end());
  to.start_realtime_ns = meta.start_realtime_ns;
  to.start_monotonic_ns = meta.start_monotonic_ns;
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
  Definitions::Counts end = from;
  size_t size = 0;
  defs.first_string = from.strings + 1;
  for (; end.strings < to.strings && size < kMaxDefsBytes; ++end.strings) {
    const std::string_view text = definitions.text({end.strings + 1});
    defs.strings.emplace_back(text);
    size += text.size() + 3 * sizeof(uint32_t);
  }
  defs.first_kernel = from.kernels + 1;
  for (; end.kernels < to.kernels && size < kMaxDefsBytes; ++end.kernels) {
    const KernelDef kernel = definitions.kernel({end.kernels + 1});
    defs.kernel_name.push_back(kernel.name.value);
    defs.kernel_family.push_back(kernel.family.value);
    size += 2 * sizeof(uint32_t);
  }
  defs.first_stack = from.stacks + 1;
  for (; end.stacks < to.stacks && size < kMaxDefsBytes; ++end.stacks) {
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
