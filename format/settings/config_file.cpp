#include "format/settings/config_file.h"

#include <algorithm>
#include <optional>

#include "format/settings/nearest.h"
#include "format/settings/toml_file.h"

namespace convtrace::settings {
namespace {

/// @return the value in the spelling of the environment; nullopt for tables, arrays, dates.
std::optional<std::string> spelled(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "1" : "0";
  return std::nullopt;
}

const SettingSpec* find_by_key(std::string_view key) {
  const auto table = setting_table();
  const auto found = std::find_if(table.begin(), table.end(), [key](const SettingSpec& spec) {
    return setting_key(spec) == key;
  });
  return found == table.end() ? nullptr : &*found;
}

std::string unknown_key(std::string_view key) {
  const std::string problem = "unknown key " + quoted(key) + "; ";
  if (const SettingSpec* const spec = find_setting(key))
    return problem + "in a file it is " + setting_key(*spec);
  std::vector<std::string> keys{"rule"};
  for (const SettingSpec& spec : setting_table()) keys.push_back(setting_key(spec));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  return problem + suggestion(key, views, "`convtrace run --help` lists them");
}

/// @return an empty string, or what is wrong with this entry.
std::string apply(std::string_view key, const toml::node& node, Settings& settings) {
  const SettingSpec* spec = find_by_key(key);
  if (spec == nullptr) return unknown_key(key);
  if (spec->name == "CONVTRACE_CONFIG") return "config names this file and cannot stand in it";
  const auto text = spelled(node);
  if (!text) return quoted(key) + " takes a text or a number: " + std::string(spec->values);
  return set_value(*spec, key, *text, settings);
}

}  // namespace

void apply_config_file(const std::string& path, LoadedSettings& loaded) {
  std::vector<std::string>& problems = loaded.problems;
  const auto root = read_toml(path, problems);
  if (!root) return;
  for (const auto& [key, node] : *root) {
    if (key.str() == "rule") continue;
    const std::string why = apply(key.str(), node, loaded.settings);
    if (!why.empty()) problems.push_back(at(path, key.source(), why));
    if (const SettingSpec* const spec = find_by_key(key.str()))
      loaded.said_by[std::string(spec->name)] = at(path, key.source(), "");
  }
}

}  // namespace convtrace::settings
