#include "tests/simulate/exchange.h"

#include <algorithm>
#include <utility>

namespace convtrace::simulate {
namespace {

bool fits(const Call& a, const Call& b) {
  return a.info.op == b.info.op && a.info.reduction == b.info.reduction && a.dtype == b.dtype &&
         a.elements == b.elements && a.peer == b.peer;
}

bool is_lost(const Call& call) {
  const Fault* fault = call.instruction->fault;
  return fault != nullptr && fault->origin.kind == FaultKind::kLost;
}

}  // namespace

Exchange::Exchange(World& world, Done done) : world_(world), done_(std::move(done)) {
  for (const Group& group : world.groups.all()) counts_.emplace_back(group.members.size());
  open_.resize(counts_.size());
}

Exchange::Lane Exchange::lane_of(const Call& call) {
  if (call.info.op == "send") return {call.group, call.group_rank, call.peer};
  return {call.group, call.peer, call.group_rank};
}

uint64_t Exchange::number_of(const Call& call) const {
  const bool sends = call.info.op == "send";
  if (!sends && call.info.op != "recv") return counts_[call.group][call.group_rank];
  const auto found = mail_.find(lane_of(call));
  if (found == mail_.end()) return 0;
  return sends ? found->second.sent_count : found->second.received_count;
}

void Exchange::make(const Call& call) {
  if (call.info.op == "send" || call.info.op == "recv") return transfer(call);
  const uint64_t number = counts_[call.group][call.group_rank]++;
  std::vector<Call>& calls = open_[call.group][number];
  calls.push_back(call);
  if (calls.size() < call.size) return;
  std::vector<Call> all = std::move(calls);
  open_[call.group].erase(number);
  meet(all);
}

void Exchange::transfer(const Call& call) {
  Mail& mail = mail_[lane_of(call)];
  if (call.info.op == "send") {
    ++mail.sent_count;
    mail.sent.push_back(call.buffer);
    done_(call, {});
  } else {
    ++mail.received_count;
    mail.waiting.push_back(call);
  }
  while (!mail.sent.empty() && !mail.waiting.empty()) {
    const Call waiting = mail.waiting.front();
    const Value value = mail.sent.front();
    mail.waiting.pop_front();
    mail.sent.pop_front();
    done_(waiting, {value});
  }
}

void Exchange::meet(std::vector<Call>& calls) {
  const auto by_rank = [](const Call& a, const Call& b) { return a.group_rank < b.group_rank; };
  std::sort(calls.begin(), calls.end(), by_rank);
  for (const Call& call : calls)
    if (!fits(call, calls.front())) return;
  const UseInfo& info = calls.front().info;
  Value common;
  if (!info.reduction.empty()) {
    common = sum_of(calls, info.reduction == "avg");
  } else if (info.op == "all_gather") {
    common = joined(calls);
  } else if (info.op == "broadcast") {
    common = calls[calls.front().peer].buffer;
  }
  for (const Call& call : calls) done_(call, received_by(call, calls, common));
}

std::vector<Value> Exchange::received_by(const Call& call, const std::vector<Call>& calls,
                                         const Value& common) {
  const bool is_root = call.peer == call.group_rank;
  if (call.info.op == "barrier" || (call.info.op == "reduce" && !is_root)) return {};
  if (call.info.op == "gather") {
    std::vector<Value> all;
    for (const Call& other : calls)
      if (is_root) all.push_back(other.buffer);
    return all;
  }
  if (call.info.op != "reduce_scatter") return {common};
  const uint64_t count = call.elements / call.size;
  const auto begin = common->elements.begin() + static_cast<ptrdiff_t>(count * call.group_rank);
  return {world_.maker.make(common->dtype, {begin, begin + static_cast<ptrdiff_t>(count)})};
}

Value Exchange::sum_of(const std::vector<Call>& calls, bool is_mean) {
  std::vector<double> sum(calls.front().elements);
  for (const Call& call : calls) {
    if (is_lost(call)) continue;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += double{call.buffer->elements[i]};
  }
  std::vector<float> elements(sum.size());
  for (size_t i = 0; i < sum.size(); ++i)
    elements[i] = static_cast<float>(is_mean ? sum[i] / static_cast<double>(calls.size()) : sum[i]);
  return world_.maker.make(calls.front().dtype, std::move(elements));
}

Value Exchange::joined(const std::vector<Call>& calls) {
  std::vector<float> all;
  all.reserve(calls.size() * calls.front().elements);
  for (const Call& call : calls)
    all.insert(all.end(), call.buffer->elements.begin(), call.buffer->elements.end());
  return world_.maker.make(calls.front().dtype, std::move(all));
}

}  // namespace convtrace::simulate
