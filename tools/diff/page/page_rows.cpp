#include "tools/diff/page/page_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::diff {
namespace {

using tools::Json;

void put(std::string& to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i) & 0xFF);
}

void put(std::string& to, double value) {
  put(to, std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
}

bool has_statistics(const SideReport& side) { return side.capture != format::Capture::kHash; }

/// The tolerance in units of the deciding field, for its plot.
double absolute_tolerance(const RecordReport& record) {
  const format::Stats& s = record.base.stats;
  const double size = std::max(s.l2, record.cand.stats.l2);
  if (record.comparison.field != Field::kMean) return record.comparison.tolerance * size;
  return record.comparison.tolerance * size / std::sqrt(static_cast<double>(s.finite));
}

}  // namespace

uint32_t PageRows::Texts::number(const std::string& text) {
  const auto [known, is_new] = numbers_.emplace(text, static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(text);
  return known->second;
}

Json PageRows::Texts::json() const { return tools::json_list(texts_, tools::escape_text); }

uint32_t PageRows::tensor_of(const RecordReport& record, uint32_t scope, const SideReport& side) {
  const Tensor key = {record.rank,
                      scope,
                      slots_.number(record.slot),
                      ops_.number(op_name(record)),
                      static_cast<uint64_t>(record.phase),
                      record.call,
                      dtypes_.number(std::string(to_string(side.dtype))),
                      side.stats.count};
  const auto [known, is_new] = numbers_.emplace(key, static_cast<uint32_t>(tensors_.size()));
  if (is_new) tensors_.push_back(key);
  return known->second;
}

/// Parameters are recorded by the order of their definition, so a module stands where it was
/// called.
void PageRows::note_order(const RecordReport& record, uint32_t scope) {
  constexpr uint64_t kNotCalled = uint64_t{1} << 62;
  if (scope >= order_.size()) order_.resize(scope + 1, ~uint64_t{0});
  const bool of_call = !record.slot.starts_with("param:");
  order_[scope] = std::min(order_[scope], seen_++ + (of_call ? 0 : kNotCalled));
}

void PageRows::row(const RecordReport& record, bool in_base, bool in_cand) {
  const SideReport& side = in_base ? record.base : record.cand;
  const auto [step, is_new] =
      step_numbers_.emplace(record.step, static_cast<uint32_t>(steps_.size()));
  if (is_new) steps_.push_back(record.step);
  const uint32_t scope = scopes_.number(record.scope);
  note_order(record, scope);
  map_.add(scope, step->second, record);
  if (kept_[agrees(record.comparison.verdict) ? 1 : 0]++ >= kMaxPageRows) {
    ++left_out_;
    return;
  }
  constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
  const bool both =
      in_base && in_cand && has_statistics(record.base) && has_statistics(record.cand);
  put(bytes_, tensor_of(record, scope, side), 4);
  put(bytes_, step->second, 4);
  put(bytes_, has_statistics(side) ? side.stats.mean : kMissing);
  put(bytes_, both ? record.cand.stats.mean - record.base.stats.mean : kMissing);
  put(bytes_, has_statistics(side) ? side.stats.l2 : kMissing);
  put(bytes_, both ? record.cand.stats.l2 - record.base.stats.l2 : kMissing);
  put(bytes_, absolute_tolerance(record));
  put(bytes_, static_cast<uint64_t>(record.comparison.verdict), 1);
  put(bytes_, static_cast<uint64_t>(record.comparison.field), 1);
}

Json PageRows::json() const {
  Json json = {{"scopes", scopes_.json()}, {"slots", slots_.json()}, {"ops", ops_.json()},
               {"dtypes", dtypes_.json()}, {"tensors", tensors_},    {"left_out", left_out_},
               {"most", kMaxPageRows},     {"rows", base64(bytes_)}};
  std::vector<uint32_t> in_time(steps_.size());
  std::iota(in_time.begin(), in_time.end(), 0);
  std::ranges::sort(in_time, {}, [this](uint32_t number) { return steps_[number]; });
  json["map"] = map_.json(in_time);
  for (const uint32_t number : in_time)
    json["map"]["steps"].push_back(tools::step_json(steps_[number]));
  std::vector<uint32_t> ranked(order_.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::ranges::sort(ranked, {}, [this](uint32_t scope) { return order_[scope]; });
  json["order"] = ranked;
  json["steps"] = tools::json_list(steps_, tools::step_json);
  for (size_t i = 0; i < kClassCount; ++i)
    json["classes"].push_back(to_string(static_cast<Class>(i)));
  for (size_t i = 0; i <= static_cast<size_t>(Field::kNone); ++i)
    json["fields"].push_back(to_string(static_cast<Field>(i)));
  for (size_t i = 0; i < kPhaseCount; ++i)
    json["phases"].push_back(to_string(static_cast<format::Phase>(i)));
  return json;
}

std::string op_name(const RecordReport& record) {
  return record.op.empty() ? tools::demangled(record.kernel) : record.op;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t word = 0;
    for (size_t i = 0; i < 3; ++i)
      word = word << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0);
    for (size_t i = 0; i < 4; ++i)
      text += at + i <= bytes.size() ? kDigits[word >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

}  // namespace convtrace::diff
