#include <algorithm>

#include "tools/common/text.h"
#include "tools/trace/flow/made_by.h"

namespace convtrace::diff {
namespace {

using tools::module_text;

std::string listed(const std::vector<std::string>& parts, const std::string& between = ", ") {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

}  // namespace

std::string_view to_string(HowKnown value) {
  constexpr std::string_view kTexts[] = {"returned", "wrote", "overwrote",
                                         "taken",    "order", "begin"};
  return kTexts[static_cast<size_t>(value)];
}

std::optional<Maker> MadeBy::place() const {
  if (makers.empty()) return std::nullopt;
  if (makers.size() == 1 || is_likely()) return makers.front();
  std::string common = makers.front().scope;
  const auto holds_all = [&] {
    return std::ranges::all_of(makers, [&](const Maker& one) {
      return !one.in_no_module && (one.scope == common || is_inside(one.scope, common));
    });
  };
  while (!common.empty() && !holds_all()) {
    const size_t dot = common.rfind('.');
    common.resize(dot == std::string::npos ? 0 : dot);
  }
  const bool holds_receiver = common == receiver.scope || is_inside(receiver.scope, common);
  if (common.empty() || holds_receiver) return std::nullopt;
  return Maker{.scope = common, .call = makers.front().call};
}

std::string maker_text(const Maker& maker) {
  if (!maker.op.empty())
    return "op " + maker.op + (maker.in_no_module ? "" : " of " + module_text(maker.scope));
  if (maker.own_code && maker.in_no_module) return "code in no module";
  return (maker.own_code ? "the code of " : "") + module_text(maker.scope);
}

std::string makers_text(const MadeBy& made) {
  if (made.makers.empty()) return "the backward of the loss function";
  // The op of a backward has a name of its own.
  const bool is_named = made.makers.front().op.ends_with("Backward");
  const std::string text = is_named ? "" : "the backward of ";
  std::vector<std::string> all;
  for (const Maker& maker : made.makers) all.push_back(maker_text(maker));
  return text + (all.size() > 1 && !made.is_likely() ? "one of " : "") +
         listed(all, made.is_likely() ? " or " : ", ");
}

std::string made_text(const MadeBy& made) {
  return (made.is_likely() ? "likely made by " : "made by ") + makers_text(made);
}

std::string how_text(const MadeBy& made) {
  std::string text;
  switch (made.how) {
    case HowKnown::kReturned:
      return "its backward returned this value as " + made.makers.front().slot;
    case HowKnown::kWrote:
      return "it wrote " + made.makers.front().slot +
             " in place, the gradient of a module around, which goes past that op, too";
    case HowKnown::kOverwrote:
      return "its " + made.makers.front().slot +
             " lies in memory that the receiver keeps for its backward, and changed it there";
    case HowKnown::kTaken:
      text = made.makers.size() > 1 ? "each took the value in the forward pass"
                                    : "it took the value in the forward pass, as " +
                                          made.makers.front().slot.substr(sizeof "grad_" - 1);
      break;
    case HowKnown::kOrder:
      return "no module or op that was recorded took the value in the forward pass";

    case HowKnown::kBegin: return "the backward pass begins there";
  }
  std::vector<std::string> all;
  for (const std::string& scope : made.around) all.push_back(module_text(scope));
  return text + (all.empty() ? "; a hook" : "; code of " + listed(all) + " or a hook") +
         " may have a part in it";
}

tools::Json made_by_json(const MadeBy& made) {
  const auto place = [](const Maker& maker) {
    return tools::Json{{"scope", maker.in_no_module ? tools::Json() : tools::Json(maker.scope)},
                       {"call", maker.call},
                       {"op", tools::text_or_null(maker.op)},
                       {"slot", tools::text_or_null(maker.slot)}};
  };
  const auto named = made.place();
  tools::Json json{{"place", named ? place(*named) : tools::Json()},
                   {"how", to_string(made.how)},
                   {"likely", made.is_likely()},
                   {"makers", tools::Json::array()},
                   {"around", made.around},
                   {"received_by", place(made.receiver)}};
  for (const Maker& maker : made.makers) {
    json["makers"].push_back(place(maker));
    json["makers"].back()["own_code"] = maker.own_code;
  }
  return json;
}

}  // namespace convtrace::diff
