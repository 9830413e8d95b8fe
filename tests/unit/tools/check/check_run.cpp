#include "tests/unit/tools/check/check_run.h"

#include <algorithm>
#include <stdexcept>

#include "tools/check/catalog.h"
#include "tools/check/run.h"

namespace convtrace::test {
namespace {

constexpr size_t kRows = 4, kColumns = 8, kElements = kRows * kColumns;

std::vector<float> column_sums(const std::vector<float>& values) {
  std::vector<float> sums(kColumns, 0);
  for (size_t i = 0; i < values.size(); ++i) sums[i % kColumns] += values[i];
  return sums;
}

bool is_at(const Entry& entry, std::optional<uint32_t> step, const ScopeName& scope,
           std::string_view slot, std::optional<Phase> phase) {
  return entry.fact.empty() && (!step || entry.step == *step) && entry.value.scope == scope &&
         entry.value.slot == slot && (!phase || entry.value.phase == *phase);
}

void add_facts(Training& run) {
  run.fact(0, "", "class", "model.Net");
  for (const char* layer : {"fc1", "fc2"}) {
    run.fact(0, layer, "class", "torch.nn.modules.linear.Linear");
    run.fact(0, layer, "attributes", "in_features=8, out_features=8");
  }
  run.fact(0, {}, "optimizer.0.class", "torch.optim.sgd.SGD");
  run.fact(0, {}, "optimizer.0.0.lr", "0.1");
  run.fact(0, {}, "optimizer.0.0.momentum", "0.9");
  run.fact(0, {}, "optimizer.0.0.weight_decay", "0.0");
}

void add_step(Training& run, uint32_t step, uint32_t seed) {
  const uint32_t weights = step * 100, data = weights + seed * 100'000;
  run.fact(step, {}, "rng.torch", std::to_string(step));
  const std::vector<float> input = noise(data + 1, kElements), hidden = noise(data + 2, kElements),
                           output = noise(data + 3, kElements), flow2 = noise(data + 4, kElements),
                           flow1 = noise(data + 5, kElements);
  run.value(step, {.scope = "", .slot = "input:0", .phase = Phase::kData, .values = input});
  if (step == 0) {
    for (const char* layer : {"fc1", "fc2"}) {
      const uint32_t at = layer[2] == '1' ? 50 : 60;
      run.value(0, {.scope = layer, .slot = "param:weight", .values = noise(at, 64)});
      run.value(0, {.scope = layer, .slot = "param:bias", .values = noise(at + 1, kColumns)});
    }
  }
  run.value(step, {.scope = "fc1", .slot = "input:0", .values = input});
  run.value(step, {.scope = "fc1", .slot = "output:0", .values = hidden});
  run.value(step, {.scope = "fc2", .slot = "input:0", .values = hidden});
  run.value(step, {.scope = "fc2", .slot = "output:0", .values = output});
  run.value(step, {.scope = "", .slot = "output:0", .values = output});
  const float loss = 2.0F / (1 + static_cast<float>(data));
  run.value(step, {.scope = "", .slot = "loss", .phase = Phase::kLoss, .values = {loss}});
  const auto backward = [&](const char* scope, const char* slot, std::vector<float> values) {
    run.value(
        step,
        {.scope = scope, .slot = slot, .phase = Phase::kBackward, .values = std::move(values)});
  };
  backward("", "grad_output:0", flow2);
  backward("fc2", "grad_output:0", flow2);
  backward("fc1", "grad_output:0", flow1);
  // Ranks have the averages of their gradients.
  const uint32_t reduced = weights + 200'000'000;
  backward("fc1", "grad:weight", noise(weights + 6, 64));
  backward("fc1", "grad:bias", seed == 0 ? column_sums(flow1) : noise(reduced, kColumns));
  backward("fc2", "grad:weight", noise(weights + 7, 64));
  backward("fc2", "grad:bias", seed == 0 ? column_sums(flow2) : noise(reduced + 1, kColumns));
  for (const char* layer : {"fc1", "fc2"}) {
    const uint32_t at = weights + (layer[2] == '1' ? 70 : 80);
    run.value(step, {.scope = layer,
                     .slot = "param:weight",
                     .phase = Phase::kOptimizer,
                     .values = noise(at, 64)});
    run.value(step, {.scope = layer,
                     .slot = "param:bias",
                     .phase = Phase::kOptimizer,
                     .values = noise(at + 1, kColumns)});
  }
}

void append(const Entry& entry, TraceBuilder& trace) {
  if (!entry.fact.empty()) {
    trace.told(entry.value.scope, entry.fact, entry.text);
    return;
  }
  if (entry.padding == format::Padding::kNone) {
    trace.stats(entry.value);
    return;
  }
  format::Definitions& names = trace.definitions();
  format::TensorStats event;
  if (entry.value.scope) event.place.scope = names.intern(*entry.value.scope);
  event.place.phase = entry.value.phase;
  event.slot = names.intern(entry.value.slot);
  event.dtype = format::DType::kI64;
  event.stats = entry.value.stats;
  event.padding = entry.padding;
  event.pad_count = entry.pad_count;
  trace.event(event);
}

check::CheckResult judged_paths(const std::vector<std::string>& paths,
                                const std::vector<std::string>& only) {
  const auto wanted = [&only](std::string_view id) {
    if (!only.empty()) return std::ranges::find(only, id) != only.end();
    const auto rows = check::catalog();
    const auto row = std::ranges::find(rows, id, &check::CatalogRow::id);
    return row == rows.end() || row->by_default;
  };
  check::CheckResult result;
  std::string error;
  if (!check::check_run(paths, wanted, result, error)) throw std::runtime_error(error);
  return result;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Found& found) {
  out << to_string(found.severity) << " " << found.id << " step ";
  if (found.step) {
    out << *found.step;
  } else {
    out << "-";
  }
  return out << " [" << found.scope << "] " << found.slot;
}

Training& Training::fact(uint32_t step, const ScopeName& scope, std::string name,
                         std::string text) {
  const auto place = std::ranges::find_if(entries, [step](const Entry& entry) {
    return entry.step > step || (entry.step == step && entry.fact.empty());
  });
  entries.insert(
      place,
      {.step = step, .value = {.scope = scope}, .fact = std::move(name), .text = std::move(text)});
  return *this;
}

Training& Training::value(uint32_t step, StatsSpec value) {
  const auto end =
      std::ranges::find_if(entries, [step](const Entry& entry) { return entry.step > step; });
  entries.insert(end, {.step = step, .value = std::move(value)});
  return *this;
}

Training& Training::before(uint32_t step, const ScopeName& scope, std::string_view slot,
                           StatsSpec value) {
  const auto place = std::ranges::find_if(
      entries, [&](const Entry& entry) { return is_at(entry, step, scope, slot, {}); });
  if (place == entries.end()) throw std::runtime_error("no " + std::string(slot) + " to precede");
  entries.insert(place, {.step = step, .value = std::move(value)});
  return *this;
}

StatsSpec& Training::at(uint32_t step, const ScopeName& scope, std::string_view slot,
                        std::optional<Phase> phase) {
  for (Entry& entry : entries)
    if (is_at(entry, step, scope, slot, phase)) return entry.value;
  throw std::runtime_error("no " + std::string(slot) + " in step " + std::to_string(step));
}

Training& Training::erase(std::optional<uint32_t> step, const ScopeName& scope,
                          std::string_view slot, std::optional<Phase> phase) {
  const size_t erased = std::erase_if(
      entries, [&](const Entry& entry) { return is_at(entry, step, scope, slot, phase); });
  if (erased == 0) throw std::runtime_error("nothing to erase: " + std::string(slot));
  return *this;
}

Training& Training::erase_fact(std::string_view name) {
  std::erase_if(entries, [&](const Entry& entry) { return entry.fact == name; });
  return *this;
}

void Training::append_to(TraceBuilder& trace) const {
  std::optional<uint32_t> step;
  for (const Entry& entry : entries) {
    if (step != entry.step) trace.step(entry.step);
    step = entry.step;
    append(entry, trace);
  }
}

void Training::write(const std::string& path) const {
  TraceBuilder trace(path);
  trace.rank(rank, world_size);
  append_to(trace);
  trace.close();
}

Training training(uint32_t steps, uint32_t seed) {
  Training run;
  add_facts(run);
  for (uint32_t step = 0; step < steps; ++step) add_step(run, step, seed);
  return run;
}

std::vector<float> noise(uint32_t seed, size_t count) {
  std::vector<float> values;
  uint64_t state = seed * 2'654'435'761ULL + 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6'364'136'223'846'793'005ULL + 1'442'695'040'888'963'407ULL;
    values.push_back(static_cast<float>(static_cast<double>(state >> 33) / 0x1p30 - 1));
  }
  return values;
}

std::vector<float> scaled(std::vector<float> values, double factor) {
  for (float& value : values) value = static_cast<float>(value * factor);
  return values;
}

check::CheckResult checked(const std::vector<Training>& ranks,
                           const std::vector<std::string>& only) {
  const TempDir dir;
  std::vector<std::string> paths;
  for (const Training& rank : ranks) {
    paths.push_back(dir / (std::to_string(paths.size()) + ".ctrace"));
    rank.write(paths.back());
  }
  return judged_paths(paths, only);
}

check::CheckResult checked(const Training& run, const std::vector<std::string>& only) {
  return checked(std::vector<Training>{run}, only);
}

check::CheckResult checked(const std::function<void(TraceBuilder&)>& fill,
                           const std::vector<std::string>& only) {
  const TempDir dir;
  const std::string path = dir / "t.ctrace";
  TraceBuilder trace(path);
  fill(trace);
  trace.close();
  return judged_paths({path}, only);
}

std::vector<Found> found(const check::CheckResult& result) {
  std::vector<Found> all;
  for (const check::Finding& finding : result.findings)
    all.push_back({std::string(finding.id), finding.severity, finding.step,
                   finding.scope.value_or("-"), finding.slot});
  return all;
}

std::vector<Found> found(const Training& run) { return found(checked(run)); }

std::vector<Found> found(const Training& run, const std::string& id) {
  return found(checked(run, {id}));
}

uint64_t judged(const check::CheckResult& result, std::string_view id) {
  const auto looked = std::ranges::find(result.looked, id, &check::Looked::id);
  if (looked == result.looked.end()) throw std::runtime_error("not run: " + std::string(id));
  return looked->times;
}

bool silent(const Training& run, const std::string& id) {
  const check::CheckResult result = checked(run, {id});
  return result.findings.empty() && judged(result, id) != 0;
}

bool unknown(const Training& run, const std::string& id) {
  const check::CheckResult result = checked(run, {id});
  return result.findings.empty() && judged(result, id) == 0;
}

}  // namespace convtrace::test
