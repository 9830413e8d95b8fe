#pragma once
/// @file symbols.h
/// Names of functions and lines of source for the frames of a trace, from the libraries as they lie
/// on this machine.
///
/// How:      a frame names a library and an offset in it, a fact of the trace says which file and
///           build that was. binutils' addr2line reads it, debug files of the system included.
/// Safety:   a file that is not the one of the run would give wrong names: its build id must be
///           the recorded one; without one it must not have changed since the trace began.
/// Threads:  one.
/// Errors:   what cannot be named stays as recorded; obstacles() says why.

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/meta.h"

namespace convtrace::tools {

class Symbols {
 public:
  explicit Symbols(const format::TraceMeta& meta);

  /// @param stack  frames as recorded, innermost first.
  /// @return the frames with names: "my_op(at::Tensor) at /src/ops.cpp:12 (ops.so+0x1234)". An
  /// inlined function is a frame of its own. Starts programs, the first time that a frame is asked
  /// for.
  [[nodiscard]] std::vector<std::string> frames(std::span<const std::string> stack);

  /// @return why, a line for each library whose functions could have had names.
  [[nodiscard]] std::vector<std::string> obstacles() const;

 private:
  struct Library {
    std::string build_id;  ///< hexadecimal; empty if it has none
    std::string path;
    std::optional<std::string> obstacle;  ///< why it is not read; "" if it is; none: not looked yet
  };
  struct Frame;

  void name(const std::vector<Frame>& frames);
  [[nodiscard]] std::optional<Frame> parse(std::string_view text) const;
  [[nodiscard]] std::string obstacle(const Library& library) const;

  uint64_t start_ns_;  ///< of the trace, in real time
  std::string addr2line_;
  std::map<std::string, Library, std::less<>> libraries_;
  std::map<std::string, std::vector<std::string>, std::less<>> known_;  ///< by recorded text
  std::set<std::string> unnamed_;  ///< libraries with frames that have no name
};

}  // namespace convtrace::tools
