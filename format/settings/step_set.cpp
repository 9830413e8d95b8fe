#include "format/settings/step_set.h"

#include <algorithm>
#include <charconv>

namespace convtrace::settings {

/// items = item (separator item)*      item = ("all" | N ["-" [N]]) [",every=" N]
class StepSet::Parser {
 public:
  Parser(std::string_view text, Kind kind) : text_(text), kind_(kind) {}

  Result<StepSet> run() {
    StepSet set;
    set.ranges_.clear();
    const std::string_view separator = kind_ == Kind::kSteps ? "|" : ",";
    do {
      Range range;
      if (!parse_item(range)) return bad();
      set.ranges_.push_back(range);
    } while (skip(separator));
    if (at_ != text_.size()) return bad();
    return set;
  }

 private:
  [[nodiscard]] Status bad() const {
    return Status::make(StatusCode::kInvalidArgument, "step set", static_cast<int64_t>(at_));
  }

  bool parse_item(Range& range) {
    if (!skip("all")) {
      if (!parse_number(range.first)) return false;
      range.last = range.first;
      if (skip("-")) {
        range.last = kOpen;
        const size_t last_at = at_;
        if (next_is_digit() && !parse_number(range.last)) return false;
        if (range.last < range.first) {
          at_ = last_at;
          return false;
        }
      }
    }
    if (kind_ == Kind::kRanks || !skip(",every=")) return true;
    const size_t every_at = at_;
    if (!parse_number(range.every)) return false;
    if (range.every != 0) return true;
    at_ = every_at;
    return false;
  }

  bool parse_number(uint32_t& value) {
    if (!next_is_digit()) return false;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value == kOpen) return false;
    at_ = static_cast<size_t>(end - text_.data());
    return true;
  }

  [[nodiscard]] bool next_is_digit() const {
    return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9';
  }

  bool skip(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  std::string_view text_;
  Kind kind_;
  size_t at_ = 0;
};

bool StepSet::contains(uint32_t step) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [step](const Range& range) {
    return step >= range.first && step <= range.last && (step - range.first) % range.every == 0;
  });
}

uint32_t StepSet::first() const { return std::ranges::min(ranges_, {}, &Range::first).first; }

bool StepSet::any_below(uint32_t limit) const {
  return std::ranges::any_of(ranges_, [limit](const Range& range) { return range.first < limit; });
}

Result<StepSet> StepSet::parse(std::string_view text, Kind kind) {
  return Parser(text, kind).run();
}
Result<StepSet> StepSet::parse_steps(std::string_view text) { return parse(text, Kind::kSteps); }
Result<StepSet> StepSet::parse_ranks(std::string_view text) { return parse(text, Kind::kRanks); }

std::string StepSet::text(char separator) const {
  std::string result;
  for (const Range& range : ranges_) {
    if (!result.empty()) result += separator;
    if (range.first == 0 && range.last == kOpen) {
      result += "all";
    } else {
      result += std::to_string(range.first);
      if (range.last != range.first) result += '-';
      if (range.last != range.first && range.last != kOpen) result += std::to_string(range.last);
    }
    if (range.every != 1) result += ",every=" + std::to_string(range.every);
  }
  return result;
}

}  // namespace convtrace::settings
