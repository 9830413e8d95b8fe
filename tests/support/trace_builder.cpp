#include "tests/support/trace_builder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "cupti/stats/tile/hash.h"
#include "format/base/bytes.h"
#include "format/base/checksum.h"
#include "format/file/file_sink.h"
#include "format/file/trace_writer.h"

namespace convtrace::test {

using namespace format;

namespace {

constexpr uint64_t kStartNs = 1'000'000;
constexpr uint64_t kTickNs = 1'000;

void require(const Status& status) {
  if (!status.ok())
    throw std::runtime_error(std::string(status.site) + ": " + to_string(status.code));
}

TraceMeta fixed_meta() {
  TraceMeta meta;
  for (uint8_t i = 0; i < meta.uuid.size(); ++i) meta.uuid[i] = static_cast<uint8_t>(i + 1);
  meta.start_realtime_ns = 1'700'000'000'000'000'000;
  meta.start_monotonic_ns = kStartNs;
  meta.tool_version = "test";
  meta.host = "test-host";
  meta.pid = 1;
  meta.command_line = {"python", "train.py"};
  return meta;
}

std::unique_ptr<Sink> file_at(const std::string& path) {
  Result<std::unique_ptr<Sink>> sink = FileSink::create(path.c_str());
  require(sink.status());
  return std::move(sink).value();
}

/// @param value  one that the type has.
uint8_t f4_bits(float value) {
  constexpr float kMagnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const auto* const found = std::ranges::find(kMagnitudes, std::fabs(value));
  return static_cast<uint8_t>((found - kMagnitudes) | (std::signbit(value) ? 8 : 0));
}

/// All of a small tensor, else those at eight places, as elements of `dtype` (f64, bf16, f4e2m1fn,
/// f8e8m0fnu, else f32).
std::vector<std::byte> samples_of(const std::vector<float>& values, DType dtype) {
  const size_t count = values.size();
  const bool whole = count <= kMaxWhole;
  std::vector<std::byte> samples;
  const auto put = [&samples](auto element) {
    const auto bytes = std::as_bytes(std::span(&element, 1));
    samples.insert(samples.end(), bytes.begin(), bytes.end());
  };
  for (size_t i = 0; i < (whole ? count : 8); ++i) {
    const float value = values[whole ? i : i * count / 8];
    if (dtype == DType::kF64) {
      put(static_cast<double>(value));
    } else if (dtype == DType::kBF16) {
      put(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    } else if (dtype == DType::kF4E2M1FN) {
      put(f4_bits(value));
    } else if (dtype == DType::kF8E8M0FNU) {
      put(static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> 23));
    } else {
      put(value);
    }
  }
  return samples;
}

}  // namespace

struct TraceBuilder::Impl {
  std::unique_ptr<Sink> sink;
  TraceMeta meta = fixed_meta();
  Definitions definitions;
  std::unique_ptr<TraceWriter> writer;  ///< made by the first event, when META is known
  uint32_t step = 0;
  uint64_t t_ns = kStartNs;
  uint64_t collectives = 0;  ///< the last id

  explicit Impl(std::unique_ptr<Sink> to) : sink(std::move(to)) {}

  TraceWriter& started() {
    if (!writer) {
      auto made = TraceWriter::create(std::move(sink), meta, definitions);
      require(made.status());
      writer = std::move(made).value();
    }
    return *writer;
  }

  void meta_changed() {
    if (writer) require(writer->append_meta(meta));
  }

  void append(Event event) {
    EventHeader& header = header_of(event);
    t_ns += kTickNs;
    if (header.t_ns == 0) header.t_ns = t_ns;
    if (header.step == 0) header.step = step;
    if (header.thread == 0) header.thread = 1;
    require(started().append(event));
  }

  /// Stores a value in BLOB records.
  void store(ContentId content, DType dtype, Bytes bytes, Bytes base = {},
             size_t part_bytes = kPartBytes) {
    PartEncoder encoder;
    for (size_t at = 0; at < bytes.size(); at += part_bytes) {
      const auto part = [&](Bytes whole) {
        return whole.empty() ? whole : whole.subspan(at, std::min(part_bytes, whole.size() - at));
      };
      BlobHeader header;
      header.content = content;
      header.offset = at;
      header.form = element_form(dtype);
      const auto payload = encoder.encode(header, part(bytes), {part(base), checksum64(base), 0});
      require(payload.status());
      require(started().append_blob(payload.value()));
    }
  }

  StringId name(const std::string& text) {
    return text.empty() ? StringId{} : definitions.intern(text);
  }
  KernelId kernel(const std::string& name, const std::string& family) {
    if (name.empty()) return {};
    return definitions.intern_kernel(
        {definitions.intern(name), definitions.intern(family.empty() ? name : family)});
  }
  StackId stack(const std::vector<std::string>& frames) {
    std::vector<StringId> ids;
    for (const std::string& frame : frames) ids.push_back(definitions.intern(frame));
    return ids.empty() ? StackId{} : definitions.intern_stack(ids);
  }
  Place place(const ScopeName& scope, uint32_t call, Phase phase) {
    return {scope ? definitions.intern(*scope) : StringId{}, call, phase};
  }

  template <typename Memory>
  Memory memory(const MemorySpec& spec) {
    Memory e;
    e.address = spec.address;
    e.bytes = spec.bytes;
    e.generation = spec.generation;
    e.source = spec.source;
    e.device = spec.device;
    e.stream = spec.stream;
    e.stack = stack(spec.stack);
    return e;
  }
};

TraceBuilder::TraceBuilder(std::string path) : TraceBuilder(file_at(path)) {}
TraceBuilder::TraceBuilder(std::unique_ptr<Sink> sink)
    : impl_(std::make_unique<Impl>(std::move(sink))) {}
TraceBuilder::~TraceBuilder() = default;

TraceBuilder& TraceBuilder::meta(const TraceMeta& meta) {
  impl_->meta = meta;
  impl_->meta_changed();
  return *this;
}

TraceBuilder& TraceBuilder::rank(uint32_t rank, uint32_t world_size) {
  impl_->meta.rank = rank;
  impl_->meta.world_size = std::max(world_size, rank + 1);
  impl_->meta_changed();
  return *this;
}

TraceBuilder& TraceBuilder::fact(std::string name, std::string value) {
  auto& facts = impl_->meta.facts;
  std::erase_if(facts, [&](const auto& fact) { return fact.first == name; });
  facts.emplace_back(std::move(name), std::move(value));
  std::ranges::sort(facts);
  impl_->meta_changed();
  return *this;
}

TraceBuilder& TraceBuilder::step(uint32_t index) {
  impl_->step = index;
  Step e;
  e.index = index;
  return event(e);
}

TraceBuilder& TraceBuilder::stats(const StatsSpec& spec) {
  TensorStats e;
  e.header.thread = spec.thread;
  e.place = impl_->place(spec.scope, spec.call, spec.phase);
  e.slot = impl_->name(spec.slot);
  e.op = impl_->name(spec.op);
  e.kernel = impl_->kernel(spec.kernel, {});
  e.device = spec.device;
  e.dtype = spec.dtype;
  e.extent = spec.extent;
  e.capture = spec.capture;
  e.value = spec.value;
  e.address = spec.address;
  e.stats = spec.values.empty() ? spec.stats : stats_of(spec.values);
  for (const float value : spec.values) {
    if (spec.dtype != DType::kF4E2M1FN) break;
    e.stats.subnormal += std::fabs(value) == 0.5F;
    e.stats.saturated += std::fabs(value) == 6;
  }
  if (!spec.sketched) e.stats.sketch = {};
  if (e.capture == Capture::kHash) {
    const Stats whole = std::exchange(e.stats, Stats{});
    e.stats.count = whole.count;
    e.stats.hash = whole.hash;
  }
  const uint64_t elements = e.stats.count / (spec.dtype == DType::kF4E2M1FN ? 2 : 1);
  e.bytes = spec.bytes != 0 ? spec.bytes : elements * element_bytes(spec.dtype);
  if (spec.hash) e.stats.hash = *spec.hash;
  e.collective = spec.collective;
  e.variant = spec.variant;
  e.range_hashes = spec.range_hashes;

  const std::vector<uint64_t> flat = {spec.values.size()};
  e.has_shape = spec.shape.has_value() || !spec.values.empty();
  if (e.has_shape) e.shape = spec.shape ? std::span(*spec.shape) : std::span(flat);
  std::vector<std::byte> samples = samples_of(spec.values, spec.dtype);
  samples.resize(spec.sample_bytes.value_or(samples.size()));
  if (spec.sampled) e.samples = samples;
  if (e.capture == Capture::kSnapshot && !spec.values.empty())
    impl_->store({e.stats.hash, e.bytes}, spec.dtype, std::as_bytes(std::span(spec.values)));
  return event(e);
}

TraceBuilder& TraceBuilder::collective(const CollectiveSpec& spec) {
  Collective e;
  e.place = impl_->place(spec.scope, spec.call, spec.phase);
  e.op = impl_->name(spec.op);
  e.group = impl_->name(spec.group);
  e.members = impl_->name(spec.members);
  e.reduction = impl_->name(spec.reduction);
  e.group_rank = spec.group_rank;
  e.group_size = spec.group_size;
  e.peer = spec.peer;
  e.dtype = spec.dtype;
  for (const auto& values : spec.sent) e.sent += values.size();
  e.received = spec.later;
  for (const auto& values : spec.received) e.received += values.size();
  e.number = spec.number;
  e.tag = spec.tag;
  e.id = spec.id.value_or(++impl_->collectives);
  event(e);
  const auto tensors = [&](const char* side, const std::vector<std::vector<float>>& all) {
    for (size_t i = 0; i < all.size(); ++i)
      stats({.scope = spec.scope,
             .slot = side + std::to_string(i),
             .phase = spec.phase,
             .call = spec.call,
             .op = spec.op,
             .dtype = spec.dtype,
             .capture = spec.capture,
             .values = all[i],
             .collective = e.id,
             .hash = spec.hashed_as_stored ? std::optional(hash_of(all[i])) : std::nullopt});
  };
  if (!spec.with_values) return *this;
  tensors("sent:", spec.sent);
  tensors("received:", spec.received);
  return *this;
}

TraceBuilder& TraceBuilder::value(const ValueSpec& spec) {
  Stats stats;
  stats.count = spec.bytes.size() / element_bytes(spec.dtype) * values_in_element(spec.dtype);
  stats.hash = checksum64(spec.bytes);
  impl_->store({stats.hash, spec.bytes.size()}, spec.dtype, spec.bytes, spec.base, spec.part_bytes);
  return this->stats({.slot = spec.slot,
                      .dtype = spec.dtype,
                      .capture = Capture::kSnapshot,
                      .shape = spec.shape,
                      .stats = stats,
                      .bytes = spec.bytes.size()});
}

TraceBuilder& TraceBuilder::launch(const LaunchSpec& spec) {
  Launch e;
  e.place = impl_->place(spec.scope, spec.call, spec.phase);
  e.kernel = impl_->kernel(spec.kernel, spec.family);
  for (size_t axis = 0; axis < 3; ++axis) {
    e.grid[axis] = spec.grid.at(axis);
    e.block[axis] = spec.block.at(axis);
  }
  e.shared_bytes = spec.shared_bytes;
  e.stream = spec.stream;
  e.device = spec.device;
  e.sampled = spec.sampled;
  e.operands = spec.operands;
  return event(e);
}

TraceBuilder& TraceBuilder::alloc(const MemorySpec& spec) {
  return event(impl_->memory<Alloc>(spec));
}
TraceBuilder& TraceBuilder::free(const MemorySpec& spec) {
  return event(impl_->memory<Free>(spec));
}
TraceBuilder& TraceBuilder::copy(Copy copy) { return event(copy); }

TraceBuilder& TraceBuilder::enter(std::string_view scope, Phase phase, uint32_t call) {
  Scope e;
  e.place = impl_->place(std::string(scope), call, phase);
  return event(e);
}

TraceBuilder& TraceBuilder::leave(std::string_view scope, Phase phase, uint32_t call) {
  Scope e;
  e.place = impl_->place(std::string(scope), call, phase);
  e.enter = false;
  return event(e);
}

TraceBuilder& TraceBuilder::finding(const FindingSpec& spec) {
  Finding e;
  e.place = impl_->place(spec.scope, spec.call, spec.phase);
  e.kind = spec.kind;
  e.level = spec.level;
  e.suppressed = spec.suppressed;
  e.op = impl_->name(spec.op);
  e.kernel = impl_->kernel(spec.kernel, {});
  e.slot = impl_->name(spec.slot);
  e.other = impl_->name(spec.other);
  e.address = spec.address;
  e.bytes = spec.bytes;
  e.value = spec.value;
  e.alloc_stack = impl_->stack(spec.alloc_stack);
  e.launch_stack = impl_->stack(spec.launch_stack);
  e.free_stack = impl_->stack(spec.free_stack);
  e.message = spec.message;
  return event(e);
}

TraceBuilder& TraceBuilder::told(const ScopeName& scope, std::string_view name,
                                 std::string_view value) {
  Fact e;
  if (scope) e.scope = definitions().intern(*scope);
  e.name = definitions().intern(name);
  e.value = value;
  return event(e);
}

TraceBuilder& TraceBuilder::diagnostic(Level level, std::string_view site,
                                       std::string_view message) {
  Diagnostic e;
  e.level = level;
  e.site = site;
  e.message = message;
  return event(e);
}

TraceBuilder& TraceBuilder::loss(LossReason reason, uint64_t count) {
  Loss e;
  e.reason = reason;
  e.count = count;
  return event(e);
}

TraceBuilder& TraceBuilder::cost(uint64_t host_ns, uint64_t device_ns, uint64_t bytes) {
  Cost e;
  e.host_ns = host_ns;
  e.device_ns = device_ns;
  e.bytes = bytes;
  return event(e);
}

TraceBuilder& TraceBuilder::event(Event event) {
  impl_->append(event);
  return *this;
}

TraceBuilder& TraceBuilder::flush() {
  require(impl_->started().flush());
  return *this;
}

void TraceBuilder::close() { require(impl_->started().close()); }

void TraceBuilder::leave_unclosed() {
  flush();
  impl_->writer.reset();
}

Definitions& TraceBuilder::definitions() { return impl_->definitions; }

uint64_t hash_of(const std::vector<float>& values) {
  uint64_t hash = 0;
  for (size_t i = values.size(); i-- > 0;) {
    const uint64_t word = std::bit_cast<uint32_t>(values[i]) + (uint64_t{1} << 32);
    hash = stats::residue_sum(stats::residue_product(hash, stats::kHashBase), word);
  }
  return hash;
}

Sketch sketch_of(const std::vector<float>& values) {
  if (values.size() <= format::kMaxWhole) return {};
  std::array<double, Sketch::kBuckets> sums{};
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = checksum64(std::as_bytes(std::span(&i, 1)));
    const double value = std::isfinite(values[i]) ? static_cast<double>(values[i]) : 0;
    sums[bits % Sketch::kBuckets] += (bits >> 63) != 0 ? -value : value;
  }
  for (const double sum : sums) largest = std::max(largest, std::abs(sum));
  Sketch sketch{.exponent = 0};
  if (largest == 0) return sketch;
  int exponent = 0;
  std::frexp(largest, &exponent);
  sketch.exponent = static_cast<int16_t>(exponent);
  for (size_t i = 0; i < sums.size(); ++i)
    sketch.bucket[i] = static_cast<float>(std::ldexp(sums[i], -exponent));
  return sketch;
}

Stats stats_of(const std::vector<float>& values) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Stats stats;
  double low = kNan, high = kNan, largest = kNan, smallest = kNan;
  double sum = 0, l1 = 0, squares = 0;
  for (const double v : values) {
    ++stats.count;
    const bool sign = std::signbit(v);
    if (std::isnan(v)) {
      ++stats.nan;
      continue;
    }
    if (v == 0) {
      ++(sign ? stats.neg_zero : stats.pos_zero);
    } else {
      ++(sign ? stats.negative : stats.positive);
    }
    if (std::isinf(v)) {
      ++(sign ? stats.neg_inf : stats.pos_inf);
      continue;
    }
    ++stats.finite;
    const double a = std::abs(v);
    if (a > 0 && a < std::numeric_limits<float>::min()) ++stats.subnormal;
    if (a == std::numeric_limits<float>::max()) ++stats.saturated;
    low = std::fmin(low, v);
    high = std::fmax(high, v);
    largest = std::fmax(largest, a);
    if (a > 0) smallest = std::fmin(smallest, a);
    sum += v;
    l1 += a;
    squares += v * v;
  }
  const double n = static_cast<double>(stats.finite);
  stats.min = Scalar::f64(low);
  stats.max = Scalar::f64(high);
  stats.amax = Scalar::f64(largest);
  stats.amin_nonzero = Scalar::f64(smallest);
  stats.sum = WideScalar::f64(sum);
  stats.l1 = WideScalar::f64(l1);
  stats.l2 = std::sqrt(squares);
  if (stats.finite > 0) {
    stats.mean = sum / n;
    double deviations = 0;
    for (const double v : values) {
      if (std::isfinite(v)) deviations += (v - stats.mean) * (v - stats.mean);
    }
    stats.std = std::sqrt(deviations / n);
  }
  stats.hash = checksum64(std::as_bytes(std::span(values)));
  stats.sketch = sketch_of(values);
  return stats;
}

}  // namespace convtrace::test
