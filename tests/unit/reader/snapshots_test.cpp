// Values in a trace: FORMAT.md section 6.8.

#include "reader/snapshots.h"

#include <algorithm>
#include <random>

#include "format/file/trace_writer.h"
#include "format/values/part_encoder.h"
#include "reader/trace_check.h"
#include "reader/trace_container.h"
#include "tests/support/catch.h"
#include "tests/support/memory_sink.h"

namespace convtrace::test {
namespace {

using format::BasePart;
using format::BlobHeader;
using format::ContentId;
using reader::MemorySource;
using reader::OpenPolicy;
using reader::Snapshots;
using reader::TraceContainer;
using Content = std::vector<std::byte>;

constexpr format::ElementForm kForm = format::element_form(format::DType::kF32);

Content weights(size_t bytes, uint32_t seed) {
  Content content(bytes);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.1f);
  for (size_t i = 0; i < bytes; i += 4) store_le(&content[i], normal(random));
  return content;
}

Content moved(Content content) {
  for (size_t i = 0; i < content.size(); i += 4) content[i] ^= std::byte{1};
  return content;
}

/// A trace in the making: values by name, as many records as it takes.
class ValueTrace {
 public:
  ValueTrace() : bytes_(std::make_shared<Content>()) {
    auto made = format::TraceWriter::create(std::make_unique<MemorySink>(bytes_), {}, definitions_);
    REQUIRE(made.ok());
    writer_ = std::move(made).value();
  }

  /// Stores the part of `value` at `offset`. @return its header.
  BlobHeader add(const ContentId& id, const Content& value, size_t offset, size_t size,
                 const BasePart& base = {}) {
    BlobHeader header;
    header.content = id;
    header.offset = offset;
    header.form = kForm;
    const auto payload = encoder_.encode(header, Bytes(value).subspan(offset, size), base);
    REQUIRE(payload.ok());
    REQUIRE(writer_->append_blob(payload.value()).ok());
    return header;
  }
  /// Stores a payload that no encoder makes.
  void add_raw(Bytes payload) { REQUIRE(writer_->append_blob(payload).ok()); }
  format::PartEncoder& encoder() { return encoder_; }

  Content finish() {
    REQUIRE(writer_->close().ok());
    return *bytes_;
  }
  Content unclosed() { return *bytes_; }

 private:
  SharedBytes bytes_;
  format::Definitions definitions_;
  std::unique_ptr<format::TraceWriter> writer_;
  format::PartEncoder encoder_;
};

struct Opened {
  std::unique_ptr<TraceContainer> trace;
  std::unique_ptr<Snapshots> values;
};

Opened open(const Content& bytes) {
  auto container =
      TraceContainer::open(std::make_unique<MemorySource>(bytes), OpenPolicy::kIndexOrScan);
  REQUIRE(container.ok());
  Opened opened{std::move(container).value(), nullptr};
  opened.values = std::make_unique<Snapshots>(opened.trace->source(), opened.trace->records());
  return opened;
}

std::optional<Content> read(const Content& trace, const ContentId& id) {
  Content all;
  const Status status = open(trace).values->read(id, [&](Bytes part) {
    all.insert(all.end(), part.begin(), part.end());
    return true;
  });
  if (!status.ok()) return std::nullopt;
  return all;
}

bool clean(const Content& trace) {
  const auto check = reader::check_trace(MemorySource(trace));
  REQUIRE(check.ok());
  return check.value().problems.empty();
}

TEST_CASE("snapshots: a value of several parts comes back, in whatever order they lie",
          "[reader][snapshot]") {
  const Content value = weights(1000, 1);
  const ContentId id{77, value.size()};
  ValueTrace trace;
  trace.add(id, value, 400, 600);
  trace.add(id, value, 0, 400);
  const Content bytes = trace.finish();
  CHECK(read(bytes, id) == value);
  CHECK(clean(bytes));
  CHECK(open(bytes).values->has(id));
  CHECK_FALSE(open(bytes).values->has({77, 1004}));
  CHECK_FALSE(open(bytes).values->has({78, 1000}));
  CHECK(open(bytes).values->has({1, 0}));  // nothing to store
}

TEST_CASE("snapshots: a value with a part missing is not there", "[reader][snapshot]") {
  const Content value = weights(1200, 1);
  const ContentId id{77, value.size()};
  for (const size_t missing : {size_t{0}, size_t{400}, size_t{800}}) {
    ValueTrace trace;
    for (size_t at = 0; at < value.size(); at += 400)
      if (at != missing) trace.add(id, value, at, 400);
    CHECK_FALSE(read(trace.finish(), id));
  }
}

TEST_CASE("snapshots: a value is decoded through its bases", "[reader][snapshot]") {
  std::vector<Content> steps{weights(4096, 1)};
  while (steps.size() <= format::kMaxBaseDepth) steps.push_back(moved(steps.back()));
  ValueTrace trace;
  BasePart base;
  for (size_t i = 0; i < steps.size(); ++i) {
    const BlobHeader header = trace.add({i + 1, 4096}, steps[i], 0, 4096, base);
    CHECK(header.depth == i);
    base = {steps[i], i + 1, header.depth};
  }
  const Content bytes = trace.finish();
  for (size_t i = 0; i < steps.size(); ++i) CHECK(read(bytes, {i + 1, 4096}) == steps[i]);
  CHECK(clean(bytes));
}

TEST_CASE("snapshots: without its base a value is not there, and the check says so",
          "[reader][snapshot]") {
  const Content before = weights(4096, 1);
  ValueTrace trace;
  trace.add({2, 4096}, moved(before), 0, 4096, {before, 1, 0});
  CHECK(clean(trace.unclosed()));  // it may still come
  const Content bytes = trace.finish();
  CHECK_FALSE(read(bytes, {2, 4096}));
  CHECK_FALSE(clean(bytes));
}

TEST_CASE("snapshots: bases that go round in a circle end", "[reader][snapshot][limits]") {
  const Content a = weights(4096, 1);
  const Content b = moved(a);
  ValueTrace trace;
  trace.add({1, 4096}, a, 0, 4096, {b, 2, 0});
  trace.add({2, 4096}, b, 0, 4096, {a, 1, 0});
  trace.add({3, 4096}, b, 0, 4096, {a, 3, 4});  // itself
  const Content bytes = trace.finish();
  for (const uint64_t hash : {1u, 2u, 3u}) CHECK_FALSE(read(bytes, {hash, 4096}));
}

TEST_CASE("snapshots: of two copies the one that needs less is used", "[reader][snapshot]") {
  const Content a = weights(4096, 1);
  const Content b = moved(a);
  ValueTrace trace;
  trace.add({2, 4096}, b, 0, 4096, {a, 1, 0});  // its base is not there
  trace.add({2, 4096}, b, 0, 4096);
  CHECK(read(trace.finish(), {2, 4096}) == b);
}

TEST_CASE("snapshots: damage to a stored value loses that value alone", "[reader][snapshot]") {
  const Content value = weights(4096, 1);
  ValueTrace trace;
  trace.add({1, 4096}, value, 0, 4096);
  trace.add({2, 4096}, moved(value), 0, 4096, {value, 1, 0});
  trace.add({3, 4096}, value, 0, 4096);
  const Content good = trace.finish();
  const Opened opened = open(good);
  const auto& records = opened.trace->records();
  const auto first = std::ranges::find_if(
      records, [](const auto& r) { return r.header.kind == format::RecordKind::kBlob; });
  for (const size_t at : {size_t{64}, size_t{64 + 24}, size_t{64 + 48}, size_t{64 + 900}}) {
    Content bad = good;
    bad[first->offset + at] ^= std::byte{4};
    CHECK_FALSE(read(bad, {1, 4096}));
    CHECK_FALSE(read(bad, {2, 4096}));  // built on it
    CHECK(read(bad, {3, 4096}) == value);
    CHECK_FALSE(clean(bad));
  }
}

TEST_CASE("snapshots: payloads no writer makes are passed over", "[reader][snapshot][limits]") {
  const Content value = weights(4096, 1);
  ValueTrace trace;
  trace.add_raw(Content(47));
  trace.add_raw(Content(48));
  BlobHeader header;
  header.content = {9, 4096};
  header.form = kForm;
  const auto payload = trace.encoder().encode(header, value, {});
  REQUIRE(payload.ok());
  Content other(payload.value().begin(), payload.value().end());
  header.part_bytes = 1 << 20;
  header.content.bytes = uint64_t{1} << 60;
  format::encode_header(header, other.data());
  trace.add_raw(other);
  const Content bytes = trace.finish();
  CHECK_FALSE(read(bytes, {9, 4096}));
  CHECK_FALSE(read(bytes, {9, uint64_t{1} << 60}));
  CHECK_FALSE(clean(bytes));
}

}  // namespace
}  // namespace convtrace::test
