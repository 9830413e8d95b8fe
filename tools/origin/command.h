#pragma once
/// @file command.h
/// `convtrace origin`: where a job went wrong first.

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "tools/common/exit_code.h"
#include "tools/origin/model/result.h"

namespace convtrace::origin {

class OriginCommand {
 public:
  explicit OriginCommand(CLI::App& app);
  [[nodiscard]] bool chosen() const { return command_->parsed(); }
  /// @return kClean; kFindings: an origin; kDamagedInput; kUsage.
  [[nodiscard]] tools::ExitCode run() const;

 private:
  [[nodiscard]] bool judge(OriginResult& result, std::string& error) const;
  [[nodiscard]] tools::ExitCode write_one_digest() const;

  CLI::App* command_;
  std::vector<std::string> paths_;
  std::string json_, html_, digest_, digests_;
  bool brief_ = false;
  unsigned threads_ = 0;
};

}  // namespace convtrace::origin
