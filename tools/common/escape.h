#pragma once
/// @file escape.h
/// Makes names from a trace harmless before a person or a program reads them.
///
/// Kernel, module and file names are untrusted: a trace may come from anywhere, and a terminal, an
/// HTML page, a spreadsheet or an XML reader acts on what it is shown.
///
/// Place:    every tool calls one of these for every text that came out of a trace.
/// Threads:  pure functions.

#include <string>
#include <string_view>
#include <vector>

namespace convtrace::tools {

/// For a terminal, a log or one line of any text.
///
/// Printable UTF-8 is not changed. Control characters (C0, DEL, C1), invalid UTF-8, line and
/// paragraph separators and bidirectional overrides (Trojan Source, CVE-2021-42574) become `\xNN`
/// or `\u{NNNN}`; a backslash becomes `\\`, so the result is unambiguous.
[[nodiscard]] std::string escape_text(std::string_view text);

/// The five characters that mean something in HTML and XML, in a text that is safe otherwise.
[[nodiscard]] std::string quote_markup(std::string_view safe_text);

/// escape_text, then quote_markup.
[[nodiscard]] std::string escape_markup(std::string_view text);

/// One CSV field (RFC 4180), always quoted. A text that a spreadsheet would take for a formula gets
/// a leading apostrophe.
[[nodiscard]] std::string escape_csv(std::string_view text);

/// One TOML basic string with its quotes; UTF-8 that is not valid is replaced by U+FFFD.
[[nodiscard]] std::string quote_toml(std::string_view text);

/// One word for a POSIX shell, quoted where necessary. Control characters are escaped as in
/// escape_text: the word is for a person to paste.
[[nodiscard]] std::string quote_shell(std::string_view text);
/// A command line of such words.
[[nodiscard]] std::string shell_line(const std::vector<std::string>& words);

}  // namespace convtrace::tools
