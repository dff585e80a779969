// The only ways by which text gets into the report. Everything from a database is untrusted: it
// passes one of these.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace moetune::reports {

/// Text for element content and for quoted attribute values alike: & < > " ' become entities;
/// control characters and the marks that reorder text (U+200E..F, U+202A..E, U+2066..9) become
/// U+FFFD. Line feeds and tabs stay. Of absolute paths only the last part is left (local_paths.h).
std::string escape(std::string_view text);

/// The same, with an empty text shown as a dash.
std::string escape_or_dash(std::string_view text);

/// Whether a text is one line without any such character: a terminal does what it shows.
bool is_plain_line(std::string_view text);

/// A `<script type="application/json">` element. Pure ASCII, without < > &, so that no value can
/// end the script or open a comment; its texts hold no absolute paths. `id` must be a literal of
/// ours.
std::string json_element(std::string_view id, nlohmann::json data);

/// An id or class made of what may be anything: letters, digits and dashes stay, the rest becomes
/// dashes.
std::string identifier(std::string_view text);

}  // namespace moetune::reports
