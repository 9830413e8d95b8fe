#include "tests/unit/tools/diff/run.h"

#include <algorithm>
#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/trace_builder.h"

namespace convtrace::test {
namespace {

using format::Phase;

void write_value(TraceBuilder& trace, const Item& item) {
  StatsSpec spec{.scope = item.scope,
                 .slot = item.slot,
                 .phase = item.phase,
                 .call = item.call,
                 .op = item.op,
                 .kernel = item.kernel,
                 .dtype = item.dtype,
                 .extent = item.extent,
                 .capture = item.capture,
                 .value = {item.storage, 0, item.generation, item.version},
                 .address = item.address,
                 .values = item.values};
  if (!item.shape.empty()) spec.shape = item.shape;
  spec.sketched = item.sketched;
  spec.sampled = item.sampled;
  trace.stats(spec);
}

void write_item(TraceBuilder& trace, const Item& item) {
  trace.step(item.step);
  switch (item.kind) {
    case Item::Kind::kValue: write_value(trace, item); break;
    case Item::Kind::kLaunch:
      trace.launch(
          {.kernel = item.kernel, .scope = item.scope, .phase = item.phase, .stream = item.stream});
      break;
    case Item::Kind::kUnread: trace.loss(format::LossReason::kTensorKind, 1); break;
    case Item::Kind::kFact:
      trace.told(item.scope == "-" ? std::nullopt : ScopeName(item.scope), item.slot, item.message);
      break;
    case Item::Kind::kFinding:
      trace.finding({.kind = item.finding,
                     .level = item.level,
                     .suppressed = item.suppressed,
                     .scope = item.scope,
                     .phase = item.phase,
                     .op = item.op,
                     .slot = item.slot,
                     .address = item.address,
                     .bytes = 16,
                     .value = {.storage = item.storage},
                     .free_stack = {"free_it", "main"},
                     .message = item.message});
      break;
  }
}

}  // namespace

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

void Run::tell(uint32_t step, const std::string& scope, const std::string& name,
               const std::string& value) {
  const auto at = std::ranges::find_if(items, [step](const Item& item) {
    return item.step > step || (item.step == step && item.kind != Item::Kind::kFact);
  });
  items.insert(
      at,
      {.kind = Item::Kind::kFact, .step = step, .scope = scope, .slot = name, .message = value});
}

void Run::end_before(uint32_t step) {
  std::erase_if(items, [&](const Item& item) { return item.step >= step; });
}

void Run::write(const std::string& path, bool close) const {
  TraceBuilder trace(path);
  trace.meta(meta);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && items[i].step != items[i - 1].step) trace.flush();
    write_item(trace, items[i]);
  }
  if (close) {
    trace.close();
  } else {
    trace.leave_unclosed();
  }
}

Run training(uint32_t steps) {
  Run run;
  run.meta.tool_version = "0.1.0";
  run.meta.host = "here";
  run.meta.command_line = {"python", "train.py"};
  run.meta.facts = {{"version.torch", "2.13.0"}};
  float next = 0.5F;
  const auto fresh = [&] {
    std::vector<float> values(16);
    for (float& v : values) v = next = std::fmod(next * 1.7F + 0.31F, 2.0F) - 0.7F;
    return values;
  };
  uint64_t storages = 100;
  for (uint32_t step = 0; step < steps; ++step) {
    const auto value = [&](Phase phase, const char* scope, const char* slot,
                           const std::vector<float>& values, uint64_t storage) -> Item& {
      return run.add({.step = step,
                      .phase = phase,
                      .scope = scope,
                      .slot = slot,
                      .values = values,
                      .storage = storage,
                      .address = storage << 12});
    };
    const auto hash = [&](const char* scope, const std::vector<float>& values, uint64_t storage) {
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
    for (const char* layer : {"fc2", "fc1"})
      value(Phase::kBackward, layer, "grad_output:0", fresh(), ++storages);
    value(Phase::kBackward, "fc1", "grad:weight", fresh(), 3);
    value(Phase::kBackward, "fc2", "grad:weight", fresh(), 4);
    value(Phase::kOptimizer, "fc1", "param:weight", fresh(), 1);
    value(Phase::kOptimizer, "fc2", "param:weight", fresh(), 2);
  }
  return run;
}

}  // namespace convtrace::test
