#include "tests/unit/tools/diff_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "format/sink/file_sink.h"
#include "format/trace_writer.h"
#include "tests/support/catch.h"

namespace convtrace::test {
namespace {

using format::DType;
using format::Phase;
using format::Scalar;

bool is_integer(DType dtype) { return format::number_class(dtype) != format::NumberClass::kFloat; }

uint64_t fnv(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint8_t>(b)) * 0x100000001B3u;
  return hash;
}

template <typename T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), raw, raw + sizeof value);
}

/// Writes items as events, interning as it goes.
class ItemWriter {
 public:
  ItemWriter(format::TraceWriter& writer, format::Definitions& names)
      : writer_(writer), names_(names) {}

  void write(const Item& item) {
    switch (item.kind) {
      case Item::Kind::kValue:
        return write_value(item);
      case Item::Kind::kLaunch:
        return write_launch(item);
      case Item::Kind::kFinding:
        return write_finding(item);
    }
  }

 private:
  format::EventHeader header(const Item& item) {
    return {.seq = 0, .t_ns = ++clock_, .step = item.step, .thread = 1};
  }
  format::Place place(const Item& item) {
    return {names_.intern(item.scope), item.call, item.phase};
  }
  format::StringId text(const std::string& text) {
    return text.empty() ? format::StringId{} : names_.intern(text);
  }
  format::KernelId kernel(const std::string& name) {
    if (name.empty()) return {};
    return names_.intern_kernel({names_.intern(name), names_.intern(name)});
  }
  void append(const format::Event& event) { REQUIRE(writer_.append(event).ok()); }

  void write_value(const Item& item) {
    format::TensorStats event;
    event.header = header(item);
    event.place = place(item);
    event.slot = text(item.slot);
    event.op = text(item.op);
    event.kernel = kernel(item.kernel);
    event.dtype = item.dtype;
    event.extent = item.extent;
    event.capture = item.capture;
    event.value = {item.storage, 0, item.generation, 0};
    event.address = item.address;
    const std::vector<std::byte> raw = raw_elements(item.values, item.dtype);
    event.bytes = raw.size();
    const std::vector<uint64_t> shape =
        item.shape.empty() ? std::vector<uint64_t>{item.values.size()} : item.shape;
    event.has_shape = true;
    event.shape = shape;
    event.stats = plain_stats(item.values, item.dtype);
    const size_t element = format::element_bytes(item.dtype);
    std::vector<std::byte> samples;
    for (size_t i = 0; i < std::min<size_t>(8, item.values.size()); ++i) {
      const size_t n = item.values.size();
      const size_t at = n <= 8 ? i : i * n / 8;
      samples.insert(samples.end(), &raw[at * element], &raw[at * element] + element);
    }
    if (item.capture == format::Capture::kHash) {
      const format::Stats all = event.stats;
      event.stats = {};
      event.stats.count = all.count;
      event.stats.hash = all.hash;
    } else {
      event.samples = samples;
    }
    append(event);
  }

  void write_launch(const Item& item) {
    format::Launch event;
    event.header = header(item);
    event.place = place(item);
    event.kernel = kernel(item.kernel);
    append(event);
  }

  void write_finding(const Item& item) {
    format::Finding event;
    event.header = header(item);
    event.place = place(item);
    event.kind = item.finding;
    event.level = item.level;
    event.suppressed = item.suppressed;
    event.op = text(item.op);
    event.slot = text(item.slot);
    event.address = item.address;
    event.bytes = 16;
    event.value.storage = item.storage;
    const format::StringId frames[] = {names_.intern("free_it"), names_.intern("main")};
    event.free_stack = names_.intern_stack(frames);
    event.message = item.message;
    append(event);
  }

  format::TraceWriter& writer_;
  format::Definitions& names_;
  uint64_t clock_ = 0;
};

}  // namespace

std::vector<std::byte> raw_elements(const std::vector<double>& values, DType dtype) {
  std::vector<std::byte> bytes;
  for (const double value : values) {
    switch (dtype) {
      case DType::kF64:
        append(bytes, value);
        break;
      case DType::kF32:
        append(bytes, static_cast<float>(value));
        break;
      case DType::kBF16:
        append(bytes,
               static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
        break;
      case DType::kI64:
        append(bytes, static_cast<int64_t>(value));
        break;
      default:
        FAIL("dtype not supported by the test");
    }
  }
  return bytes;
}

format::Stats plain_stats(const std::vector<double>& values, DType dtype) {
  format::Stats s;
  s.count = values.size();
  s.hash = fnv(raw_elements(values, dtype));
  double sum = 0, l1 = 0, squares = 0;
  double min = std::numeric_limits<double>::infinity(), max = -min;
  for (const double v : values) {
    if (std::isnan(v)) {
      ++s.nan;
    } else if (std::isinf(v)) {
      ++(v > 0 ? s.pos_inf : s.neg_inf);
    } else {
      ++s.finite;
      sum += v;
      l1 += std::abs(v);
      squares += v * v;
      min = std::min(min, v);
      max = std::max(max, v);
    }
  }
  const auto n = static_cast<double>(s.finite);
  s.mean = sum / n;
  s.std = std::sqrt(std::max(0.0, squares / n - s.mean * s.mean));
  s.l2 = std::sqrt(squares);
  const double amax = std::max(std::abs(min), std::abs(max));
  if (is_integer(dtype)) {
    s.min = Scalar::i64(static_cast<int64_t>(min));
    s.max = Scalar::i64(static_cast<int64_t>(max));
    s.amax = Scalar::u64(static_cast<uint64_t>(amax));
    const auto total = static_cast<int64_t>(sum);
    s.sum = {static_cast<uint64_t>(total), total < 0 ? ~0ull : 0};
    s.l1 = {static_cast<uint64_t>(l1), 0};
  } else {
    s.min = Scalar::f64(min);
    s.max = Scalar::f64(max);
    s.amax = Scalar::f64(amax);
    s.sum = format::WideScalar::f64(sum);
    s.l1 = format::WideScalar::f64(l1);
  }
  return s;
}

Item& Run::at(uint32_t step, const std::string& scope, const std::string& slot, size_t nth) {
  for (Item& item : items) {
    if (item.kind == Item::Kind::kValue && item.step == step && item.scope == scope &&
        item.slot == slot && nth-- == 0) {
      return item;
    }
  }
  FAIL("no " << scope << " " << slot << " in step " << step);
  return items.front();
}

void Run::erase(uint32_t step, const std::string& scope, const std::string& slot) {
  std::erase_if(items, [&](const Item& item) {
    return item.kind == Item::Kind::kValue && item.step == step && item.scope == scope &&
           item.slot == slot;
  });
}

void Run::end_before(uint32_t step) {
  std::erase_if(items, [&](const Item& item) { return item.step >= step; });
}

void Run::write(const std::string& path, bool close) const {
  format::Definitions names;
  auto sink = format::FileSink::create(path.c_str());
  REQUIRE(sink.ok());
  auto writer = format::TraceWriter::create(std::move(sink).value(), meta, names);
  REQUIRE(writer.ok());
  ItemWriter out(*writer.value(), names);
  for (const Item& item : items) out.write(item);
  REQUIRE((close ? writer.value()->close() : writer.value()->flush()).ok());
}

Run training(uint32_t steps) {
  Run run;
  run.meta.tool_version = "0.1.0";
  run.meta.host = "here";
  run.meta.command_line = {"python", "train.py"};
  run.meta.facts = {{"version.torch", "2.13.0"}};
  double next = 0.5;
  const auto fresh = [&] {
    std::vector<double> values(16);
    for (double& v : values) v = next = std::fmod(next * 1.7 + 0.31, 2.0) - 0.7;
    return values;
  };
  uint64_t storages = 100;
  for (uint32_t step = 0; step < steps; ++step) {
    const auto value = [&](Phase phase, const char* scope, const char* slot,
                           const std::vector<double>& values, uint64_t storage) -> Item& {
      return run.add({.step = step,
                      .phase = phase,
                      .scope = scope,
                      .slot = slot,
                      .values = values,
                      .storage = storage,
                      .address = storage << 12});
    };
    const auto hash = [&](const char* scope, const std::vector<double>& values, uint64_t storage) {
      value(Phase::kForward, scope, "input:0", values, storage).capture = format::Capture::kHash;
    };
    if (step == 0) {
      value(Phase::kForward, "fc1", "param:weight", fresh(), 1);
      value(Phase::kForward, "fc2", "param:weight", fresh(), 2);
    }
    const auto x = fresh(), h = fresh(), y = fresh(), loss = fresh();
    const uint64_t sx = ++storages, sh = ++storages, sy = ++storages, sl = ++storages;
    value(Phase::kData, "", "input:0", x, sx);
    hash("fc1", x, sx);
    run.add({.kind = Item::Kind::kLaunch, .step = step, .scope = "fc1", .kernel = "gemm"});
    value(Phase::kForward, "fc1", "output:0", h, sh).op = "demo::gelu";
    value(Phase::kForward, "fc1", "output:0", h, sh);
    hash("fc2", h, sh);
    run.add({.kind = Item::Kind::kLaunch, .step = step, .scope = "fc2", .kernel = "gemm"});
    value(Phase::kForward, "fc2", "output:0", y, sy);
    value(Phase::kForward, "", "output:0", y, sy);
    value(Phase::kLoss, "", "loss", loss, sl);
    for (const char* layer : {"fc2", "fc1"}) {
      value(Phase::kBackward, layer, "grad_output:0", fresh(), ++storages);
    }
    value(Phase::kBackward, "fc1", "grad:weight", fresh(), 3);
    value(Phase::kBackward, "fc2", "grad:weight", fresh(), 4);
    value(Phase::kOptimizer, "fc1", "param:weight", fresh(), 1);
    value(Phase::kOptimizer, "fc2", "param:weight", fresh(), 2);
  }
  return run;
}

}  // namespace convtrace::test
