#include "tools/origin/digest/write_digest.h"

#include <algorithm>
#include <vector>

#include "tools/common/text.h"
#include "tools/origin/digest/table_out.h"
#include "tools/origin/read/rank_reader.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::origin {
namespace {

constexpr uint32_t kBlockRows = 1 << 16;

void write_number(std::ostream& out, uint32_t number) {
  out.write(reinterpret_cast<const char*>(&number), sizeof number);
}

template <typename Row, size_t kTable>
class Table {
 public:
  Table(const format::Definitions& names, std::ostream& out) : rows_(names), out_(out) {}
  ~Table() { flush(); }
  void add(const Row& row) {
    rows_.add(row);
    if (rows_.rows() == kBlockRows) flush();
  }

 private:
  void flush() {
    if (rows_.rows() != 0) out_ << rows_.take(kTable);
  }

  TableOut<Row> rows_;
  std::ostream& out_;
};

void write_head(std::ostream& out) {
  const std::string text = digest_json().dump();
  out << kDigestMagic;
  write_number(out, static_cast<uint32_t>(text.size()));
  out << text;
}

/// Rows of calls and of the values with each. @return the step up to which each call is reached.
std::vector<uint32_t> write_calls(const RankQueue& queue, const format::Definitions& names,
                                  std::ostream& out) {
  Table<CallRow, 1> calls(names, out);
  Table<ValueRow, 2> values(names, out);
  std::vector<uint32_t> at_step;
  uint32_t reached = 0;
  std::vector<uint32_t> chain;
  for (uint64_t place = 0; place < queue.end(); ++place) {
    const Call& call = queue.at(place);
    reached = std::max(reached, call.step);
    at_step.push_back(reached);
    CallRow row;
    row.at_step = reached;
    row.place = place;
    row.call = call;
    calls.add(row);
    chain.clear();
    for (uint32_t at = call.first_value; at != kNone; at = queue.values[at].next)
      chain.push_back(at);
    std::ranges::reverse(chain);  // to the order in which they came
    for (uint32_t turn = 0; turn < chain.size(); ++turn) {
      ValueRow value;
      value.at_step = reached;
      value.place = place;
      value.turn = turn;
      value.value = queue.values[chain[turn]];
      value.has_print = value.value.fingerprint != kNone;
      if (value.has_print) value.print = queue.fingerprints[value.value.fingerprint];
      values.add(value);
    }
  }
  return at_step;
}

void write_rest(const RankQueue& queue, const std::vector<uint32_t>& at_step,
                const format::Definitions& names, std::ostream& out) {
  Table<ParameterRow, 3> parameters(names, out);
  for (const auto& [step, all] : queue.parameters)
    for (size_t i = 0; i < all.size(); ++i) {
      ParameterRow row;
      row.at_step = step;
      row.place = i;
      row.seen = all[i];
      parameters.add(row);
    }
  Table<BadRow, 4> bads(names, out);
  uint64_t place = 0;
  const uint32_t end = at_step.empty() ? 0 : at_step.back();
  for (const LocalBad& bad : queue.bads) {
    BadRow row;
    row.at_step = bad.before < at_step.size() ? at_step[bad.before] : std::max(end, bad.step);
    row.place = place++;
    row.bad = bad;
    for (const std::string& line : bad.inputs) row.inputs += line + '\n';
    bads.add(row);
  }
  Table<StepRow, 5> steps(names, out);
  for (const auto& [step, counts] : queue.steps) {
    StepRow row;
    row.at_step = step;
    row.counts = counts;
    steps.add(row);
  }
}

TraceRow trace_row(const RankReader& reader, const RankQueue& queue) {
  TraceRow row;
  row.facts = facts_of(reader);
  row.read_step = queue.read_step;
  row.complete = queue.complete;
  row.damaged = queue.damaged;
  row.closed = queue.closed;
  row.scaled = queue.scaled;
  row.sees_modules = queue.sees_modules;
  row.lost_calls = queue.lost_calls;
  row.late_values = queue.late_values;
  row.odd_calls = queue.odd_calls;
  row.lost = queue.lost;
  row.value_count = queue.value_count;
  return row;
}

}  // namespace

void write_digest(const std::string& path, std::ostream& out) {
  format::Definitions names;
  RankReader reader(path, names);
  RankQueue queue;
  TraceRow row;
  const Status status = reader.open();
  if (status.ok()) {
    reader.read_to(UINT32_MAX, queue);
    row = trace_row(reader, queue);
  } else {
    row.problem = diff::unreadable(path, tools::status_text(status));
  }
  row.facts.path = path;
  write_head(out);
  Table<TraceRow, 0>(names, out).add(row);
  if (status.ok()) write_rest(queue, write_calls(queue, names, out), names, out);
}

}  // namespace convtrace::origin
