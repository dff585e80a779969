// Schemas and the page of formats, from the field tables that read the files.
#include "engine/spec/formats.h"

#include <fmt/format.h>

#include "engine/spec/fields.h"
#include "engine/spec/sweep_spec.h"
#include "engine/spec/trial_fields.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

struct FileRow {
  FileKind kind;
  std::vector<FieldPage> (*pages)();
  /// Another program's file: it has keys that are not read here, and null for what is not set.
  bool is_foreign;
  const char* what;
};
constexpr FileRow kFiles[] = {
    {FileKind::sweep, &sweep_pages, false,
     "What `moetune sweep` searches. Relative paths start from the file's folder."},
    {FileKind::engine_sweep, &engine_sweep_pages, false,
     "A sweep file with `engine`: what `moetune sweep` then searches are settings of that engine."},
    {FileKind::trial, &trial_pages, false,
     "One training run, as `moetune trial` and `moetune-rank` take it. A sweep file is one, too: "
     "its starting configuration."},
    {FileKind::hardware, &hardware_pages, false, "A cluster, real or emulated."},
    {FileKind::model, &model_pages, true,
     "A Hugging Face config.json as it is. Keys that are not listed are ignored."},
};

const FileRow& row_of(FileKind kind) { return kFiles[static_cast<size_t>(kind)]; }

}  // namespace

json json_schema(FileKind kind) {
  const FileRow& row = row_of(kind);
  json schema = schema_of(row.pages());
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = fmt::format("moetune {} file", name_of(kind));
  schema["properties"]["$schema"] = {{"type", "string"}};
  if (!row.is_foreign) return schema;
  schema.erase("additionalProperties");
  for (json& property : schema["properties"]) {
    property.erase("additionalProperties");
    property = {{"anyOf", {property, {{"type", "null"}}}}};
  }
  return schema;
}

std::string formats_markdown() {
  std::string text =
      "# Formats\n\n"
      "Every key of the files that moetune reads. Written by `moetune schema --markdown` from the "
      "tables that read them;\na test compares this page with the tables. `moetune schema sweep` "
      "prints the same as a JSON Schema, for editors.\n\n"
      "All of these files may have comments, `//` and `/* */`. A number with a unit in its row may "
      "also be a text:\n`\"80GB\"`, `\"64GiB\"`, `\"450GB/s\"`, `\"400Gb/s\"` (bits), "
      "`\"989TF\"`, `\"25us\"`, `\"10min\"`, `\"700W\"`.\nFigures that no machine has are refused, "
      "with "
      "what was likely meant. An empty default says that the key may be left out.\n";
  for (const FileRow& row : kFiles) {
    std::string title(name_of(row.kind));
    title.front() = static_cast<char>(title.front() - 'a' + 'A');
    text += fmt::format("\n## {} file\n\n{}\n\n{}", title, row.what, markdown_of(row.pages()));
  }
  return text;
}

}  // namespace moetune::spec
