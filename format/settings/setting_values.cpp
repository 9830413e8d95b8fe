#include "format/settings/setting_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>

#include "format/settings/nearest.h"
#include "format/settings/pattern.h"

namespace convtrace::settings {
namespace {

constexpr std::string_view kSuffixes = "KMGT";
constexpr std::string_view kTriggers[] = {"nan", "alias", "signal", "USR2", "spike"};
static_assert(std::size(kTriggers) == kTriggerCount);

/// Reads a decimal number from the front of `text` and removes it.
template <typename Number>
bool take_number(std::string_view& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

std::string at_character(const Status& status) {
  return "character " + std::to_string(status.detail + 1) + " does not fit";
}

std::string take_set(Result<StepSet> parsed, StepSet& value) {
  if (!parsed.ok()) return at_character(parsed.status());
  value = std::move(parsed).value();
  return {};
}

}  // namespace

std::string parse_flag(std::string_view text, bool& value) {
  if (text != "0" && text != "1") return "it is a switch";
  value = text == "1";
  return {};
}

std::string parse_count(std::string_view text, uint32_t maximum, uint32_t& value) {
  uint32_t number = 0;
  if (!take_number(text, number) || !text.empty()) return "it is not a number";
  if (number > maximum) return "the most is " + std::to_string(maximum);
  value = number;
  return {};
}

std::string parse_size(std::string_view text, uint64_t& value) {
  if (text == "auto") {
    value = 0;
    return {};
  }
  uint64_t number = 0;
  if (!take_number(text, number)) return "it is not a size";
  uint64_t unit = 1;
  if (!text.empty()) {
    const size_t suffix = kSuffixes.find(text.front());
    if (suffix == std::string_view::npos) return "its unit is none of K M G T";
    unit = uint64_t{1} << (10 * (suffix + 1));
    text.remove_prefix(1);
  }
  if (!text.empty()) return "something follows the unit";
  if (number > std::numeric_limits<uint64_t>::max() / unit) return "it is too large";
  if (number == 0) return "the least is 1";
  value = number * unit;
  return {};
}

std::string print_size(uint64_t value) {
  if (value == 0) return "auto";
  size_t suffix = 0;
  while (suffix < kSuffixes.size() && value % 1024 == 0) {
    value /= 1024;
    ++suffix;
  }
  std::string text = std::to_string(value);
  if (suffix != 0) text += kSuffixes[suffix - 1];
  return text;
}

std::string parse_steps(std::string_view text, StepSet& value) {
  return take_set(StepSet::parse_steps(text), value);
}

std::string parse_ranks(std::string_view text, StepSet& value) {
  return take_set(StepSet::parse_ranks(text), value);
}

std::string parse_choice(std::string_view text, std::span<const std::string_view> names,
                         size_t& index) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return suggestion(text, names, "it is none of them");
  index = static_cast<size_t>(found - names.begin());
  return {};
}

std::string check_patterns(std::string_view text) {
  const auto patterns = compile_patterns(text);
  if (!patterns.ok())
    return "bad pattern at character " + std::to_string(patterns.status().detail + 1);
  return patterns.value().empty() ? "there is no pattern in it" : "";
}

std::string check_output(std::string_view text) {
  for (size_t i = text.find('%'); i < text.size(); i = text.find('%', i + 2)) {
    if (i + 1 == text.size() || std::string_view("hpr%").find(text[i + 1]) == text.npos)
      return "% stands before h (host), p (process), r (rank) or %";
  }
  return {};
}

std::string parse_ring(std::string_view text, Ring& value) {
  Ring ring;
  if (!take_number(text, ring.steps) || ring.steps == 0)
    return "it does not begin with a number of steps";
  if (text.empty()) ring.triggers.set();
  while (!text.empty()) {
    if (text.front() != ',') return "triggers are separated by commas";
    text.remove_prefix(1);
    const std::string_view trigger = text.substr(0, text.find(','));
    size_t index = 0;
    if (std::string why = parse_choice(trigger, kTriggers, index); !why.empty()) return why;
    ring.triggers.set(index);
    text.remove_prefix(trigger.size());
  }
  value = ring;
  return {};
}

std::string parse_percent(std::string_view text, double& value) {
  double number = 0;
  const bool good = take_number(text, number) && number > 0 && std::isfinite(number);
  if (!good || (!text.empty() && text != "%")) return "it takes a number above 0";
  value = number / 100;
  return {};
}

std::string print_percent(double value) {
  if (value == 0) return {};
  char text[32];
  std::snprintf(text, sizeof text, "%.9g%%", 100 * value);
  return text;
}

std::string parse_spike(std::string_view text, Spike& value) {
  Spike spike;
  const auto positive = [&text](double& number) {
    return take_number(text, number) && number > 0 && std::isfinite(number);
  };
  bool good = positive(spike.sigma);
  if (good && text.starts_with(',')) {
    text.remove_prefix(1);
    good = positive(spike.absolute);
  }
  if (!good || !text.empty()) return "it takes one or two positive numbers, with a comma between";
  value = spike;
  return {};
}

std::string print_spike(const Spike& value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.9g,%.9g", value.sigma, value.absolute);
  return text;
}

std::string print_ring(const Ring& value) {
  if (value.steps == 0) return {};
  std::string text = std::to_string(value.steps);
  if (value.triggers.all()) return text;
  for (size_t i = 0; i < kTriggerCount; ++i) {
    if (value.triggers.test(i)) text.append(",").append(kTriggers[i]);
  }
  return text;
}

}  // namespace convtrace::settings
