#include "format/findings/ops/autotune_bursts.h"

#include <algorithm>

namespace convtrace::judge {
namespace {

uint64_t configuration_of(const format::Launch& e) {
  uint64_t sum = e.kernel.value;
  for (const uint32_t one :
       {e.grid[0], e.grid[1], e.grid[2], e.block[0], e.block[1], e.block[2], e.shared_bytes}) {
    sum = (sum ^ one) * 0x9E3779B97F4A7C15;
  }
  return sum;
}

/// @return whether one of the pointers lies in the range.
bool points_into(const std::vector<uint64_t>& addresses, uint64_t first, uint64_t bytes) {
  return std::ranges::any_of(addresses, [&](uint64_t one) { return one - first < bytes; });
}

/// @param input  an op's event of the tensor, or its values.
void set_input(auto& burst, const auto& input) {
  burst.slot = input.slot;
  burst.value = input.value;
  burst.address = input.address;
  burst.bytes = input.bytes;
}

}  // namespace

void AutotuneBursts::on(const format::Launch& event) {
  OpenOp* const open = open_.innermost(event.header.thread);
  if (open == nullptr || event.sampled == format::SampleOutcome::kLaunchFailed) return;
  Families& families = open->families;
  const uint32_t name = definitions_.kernel(event.kernel).family.value;
  if (families.size() >= kMostFamilies && !families.contains(name)) return;
  std::vector<uint64_t> addresses;
  for (const format::Operand& operand : event.operands) {
    if (operand.confidence <= format::Confidence::kPointerInterior)
      addresses.push_back(operand.address);
  }
  Burst& burst = families[name];
  const uint64_t configuration = configuration_of(event);
  if (burst.launches == 0) {
    burst.kernel = event.kernel;
    burst.addresses = std::move(addresses);
    burst.configuration = configuration;
  } else if (burst.addresses != addresses) {
    burst.addresses.clear();  // it does other work, so nothing is concluded about this family
  }
  burst.tried = burst.tried || configuration != burst.configuration;
  ++burst.launches;
}

std::optional<OpFinding> AutotuneBursts::on(const format::Op& event) {
  if (event.moment == format::OpMoment::kBegin) {
    open_.begin(event);
  } else if (event.moment == format::OpMoment::kInput && event.written) {
    if (OpenOp* const open = open_.innermost(event.header.thread)) open->written.push_back(event);
  } else if (event.moment == format::OpMoment::kEnd) {
    if (std::optional<OpenOp> ended = open_.end(event)) return end(event, *ended);
  }
  return std::nullopt;
}

std::optional<OpFinding> AutotuneBursts::end(const format::Op& event, OpenOp& op) {
  std::optional<OpFinding> found;
  const Target target{event.op, event.place.scope};
  for (auto& [name, burst] : op.families) {
    const auto waiting = waiting_.find(target);
    const bool known = waiting != waiting_.end() && waiting->second.contains(name);
    if (known && burst.launches == 1) {
      const Burst& then = waiting->second.at(name);
      if (!then.slot) continue;
      found = finding_of(event, then);
      waiting->second.erase(name);
    } else if (!known && burst.tried && burst.launches >= kFewestLaunches &&
               waiting_.size() < kMostWaiting) {
      burst.header = event.header;
      burst.place = event.place;
      for (const format::Op& input : op.written) {
        if (points_into(burst.addresses, input.address, input.bytes)) set_input(burst, input);
      }
      waiting_[target].emplace(name, std::move(burst));
    }
  }
  return found;
}

OpFinding AutotuneBursts::finding_of(const format::Op& now, const Burst& then) {
  OpFinding finding;
  finding.kind = format::FindingKind::kAutotuneMutation;
  finding.header = then.header;
  finding.header.t_ns = now.header.t_ns;
  finding.header.thread = now.header.thread;
  finding.place = then.place;
  finding.op = now.op;
  finding.slot = then.slot;
  finding.address = then.address;
  finding.bytes = then.bytes;
  finding.value = then.value;
  finding.kernel = then.kernel;
  finding.count = then.launches;
  return finding;
}

void AutotuneBursts::on_mutated(const format::TensorStats& left, format::StringId slot) {
  const auto waiting = waiting_.find({left.op, left.place.scope});
  if (waiting == waiting_.end()) return;
  for (auto& [name, burst] : waiting->second) {
    if (burst.slot || burst.header.step != left.header.step ||
        burst.place.call != left.place.call ||
        !points_into(burst.addresses, left.address, left.bytes)) {
      continue;
    }
    set_input(burst, left);
    burst.slot = slot;
  }
}

}  // namespace convtrace::judge
