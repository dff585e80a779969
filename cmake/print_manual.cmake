# Prints manual pages and completion into the folder OUTPUT with the built programs in the folder PROGRAMS, and packs the
# pages with GZIP where it is not empty. Included by the install script.
file(MAKE_DIRECTORY ${OUTPUT})
function(print file)
  # With the names of this build, not of a share folder of the person who installs.
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=MOETUNE_SHARE ${ARGN}
                  OUTPUT_FILE ${OUTPUT}/${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
print(moetune.1 ${PROGRAMS}/moetune man)
print(moetune-rank.1 ${PROGRAMS}/moetune-rank --man)
print(moetune.bash ${PROGRAMS}/moetune completion bash)
print(_moetune ${PROGRAMS}/moetune completion zsh)
if(GZIP)
  execute_process(COMMAND ${GZIP} -9nf ${OUTPUT}/moetune.1 ${OUTPUT}/moetune-rank.1 COMMAND_ERROR_IS_FATAL ANY)
endif()
