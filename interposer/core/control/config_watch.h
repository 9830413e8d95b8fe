#pragma once
/// @file config_watch.h
/// Detects changes of the file of CONVTRACE_CONFIG, and which of them can apply to the running
/// program.
///
/// Place:    the writer thread polls; the engine applies.
/// Threads:  one.
/// Errors:   if the file becomes invalid or disappears, the old settings stay and a line reports
///           it.

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/base/messages.h"
#include "format/settings/controls.h"
#include "format/settings/match_report.h"

namespace convtrace::engine {

struct ConfigChange {
  bool applies = false;         ///< false: there are only lines
  settings::Settings settings;  ///< the settings from now on
  std::vector<settings::Rule> rules;
  std::vector<Notice> lines;  ///< to be logged
};

class ConfigWatch {
 public:
  /// @param environment  "NAME=value" entries from the start of the process. They override the file
  /// and name it by an absolute path, since the program may change its folder.
  ConfigWatch(const settings::Settings& now, std::vector<std::string> environment);

  /// Checks the file twice a second. A file that was written to since the last check waits for the
  /// next one.
  [[nodiscard]] std::optional<ConfigChange> poll(uint64_t now_ns);

 private:
  struct Version {
    timespec changed{};
    off_t bytes = -1;  ///< -1: no file
    ino_t file = 0;
    bool operator==(const Version& other) const;
  };

  [[nodiscard]] Version look() const;
  [[nodiscard]] ConfigChange load();
  void take_over(const settings::Settings& wanted, ConfigChange& change);
  /// The settings of the file without those of the environment.
  [[nodiscard]] settings::Settings settings_in_file() const;
  void say_overruled(ConfigChange& change);

  settings::Settings now_;
  std::vector<std::string> environment_;
  std::string path_;            ///< empty: no file
  settings::Settings in_file_;  ///< as loaded last
  Version read_;                ///< the version that was loaded last
  Version seen_;
  uint64_t next_look_ns_ = 0;
};

}  // namespace convtrace::engine
