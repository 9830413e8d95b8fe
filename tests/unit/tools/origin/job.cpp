#include "tests/unit/tools/origin/job.h"

#include <algorithm>
#include <stdexcept>

#include "tools/origin/run.h"

namespace convtrace::test {
namespace {

constexpr const char* kLayers[] = {"fc1", "fc2"};

std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> c(a.size());
  for (size_t i = 0; i < a.size(); ++i) c[i] = a[i] * b[i];
  return c;
}

/// Trains all ranks side by side.
class Trainer {
 public:
  explicit Trainer(const Training& training) : spec_(training), job_(empty_job(training.ranks)) {
    for (uint32_t rank = 0; rank < spec_.ranks; ++rank)
      for (const char* layer : kLayers) {
        const uint64_t seed = (layer[2] == '1' ? 7 : 8) + (spec_.replicated ? 0 : 100 * rank);
        weights_[layer[2] == '1'].push_back(noise(seed, spec_.elements));
        job_[rank].add(0, {.scope = layer, .slot = "param:weight", .values = weight(layer, rank)});
      }
  }

  Job run() {
    for (step_ = 0; step_ < spec_.steps; ++step_) step();
    return std::move(job_);
  }

 private:
  std::vector<float>& weight(const char* layer, uint32_t rank) {
    return weights_[layer[2] == '1'][rank];
  }

  std::vector<float> made(uint32_t rank, const std::string& name, std::vector<float> values) {
    if (spec_.change) {
      Moment moment{rank, step_, name, values};
      spec_.change(moment);
    }
    return values;
  }

  void record(uint32_t rank, const char* scope, const char* slot, Phase phase,
              const std::vector<float>& values) {
    job_[rank].add(step_, {.scope = scope, .slot = slot, .phase = phase, .values = values});
  }

  void step() {
    std::vector<std::vector<float>> local[2];
    for (uint32_t rank = 0; rank < spec_.ranks; ++rank) {
      const auto x = made(rank, "input", noise(1000 + step_ * 100 + rank, spec_.elements));
      record(rank, "", "input:0", Phase::kData, x);
      if (spec_.scaled)
        job_[rank].add(step_, {.scope = {}, .slot = "loss_scale", .values = {1024}});
      record(rank, "fc1", "input:0", Phase::kForward, x);
      const auto h = made(rank, "fc1 output", product(x, weight("fc1", rank)));
      record(rank, "fc1", "output:0", Phase::kForward, h);
      const auto y = made(rank, "fc2 output", product(h, weight("fc2", rank)));
      record(rank, "fc2", "output:0", Phase::kForward, y);
      record(rank, "fc2", "grad_output:0", Phase::kBackward, y);
      local[0].push_back(made(rank, "fc2 local", product(y, h)));
      local[1].push_back(made(rank, "fc1 local", product(product(y, weight("fc2", rank)), x)));
    }
    for (size_t i = 0; i < 2; ++i) reduce(kLayers[1 - i], local[i], 2 * step_ + i);
    for (uint32_t rank = 0; rank < spec_.ranks; ++rank)
      for (const char* layer : kLayers) update(rank, layer);
  }

  void reduce(const char* layer, const std::vector<std::vector<float>>& local, uint64_t number) {
    std::vector<float> sum = sum_of(local);
    if (spec_.reduction == "avg")
      for (float& value : sum) value /= static_cast<float>(spec_.ranks);
    auto& gradients = gradients_[layer[2] == '1'];
    gradients.assign(spec_.ranks, {});
    for (uint32_t rank = 0; rank < spec_.ranks; ++rank) {
      gradients[rank] = made(rank, std::string(layer) + " received", sum);
      CollectiveSpec call =
          call_of(job_, rank, "all_reduce", number, local[rank], gradients[rank], spec_.reduction);
      call.scope = layer;
      job_[rank].add(step_, std::move(call));
    }
  }

  void update(uint32_t rank, const char* layer) {
    const auto gradient =
        made(rank, std::string(layer) + " gradient", gradients_[layer[2] == '1'][rank]);
    record(rank, layer, "grad:weight", Phase::kOptimizer, gradient);
    std::vector<float> updated = weight(layer, rank);
    const bool skips =
        spec_.scaled && !std::ranges::all_of(gradient, [](float v) { return std::isfinite(v); });
    for (size_t i = 0; i < updated.size() && !skips; ++i) updated[i] -= 0.1F * gradient[i];
    weight(layer, rank) = made(rank, std::string(layer) + " param", updated);
    record(rank, layer, "param:weight", Phase::kOptimizer, weight(layer, rank));
  }

  const Training& spec_;
  Job job_;
  std::vector<std::vector<float>> weights_[2], gradients_[2];  ///< by layer and rank
  uint32_t step_ = 0;
};

size_t place_of_call(const RankEvents& rank, uint32_t step, std::string_view op, size_t n) {
  for (size_t i = 0; i < rank.events.size(); ++i) {
    const Event& event = rank.events[i];
    if (event.step == step && event.call && event.call->op == op && n-- == 0) return i;
  }
  throw std::runtime_error("no such call: " + std::string(op));
}

}  // namespace

CollectiveSpec& RankEvents::call(uint32_t step, std::string_view op, size_t n) {
  return *events[place_of_call(*this, step, op, n)].call;
}

void RankEvents::erase_call(uint32_t step, std::string_view op, size_t n) {
  const size_t place = place_of_call(*this, step, op, n);
  const std::string group = events[place].call->group;
  events.erase(events.begin() + static_cast<ptrdiff_t>(place));
  for (size_t i = place; i < events.size(); ++i)
    if (events[i].call && events[i].call->group == group) --events[i].call->number;
}

void RankEvents::end_before(uint32_t step, std::string_view op, size_t n) {
  events.resize(place_of_call(*this, step, op, n));
}

StatsSpec& RankEvents::value(uint32_t step, std::string_view slot, std::string_view scope) {
  for (Event& event : events)
    if (event.step == step && event.value && event.value->slot == slot &&
        event.value->scope == std::string(scope))
      return *event.value;
  throw std::runtime_error("no such value: " + std::string(slot));
}

RankEvents& RankEvents::add(uint32_t step, StatsSpec value) {
  events.push_back({.step = step, .value = std::move(value)});
  return *this;
}
RankEvents& RankEvents::add(uint32_t step, CollectiveSpec call) {
  events.push_back({.step = step, .call = std::move(call)});
  return *this;
}

Job empty_job(uint32_t ranks) {
  Job job(ranks);
  for (uint32_t i = 0; i < ranks; ++i) {
    job[i].rank = i;
    job[i].world_size = ranks;
  }
  return job;
}

Job trained(const Training& training) { return Trainer(training).run(); }

CollectiveSpec call_of(const Job& job, uint32_t rank, std::string op, uint64_t number,
                       std::vector<float> sent, std::vector<float> received,
                       std::string reduction) {
  CollectiveSpec call;
  call.op = std::move(op);
  call.group = "world";
  call.members = "0-" + std::to_string(job.size() - 1);
  call.reduction = std::move(reduction);
  call.group_rank = rank;
  call.group_size = static_cast<uint32_t>(job.size());
  call.number = number;
  if (!sent.empty()) call.sent = {std::move(sent)};
  if (!received.empty()) call.received = {std::move(received)};
  return call;
}

void add_to_all(Job& job, uint32_t step, const std::string& op, uint64_t number,
                const std::function<std::vector<float>(uint32_t)>& sent,
                const std::function<std::vector<float>(uint32_t)>& received,
                const std::string& reduction) {
  for (uint32_t rank = 0; rank < job.size(); ++rank)
    job[rank].add(step, call_of(job, rank, op, number, sent(rank), received(rank), reduction));
}

void write(const RankEvents& rank, const std::string& path) {
  TraceBuilder trace(path);
  trace.rank(rank.rank, rank.world_size);
  std::optional<uint32_t> step;
  for (const Event& event : rank.events) {
    if (step != event.step) {
      if (step) trace.flush();
      trace.step(event.step);
    }
    step = event.step;
    if (event.value) trace.stats(*event.value);
    if (event.call) trace.collective(*event.call);
    if (event.finding) trace.finding(*event.finding);
  }
  if (rank.closed)
    trace.close();
  else
    trace.leave_unclosed();
}

OriginResult origins_of(const Job& job, uint64_t most_events) {
  const TempDir dir;
  for (size_t i = 0; i < job.size(); ++i) write(job[i], dir / (std::to_string(i) + ".ctrace"));

  OriginResult result;
  std::string error;
  if (!origin::find_origins({dir.path().string()}, {.threads = 2, .most_events = most_events},
                            result, error))
    throw std::runtime_error(error);
  return result;
}

std::vector<float> noise(uint64_t seed, size_t count) {
  std::vector<float> values;
  uint64_t state = seed * 2'654'435'761ULL + 1;
  for (size_t i = 0; i < count + 4; ++i) {
    state = state * 6'364'136'223'846'793'005ULL + 1'442'695'040'888'963'407ULL;
    if (i >= 4) values.push_back(static_cast<float>(static_cast<double>(state >> 33) / 0x1p30 - 1));
  }
  return values;
}

std::vector<float> sum_of(const std::vector<std::vector<float>>& all) {
  std::vector<float> sum(all.front().size(), 0);
  for (const std::vector<float>& one : all)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  return sum;
}

std::vector<std::string> told(const OriginResult& result) {
  std::vector<std::string> lines;
  for (const Origin& one : result.origins)
    lines.push_back(std::string(to_string(one.kind)) + " " +
                    (one.rank ? std::to_string(*one.rank) : "?") + "@" + std::to_string(one.step) +
                    " " + one.scope.value_or("-") + " " + one.slot);
  return lines;
}

bool has_line(const std::vector<std::string>& lines, std::string_view part) {
  return std::ranges::any_of(lines,
                             [part](const std::string& line) { return contains(line, part); });
}

}  // namespace convtrace::test
