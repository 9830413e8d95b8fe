#include "interposer/core/control/config_watch.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "format/file/file_thread.h"

namespace convtrace::engine {
namespace {

constexpr uint64_t kLookNs = 500'000'000;
constexpr std::string_view kConfig = "CONVTRACE_CONFIG";

}  // namespace

bool ConfigWatch::Version::operator==(const Version& other) const {
  return changed.tv_sec == other.changed.tv_sec && changed.tv_nsec == other.changed.tv_nsec &&
         bytes == other.bytes && file == other.file;
}

ConfigWatch::ConfigWatch(const settings::Settings& now, std::vector<std::string> environment)
    : now_(now), environment_(std::move(environment)), path_(now.config) {
  if (path_.empty()) return;
  read_ = seen_ = look();
  in_file_ = settings_in_file();
}

ConfigWatch::Version ConfigWatch::look() const {
  struct stat status;
  if (stat(path_.c_str(), &status) != 0) return {};
  return {.changed = status.st_mtim, .bytes = status.st_size, .file = status.st_ino};
}

std::optional<ConfigChange> ConfigWatch::poll(uint64_t now_ns) {
  if (path_.empty() || now_ns < next_look_ns_) return std::nullopt;
  next_look_ns_ = now_ns + kLookNs;
  const Version version = look();
  const bool at_rest = version == std::exchange(seen_, version);
  if (version == read_ || !at_rest) return std::nullopt;
  read_ = version;
  // The program neither gets the number that the file has for a moment, nor can close it.
  ConfigChange change;
  format::FileThread(format::FileThread::Table::kPrivate).run([&] { change = load(); });
  return change;
}

ConfigChange ConfigWatch::load() {
  std::vector<const char*> environment;
  for (const std::string& entry : environment_) environment.push_back(entry.c_str());
  environment.push_back(nullptr);
  settings::LoadedControls loaded = settings::load_controls(environment.data());
  ConfigChange change;
  for (const std::string& problem : loaded.problems)
    change.lines.push_back({messages::kOldSettingsStay, problem + "; the old settings stay"});
  if (!loaded.problems.empty()) return change;
  change.applies = true;
  say_overruled(change);
  take_over(loaded.settings, change);
  change.rules = std::move(loaded.rules);
  for (std::string& warning : loaded.warnings)
    change.lines.push_back({messages::kIdleSetting, std::move(warning)});
  change.lines.push_back({messages::kReadAgain, path_ + " was read again; rules: " +
                                                    std::to_string(change.rules.size())});
  return change;
}

settings::Settings ConfigWatch::settings_in_file() const {
  const std::string entry = std::string(kConfig) + '=' + path_;
  const char* const environment[] = {entry.c_str(), nullptr};
  return settings::load_controls(environment).settings;
}

/// Says which keys of the changed file are overridden, since the user expects an effect.
void ConfigWatch::say_overruled(ConfigChange& change) {
  const settings::Settings before = std::exchange(in_file_, settings_in_file());
  for (const settings::SettingSpec& spec : settings::setting_table()) {
    const std::string given = std::string(spec.name) + '=';
    const bool overruled = std::ranges::any_of(environment_, [&given](const std::string& entry) {
      return entry.starts_with(given) && entry.size() > given.size();
    });
    if (!overruled || spec.name == kConfig || spec.print(before) == spec.print(in_file_)) continue;
    change.lines.push_back({messages::kOverruled, settings::setting_key(spec) + " of " + path_ +
                                                      " has no effect: " + std::string(spec.name) +
                                                      " (an option or the environment) wins"});
  }
}

void ConfigWatch::take_over(const settings::Settings& wanted, ConfigChange& change) {
  for (const settings::SettingSpec& spec : settings::setting_table()) {
    const std::string before = spec.print(now_), after = spec.print(wanted);
    if (before == after || spec.name == kConfig) continue;
    const bool ends = spec.name == "CONVTRACE_MODE" && wanted.mode == settings::Mode::kOff;
    const bool applies = spec.reloads && !ends;
    if (applies) (void)spec.parse(after, now_);
    change.lines.push_back({applies ? messages::kChanged : messages::kNeedsNewStart,
                            settings::setting_key(spec) + ": \"" + before + "\" -> \"" + after +
                                '"' + (applies ? "" : " needs a new start")});
  }
  change.settings = now_;
}

}  // namespace convtrace::engine
