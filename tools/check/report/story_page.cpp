#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "tools/check/report/story_text.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr double kWidth = 640, kHeight = 160, kEdge = 6;
constexpr size_t kMostPoints = 1000;

struct Titled {
  Series series;
  const char *title, *what;
};
constexpr Titled kCurves[] = {
    {Series::kLoss, "Loss", "loss by step"},
    {Series::kNorm, "Gradient norm before clipping", "gradient norm by step"},
    {Series::kUpdate, "Size of updates against the weights", "size of updates by step"},
};

struct Point {
  double step = 0, value = 0;
};

std::string coordinates(double x, double y) {
  char text[48];
  std::snprintf(text, sizeof text, "%.1f,%.1f", x, y);
  return text;
}

/// A curve of finite numbers, on a scale of logarithms where all are above 0.
class Curve {
 public:
  Curve(const Story& story, Series series) : first_(story.steps.front().step) {
    last_ = std::max<double>(first_ + 1, story.steps.back().step);
    for (const StoryStep& step : story.steps) {
      const auto& value = step.of(series);
      if (value && std::isfinite(*value)) points_.push_back({double(step.step), *value});
      any_ |= value.has_value();
    }
    in_logs_ = std::ranges::all_of(points_, [](const Point& one) { return one.value > 0; });
    for (const Point& one : points_) {
      least_ = std::min(least_, scaled(one.value));
      most_ = std::max(most_, scaled(one.value));
    }
  }

  [[nodiscard]] bool any() const { return any_; }
  /// @return the smallest and the largest number that is drawn; "" if none is.
  [[nodiscard]] std::string least() const { return points_.empty() ? "" : number(end(least_)); }
  [[nodiscard]] std::string most() const { return points_.empty() ? "" : number(end(most_)); }
  [[nodiscard]] std::string first_step() const { return number(first_); }
  [[nodiscard]] std::string last_step() const { return number(last_); }
  [[nodiscard]] bool in_logs() const { return in_logs_; }
  [[nodiscard]] double x(double step) const {
    return kEdge + (kWidth - 2 * kEdge) * (step - first_) / (last_ - first_);
  }
  [[nodiscard]] std::string line() const {
    std::string text;
    // If there are many points, only the largest and the smallest of each piece are drawn.
    const size_t piece = std::max<size_t>(1, points_.size() * 2 / kMostPoints);
    for (size_t i = 0; i < points_.size(); i += piece) {
      const auto begin = points_.begin() + static_cast<ptrdiff_t>(i);
      const auto end =
          points_.begin() + static_cast<ptrdiff_t>(std::min(i + piece, points_.size()));
      auto [low, high] = std::minmax_element(
          begin, end, [](const Point& a, const Point& b) { return a.value < b.value; });
      if (high->step < low->step) std::swap(low, high);
      for (const auto one : {low, high}) {
        text += coordinates(x(one->step), y(one->value)) + ' ';
        if (low == high) break;
      }
    }
    return text;
  }

 private:
  static std::string number(double value) { return tools::number_text(value, 3); }
  [[nodiscard]] double scaled(double value) const { return in_logs_ ? std::log(value) : value; }
  [[nodiscard]] double end(double scaled) const { return in_logs_ ? std::exp(scaled) : scaled; }
  [[nodiscard]] double y(double value) const {
    const double span = most_ > least_ ? most_ - least_ : 1;
    return kHeight - kEdge - (kHeight - 2 * kEdge) * (scaled(value) - least_) / span;
  }

  double first_, last_ = 0, least_ = HUGE_VAL, most_ = -HUGE_VAL;
  std::vector<Point> points_;
  bool in_logs_ = true, any_ = false;
};

/// Writes a curve with its axes, which are HTML: a stretched picture would stretch its text.
void write_curve(const Story& story, const Titled& titled, diff::Markup& out) {
  const Curve curve(story, titled.series);
  if (!curve.any()) return;
  out << "<figure>\n<figcaption>" << titled.title << (curve.in_logs() ? ", logarithmic" : "")
      << "</figcaption>\n<div class=\"curve\"><span>" << curve.most()
      << "</span><span class=\"least\">" << curve.least()
      << "</span>\n<svg role=\"img\" aria-label=\"" << titled.what << ", " << curve.least()
      << " to " << curve.most() << "\" viewBox=\"0 0 " << kWidth << ' ' << kHeight
      << "\" preserveAspectRatio=\"none\">\n";
  std::string rises;
  for (const StoryEvent& event : story.events) {
    if (!event.is_rise() || event.series != titled.series) continue;
    const std::string x = coordinates(curve.x(event.step), 0);
    const std::string at = x.substr(0, x.find(','));
    out << "<line class=\"mark\" x1=\"" << at << "\" x2=\"" << at << "\" y1=\"0\" y2=\"" << kHeight
        << "\" vector-effect=\"non-scaling-stroke\"/>\n";
    rises += (rises.empty() ? "rises in step " : ", ") + std::to_string(event.step);
  }
  out << "<polyline class=\"base\" stroke-width=\"1.5\" vector-effect=\"non-scaling-stroke\" "
         "points=\""
      << curve.line() << "\"/>\n</svg>\n<p><span>step " << curve.first_step() << "</span><b>"
      << rises << "</b><span>" << curve.last_step() << "</span></p></div>\n</figure>\n";
}

}  // namespace

void write_story(const CheckResult& result, diff::Markup& out) {
  const Story* const story = story_to_tell(result);
  if (story == nullptr) return;
  out.heading("The run", "story");
  out << "<ul>\n";
  for (const auto& [label, text] : story_lines(result)) {
    std::string name = label;
    name.erase(name.find_last_not_of(' ') + 1);
    out.item("<b>" + tools::quote_markup(name) + "</b> " + tools::quote_markup(text));
  }
  out << "</ul>\n";
  out << "<div class=\"charts\">\n";
  for (const Titled& titled : kCurves) write_curve(*story, titled, out);
  out << "</div>\n";
}

}  // namespace convtrace::check
