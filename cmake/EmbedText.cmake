# Text files as string literals of the program: what a program needs at run time travels inside it.
#
# moetune_embed_text(TARGET SYMBOL FILE NAMESPACE) adds a generated source to TARGET that defines
# `extern const std::string_view SYMBOL` in NAMESPACE, holding the text of FILE. Declare it by including
# "embedded/<SYMBOL>.h". The text must not contain NUL bytes or `)moetune_embedded"`.
set(MOETUNE_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(moetune_embed_text target symbol file namespace)
  get_filename_component(input ${file} ABSOLUTE)
  set(output ${CMAKE_BINARY_DIR}/generated/embedded/${symbol})
  add_custom_command(
    OUTPUT ${output}.cpp
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DSYMBOL=${symbol} -DNAMESPACE=${namespace}
            -P ${MOETUNE_EMBED_SCRIPT}
    DEPENDS ${input} ${MOETUNE_EMBED_SCRIPT}
    COMMENT "Embedding ${file}"
    VERBATIM)
  target_sources(${target} PRIVATE ${output}.cpp)
  # Only a build has it: what is merely looked at, as by make tidy, must not include it.
  set_source_files_properties(${output}.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # The header does not depend on the text: a source can be looked at where nothing has been built.
  file(CONFIGURE OUTPUT ${output}.h @ONLY CONTENT
"// Generated for ${file}.
#pragma once

#include <string_view>

namespace ${namespace} {
extern const std::string_view ${symbol};
}
")
endfunction()

# The part that runs at build time (cmake -P).
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  file(READ ${INPUT} text)
  string(FIND "${text}" ")moetune_embedded\"" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "${INPUT} contains the end mark of embedded texts")
  endif()
  file(WRITE ${OUTPUT}.cpp "// Generated from ${INPUT}.
#include \"embedded/${SYMBOL}.h\"

namespace ${NAMESPACE} {
namespace {
constexpr char ${SYMBOL}Text[] = R\"moetune_embedded(${text})moetune_embedded\";
}
const std::string_view ${SYMBOL}(${SYMBOL}Text, sizeof(${SYMBOL}Text) - 1);
}
")
endif()
