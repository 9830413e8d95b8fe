/// @file labels.cpp
/// no-labels: all labels of a loss are the index that it ignores. padding: more than half of what
/// an embedding looks up is its padding index (hint).
///
/// Why it is a fault: a step without labels learns nothing, and its mean is 0 / 0. A hint where the
/// loss is a sum and another micro-batch of the step has labels.
/// Silent: on a device, where labels are not counted; in evaluation.

#include <algorithm>
#include <map>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr double kMostPadding = 0.5;

class Labels : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const Value& value : step.values) {
      if (value.padding == format::Padding::kNone || value.pad_count == format::kNotCounted)
        continue;
      if (value.place.phase == format::Phase::kEvaluation || value.stats.count == 0) continue;
      look(value.padding == format::Padding::kLabels ? "no-labels" : "padding");
      if (value.padding == format::Padding::kLabels) {
        if (value.pad_count == value.stats.count) tell_labels(step, around, value);
      } else {
        Share& share = shares_[value.place.scope];
        share.padding += value.pad_count;
        share.count += value.stats.count;
        if (share.step == format::kNoStep) share.step = step.number;
        share.value = value;
      }
    }
  }

  void end(const Surroundings& around) override {
    for (const auto& [scope, share] : shares_) {
      const double part = static_cast<double>(share.padding) / static_cast<double>(share.count);
      if (part <= kMostPadding) continue;
      Finding finding = about("padding", Severity::kHint, around, share.step, share.value);
      finding.text = tools::percent_text(part) + " of what " + module_name(around.names, scope) +
                     " looks up is padding.";
      finding.evidence = {tools::counted(share.padding, "element") + " of " +
                          tools::count_text(share.count)};
      finding.cause = "batches of texts of very unlike lengths, or a wrong padding index";
      finding.next = "convtrace show --density TRACE";
      report(std::move(finding));
    }
  }

 private:
  struct Share {
    uint64_t padding = 0, count = 0;
    uint32_t step = format::kNoStep;
    Value value{};
  };

  static bool reduction_is_sum(const Surroundings& around, format::StringId scope) {
    for (const char* const loss :
         {"loss.cross_entropy_loss", "loss.nll_loss_nd", "loss.nll_loss", "attributes"})
      if (around.facts.of_module(scope, loss).find("reduction='sum'") != std::string_view::npos)
        return true;
    return false;
  }

  void tell_labels(const StepValues& step, const Surroundings& around, const Value& value) {
    const auto has_labels = [](const Value& one) {
      return one.padding == format::Padding::kLabels && one.pad_count < one.stats.count;
    };
    const bool adds =
        reduction_is_sum(around, value.place.scope) && std::ranges::any_of(step.values, has_labels);
    Finding finding =
        about("no-labels", adds ? Severity::kHint : Severity::kWarning, around, step.number, value);
    finding.text =
        "All " + tools::counted(value.stats.count, "label") + " of a loss are the ignored index.";
    finding.evidence = {std::to_string(value.pad_count) + " of " +
                        std::to_string(value.stats.count) + " ignored"};
    finding.cause =
        "labels that were masked too far (a prompt longer than the limit), or shifted away";
    finding.next = "convtrace show --density TRACE";
    report(std::move(finding));
  }

  std::map<format::StringId, Share> shares_;
};

}  // namespace

std::unique_ptr<Check> make_labels() { return std::make_unique<Labels>(); }

}  // namespace convtrace::check
