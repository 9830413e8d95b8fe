// Hostile META and DEFS payloads: FORMAT.md sections 4, 5 and 9.

#include "reader/metadata_decoder.h"

#include <functional>

#include "format/file/layout.h"
#include "format/file/metadata_encoder.h"
#include "format/schema/defs_generated.h"
#include "format/schema/meta_generated.h"
#include "format/schema/sums_generated.h"
#include "tests/support/catch.h"

namespace convtrace {
namespace {

namespace wire = format::wire;
using format::Definitions;
using format::StringId;

StatusCode decode(const std::function<void(wire::DefsT&)>& change, Definitions& definitions) {
  wire::DefsT defs;
  change(defs);
  flatbuffers::FlatBufferBuilder builder;
  wire::FinishDefsBuffer(builder, wire::Defs::Pack(builder, &defs));
  return reader::decode_defs(
             std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize())), definitions)
      .code;
}

TEST_CASE("META: every field comes back", "[format][reader]") {
  format::TraceMeta meta;
  meta.uuid = {1, 2, 3};
  meta.start_realtime_ns = 4;
  meta.start_monotonic_ns = 5;
  meta.required_features = 0;
  meta.tool_version = "0.1.0";
  meta.host = "node7";
  meta.pid = 6;
  meta.rank = 7;
  meta.world_size = 8;
  meta.command_line = {"python", "", "train.py"};
  meta.facts = {{"a", "1"}, {"b", ""}};
  format::TraceMeta back;
  REQUIRE(reader::decode_meta(format::encode_meta(meta), back).ok());
  const auto& [uuid, realtime, monotonic, features, version, host, pid, rank, world, command,
               facts] = back;
  CHECK(uuid == meta.uuid);
  CHECK(realtime == 4);
  CHECK(monotonic == 5);
  CHECK(version == "0.1.0");
  CHECK(host == "node7");
  CHECK(pid == 6);
  CHECK(rank == 7);
  CHECK(world == 8);
  CHECK(command == meta.command_line);
  CHECK(facts == meta.facts);
  CHECK(features == 0);
}

TEST_CASE("DEFS: many definitions go over several payloads", "[format][reader]") {
  Definitions definitions;
  for (int i = 0; i < 60; ++i)
    (void)definitions.intern(std::to_string(i) + std::string(40'000, 'x'));
  (void)definitions.intern_kernel({{1}, {2}});
  const StringId frames[] = {StringId{3}, StringId{4}};
  (void)definitions.intern_stack(frames);

  Definitions back;
  Definitions::Counts from;
  int payloads = 0;
  uint32_t items = 0;
  while (from != definitions.counts()) {
    const auto payload = format::encode_defs(definitions, from, definitions.counts());
    REQUIRE(reader::decode_defs(payload.bytes, back).ok());
    from = payload.end;
    items += payload.item_count;
    ++payloads;
  }
  CHECK(payloads == 3);
  CHECK(items == 62);
  CHECK(back.counts() == definitions.counts());
  for (uint32_t i = 1; i <= 60; ++i) CHECK(back.text({i}) == definitions.text({i}));
  CHECK(back.kernel({1}).family == StringId{2});
  REQUIRE(back.stack({1}).size() == 2);
  CHECK(back.stack({1})[1] == StringId{4});
}

TEST_CASE("DEFS: what is not defined stays so, and costs nothing", "[format][reader]") {
  Definitions definitions;
  const StringId ids[] = {{1}, {2}, {300}, {format::kMaxDefinitions}};
  for (const StringId id : ids)
    REQUIRE(definitions.define(id, "text " + std::to_string(id.value)).ok());
  REQUIRE(definitions.define(format::KernelId{70'000}, {{1}, {2}}).ok());
  REQUIRE(definitions.define(format::StackId{5}, ids).ok());
  StringId walked;
  for (const StringId id : ids) REQUIRE((walked = definitions.next(walked)) == id);
  CHECK_FALSE(definitions.next(walked));

  Definitions back;
  size_t bytes = 0;
  for (Definitions::Counts from; from != definitions.counts();) {
    const auto payload = format::encode_defs(definitions, from, definitions.counts());
    REQUIRE(reader::decode_defs(payload.bytes, back).ok());
    bytes += payload.bytes.size();
    from = payload.end;
  }
  CHECK(bytes < 2000);
  CHECK(back.counts() == definitions.counts());
  for (const StringId id : ids) CHECK(back.text(id) == definitions.text(id));
  CHECK_FALSE(back.has(StringId{3}));
  CHECK_FALSE(back.has(StringId{format::kMaxDefinitions - 1}));
  CHECK_FALSE(back.has(format::KernelId{1}));
  CHECK(back.kernel({70'000}).family == StringId{2});
  CHECK(back.stack({5}).size() == 4);
}

TEST_CASE("DEFS: ids and counts that do not fit are damage", "[reader][limits]") {
  Definitions definitions;
  CHECK(decode([](wire::DefsT& d) { d.strings = {"id 0"}; }, definitions) ==
        StatusCode::kLimitExceeded);
  CHECK(decode(
            [](wire::DefsT& d) {
              d.first_string = UINT32_MAX;
              d.strings = {"last", "wraps"};
            },
            definitions) == StatusCode::kLimitExceeded);
  CHECK(decode(
            [](wire::DefsT& d) {
              d.first_kernel = 1;
              d.kernel_name = {1, 2};
              d.kernel_family = {1};
            },
            definitions) == StatusCode::kCorrupt);
  CHECK(decode(
            [](wire::DefsT& d) {
              d.first_stack = 1;
              d.frame_count = {1, 2};
              d.frames = {1, 2};
            },
            definitions) == StatusCode::kCorrupt);
  CHECK(decode(
            [](wire::DefsT& d) {
              d.first_stack = 5;
              d.frame_count = {257};
              d.frames.resize(257);
            },
            definitions) == StatusCode::kCorrupt);
}

TEST_CASE("META: texts beyond the limit are cut", "[reader][limits]") {
  constexpr size_t kMost = format::kMaxStringBytes;
  for (const size_t size : {kMost - 1, kMost, kMost + 1}) {
    wire::MetaT meta;
    meta.uuid.resize(16);
    meta.host.assign(size, 'h');
    flatbuffers::FlatBufferBuilder builder;
    wire::FinishMetaBuffer(builder, wire::Meta::Pack(builder, &meta));
    format::TraceMeta read;
    REQUIRE(reader::decode_meta(
                std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize())), read)
                .ok());
    CHECK(read.host.size() == std::min(size, kMost));
  }
}

TEST_CASE("SUMS: more steps than the limit, or columns of other lengths, are damage",
          "[reader][limits]") {
  const auto code = [](size_t steps, size_t launches) {
    wire::StepSumsT sums;
    sums.step.resize(steps);
    sums.launches.resize(launches);
    sums.values.resize(steps);
    sums.key_sum.resize(steps);
    sums.value_sum.resize(steps);
    flatbuffers::FlatBufferBuilder builder;
    wire::FinishStepSumsBuffer(builder, wire::StepSums::Pack(builder, &sums));
    std::vector<format::StepSums> read;
    uint64_t events = 0;
    const Status status = reader::decode_sums(
        std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize())), read, events);
    CHECK(read.size() == (status.ok() ? steps : 0));
    return status.code;
  };
  CHECK(code(format::kMaxSums - 1, format::kMaxSums - 1) == StatusCode::kOk);
  CHECK(code(format::kMaxSums, format::kMaxSums) == StatusCode::kOk);
  CHECK(code(format::kMaxSums + 1, format::kMaxSums + 1) == StatusCode::kCorrupt);
  CHECK(code(10, 9) == StatusCode::kCorrupt);
}

TEST_CASE("META: texts that share their bytes cannot multiply them", "[reader][limits]") {
  const auto code = [](bool with_values) {
    flatbuffers::FlatBufferBuilder builder;
    const auto text = builder.CreateString(std::string(1000, 'x'));
    const auto shared = builder.CreateVector(&text, 1);
    const auto other = builder.CreateVector(std::vector{builder.CreateString("v")});
    const auto uuid = builder.CreateVector(std::vector<uint8_t>(16));
    wire::MetaBuilder meta(builder);
    meta.add_uuid(uuid);
    meta.add_fact_name(shared);
    meta.add_fact_value(with_values ? shared : other);
    wire::FinishMetaBuffer(builder, meta.Finish());
    format::TraceMeta read;
    return reader::decode_meta(
               std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize())), read)
        .code;
  };
  CHECK(code(false) == StatusCode::kOk);
  CHECK(code(true) == StatusCode::kLimitExceeded);
}

TEST_CASE("DEFS: texts that share their bytes cannot multiply them", "[reader][limits]") {
  flatbuffers::FlatBufferBuilder builder;
  const auto text = builder.CreateString(std::string(60'000, 'x'));
  const std::vector<flatbuffers::Offset<flatbuffers::String>> shared(10'000, text);
  const auto strings = builder.CreateVector(shared);
  wire::DefsBuilder defs(builder);
  defs.add_first_string(1);
  defs.add_strings(strings);
  wire::FinishDefsBuffer(builder, defs.Finish());
  Definitions definitions;
  CHECK(reader::decode_defs(std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize())),
                            definitions)
            .code == StatusCode::kLimitExceeded);
  CHECK(definitions.counts().strings == 0);
}

}  // namespace
}  // namespace convtrace
