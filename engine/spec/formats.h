// The files that people write, by name: their JSON Schemas and the page that documents them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/spec/names.h"

namespace moetune::spec {

enum class FileKind : uint8_t { sweep, engine_sweep, trial, hardware, model };
template <>
struct NameTable<FileKind> {
  static constexpr Named<FileKind> kRows[] = {{FileKind::sweep, "sweep"},
                                              {FileKind::engine_sweep, "engine-sweep"},
                                              {FileKind::trial, "trial"},
                                              {FileKind::hardware, "hardware"},
                                              {FileKind::model, "model"}};
};

/// A JSON Schema (draft 2020-12), as editors take it.
nlohmann::json json_schema(FileKind kind);

/// The tables of these files as markdown, a section each.
std::string formats_markdown();

}  // namespace moetune::spec
