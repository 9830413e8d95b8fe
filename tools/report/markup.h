#pragma once
/// @file markup.h
/// The pieces that all parts of the HTML page are made of.
///
/// Texts of report_parts.h are escaped for a terminal, and only markup is escaped here
/// (quote_markup); texts of a trace go through escape_markup.

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/escape.h"
#include "tools/common/text.h"

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
  /// The same of a report of one run, and the begin of its header. @param good  nothing was found.
  /// @param paths  its traces. @param incomplete  escaped lines about those not read to their end.
  void begin_report(std::string_view program, const std::string& title, std::string_view style,
                    bool good, const std::vector<std::string>& paths,
                    const std::vector<std::string>& incomplete) {
    begin_page(program, title, style, false);
    out_ << "<header>\n<h1 class=\"" << (good ? "same" : "diverged") << "\">" << title << "</h1>\n";
    for (const std::string& path : paths)
      out_ << "<p class=\"files\">" << tools::escape_markup(path) << "</p>\n";
    for (const std::string& why : incomplete)
      out_ << "<p class=\"warning\">Incomplete: " << tools::quote_markup(why) << "</p>\n";
  }
  /// Begins a section about something that was found. @param title, @param place  quoted.
  void begin_found(std::string_view level, const std::string& title, const std::string& place,
                   const std::string& text, uint64_t times,
                   const std::vector<std::string>& evidence) {
    out_ << "<section>\n<h3 class=\"" << level << "\">" << title << "</h3>\n<p><code>" << place
         << "</code></p>\n";
    paragraph("<b>" + tools::escape_markup(text) + "</b>" +
              (times > 1 ? " (" + tools::count_text(times) + " times)" : ""));
    out_ << "<ul>\n";
    for (const std::string& line : evidence) item(tools::escape_markup(line));
    out_ << "</ul>\n";
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
