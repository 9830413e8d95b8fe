#pragma once
/// @file facts.h
/// The facts about a program's modules and optimizers that the trace has up to a step.
///
/// Threads:  plain values.
/// Source:   names of facts in format/FORMAT.md 6.6.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/model/definitions.h"
#include "tools/check/model/step_values.h"

namespace convtrace::check {

/// Removes the part of a text up to and with `until`.
/// @return the part before `until`; nullopt, and the text unchanged, if it does not contain
/// `until`.
std::optional<std::string_view> cut(std::string_view& text, std::string_view until);

class Facts {
 public:
  explicit Facts(const format::Definitions& names) : names_(names) {}

  void take(const StepValues& step);
  /// Facts of the program that belong to no step: of compiled regions, and convtrace's settings.
  void take(const std::vector<std::pair<std::string, std::string>>& of_program);

  /// @return "" if it is not known.
  [[nodiscard]] std::string_view of_module(format::StringId scope, std::string_view name) const;
  /// @return the class of a module without its Python module, "" if it is not known.
  [[nodiscard]] std::string_view class_of(format::StringId scope) const;
  /// @return whether a module contains modules that were called.
  [[nodiscard]] bool contains_others(format::StringId scope) const;
  /// @return whether a module's weight is parametrized, or the module belongs to a parametrization.
  [[nodiscard]] bool is_parametrized(format::StringId scope) const;
  /// @return whether the module's class is one of torch.
  [[nodiscard]] bool is_torchs(format::StringId scope) const;
  /// @return whether a parameter did not require a gradient when its module was first called.
  [[nodiscard]] bool frozen(const Parameter& parameter) const;
  /// @return the value of a module's attribute, "0.3" for "p"; "" if it is unknown.
  [[nodiscard]] std::string_view attribute(format::StringId scope, std::string_view key) const;
  /// @return the share of elements that a module drops in training, for a dropout or a layer of
  /// torch with one inside (`dropout=0.1`). 0 if it is unknown.
  [[nodiscard]] double drop_rate(format::StringId scope) const;
  /// @return whether a module is a dropout, of any rate.
  [[nodiscard]] bool drops(format::StringId scope) const;
  /// @return whether a module computes differently in training and evaluation, by its class.
  [[nodiscard]] bool depends_on_mode(format::StringId scope) const;

  /// Views that generated code gives up unused: ("SCOPE.OP", "KERNEL VIEW OWNER").
  [[nodiscard]] std::vector<std::pair<std::string_view, std::string_view>> dropped_views() const;
  /// @return a fact of the program, "" if it is not known.
  [[nodiscard]] std::string_view of_program(const std::string& name) const;
  using Group = std::pair<unsigned, unsigned>;  ///< the numbers of an optimizer and of its group
  using Settings = std::map<Group, std::string>;
  /// @return a setting, such as "lr", of all optimizers' groups; "class" of the optimizers, with
  /// group 0.
  [[nodiscard]] const Settings& settings(std::string_view key) const;
  /// @return the group if a fact of that name is a setting `key` of one.
  [[nodiscard]] static std::optional<Group> group_of(std::string_view fact, std::string_view key);
  /// @return the number that a setting is, nullopt for others.
  [[nodiscard]] static std::optional<double> number(std::string_view value);
  /// @return whether the results of an op in this module depend on recorded tensors alone: no
  /// generator moves in a call, and the other arguments are the same within a step. nullopt:
  /// unknown.
  [[nodiscard]] std::optional<bool> takes_tensors_alone(format::StringId scope,
                                                        format::StringId op) const;
  /// @return whether states of random generators are recorded.
  [[nodiscard]] bool knows_generators() const;
  /// @return the largest learning rate of all groups; nullopt if none is known.
  [[nodiscard]] std::optional<double> largest_rate() const;
  /// @return whether there is an optimizer, and all are SGD.
  [[nodiscard]] bool all_descend() const;
  [[nodiscard]] bool some_rate_is_zero() const;
  /// @return whether there is an optimizer, and all are SGD without momentum and weight decay: a
  /// parameter then moves by its gradient alone.
  [[nodiscard]] bool plain_descent() const;

 private:
  /// The values of one setting, indexed so that a query need not walk all earlier optimizers.
  struct Values {
    Settings by_group;
    std::map<std::string, unsigned> counts;  ///< by value
    std::multiset<double> numbers;           ///< the values that are numbers
  };

  void take_setting(std::string_view name, const std::string& value);
  [[nodiscard]] const Values& values(std::string_view key) const;

  const format::Definitions& names_;
  std::map<std::pair<std::string, std::string>, std::string> modules_;  ///< (scope, name)
  std::map<std::string, std::string> program_;
  std::map<std::string, Values, std::less<>> settings_;  ///< by key
};

}  // namespace convtrace::check
