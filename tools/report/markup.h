#pragma once
/// @file markup.h
/// The pieces that all parts of the HTML page are made of.
///
/// Texts of report_parts.h are escaped for a terminal, and only markup is escaped here
/// (quote_markup); texts of a trace go through escape_markup.

#include <ostream>
#include <string>
#include <string_view>

#include "tools/common/escape.h"

namespace convtrace::diff {

/// The style of all pages, from report.css.
extern const char* const kPageStyle;

class Markup {
 public:
  explicit Markup(std::ostream& out) : out_(out) {}

  template <typename Text>
  Markup& operator<<(const Text& text) {
    out_ << text;
    return *this;
  }

  /// Writes the page down to the begin of its body. @param title  quoted. @param style  of the
  /// page. @param scripts  whether the page has scripts of its own.
  void begin_page(std::string_view program, std::string_view title, std::string_view style,
                  bool scripts) {
    out_ << "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
            "style-src 'unsafe-inline'"
         << (scripts ? "; script-src 'unsafe-inline'" : "") << "\">\n<title>" << program << ": "
         << title << "</title><style>" << style << "</style></head><body>\n";
  }
  /// @param html  nothing is written if it is empty.
  void paragraph(const std::string& html) { element("p", html); }
  void item(const std::string& html) { element("li", html); }
  void heading(std::string_view text, std::string_view id) {
    out_ << "<h2 id=\"" << id << "\">" << text << "</h2>\n";
  }
  /// Begins a table that scrolls sideways where it is too wide. @param header  cells of the first
  /// row.
  void begin_table(std::string_view name, std::initializer_list<std::string_view> header) {
    out_ << "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" << name
         << "\"><table><tr>";
    for (const std::string_view cell : header) {
      const bool corner = cell.empty();
      out_ << (corner ? "<td>" : "<th scope=\"col\">") << cell << (corner ? "</td>" : "</th>");
    }
    out_ << "</tr>\n";
  }
  void end_table() { out_ << "</table></div>\n"; }

 private:
  void element(std::string_view name, const std::string& html) {
    if (!html.empty()) out_ << '<' << name << '>' << html << "</" << name << ">\n";
  }

  std::ostream& out_;
};

}  // namespace convtrace::diff
