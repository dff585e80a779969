# What is installed, the share folder, and the Debian package. Nothing of it needs the sources at run time.
#
# The share folder holds what is found by name (engine/spec/library.cpp). In a build folder it is links to the sources,
# at the place beside the programs where an installed one is: programs look there only.
set(MOETUNE_ZSH_DIR share/zsh/site-functions CACHE STRING "Where zsh looks for completions, below the prefix")
set(MOETUNE_SHELVES models=engine/models hardware=sweeps/hardware sweeps=sweeps/configs data=sweeps/data calibration=sweeps/calibration)

# Libraries that are not where the system looks (NVIDIA's, from the user's cache) are found by the installed programs.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON CACHE BOOL "Installed programs know the folders of the libraries they use")
set_target_properties(moetune moetune-rank PROPERTIES
                      INSTALL_RPATH_USE_LINK_PATH ${CMAKE_INSTALL_RPATH_USE_LINK_PATH})

install(TARGETS moetune moetune-rank RUNTIME DESTINATION bin)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/moetune)
foreach(shelf IN LISTS MOETUNE_SHELVES)
  string(REGEX MATCH "^(.*)=(.*)$" matched ${shelf})
  set(link ${CMAKE_BINARY_DIR}/share/moetune/${CMAKE_MATCH_1})
  set(source ${CMAKE_SOURCE_DIR}/${CMAKE_MATCH_2})
  file(CREATE_LINK ${source} ${link} SYMBOLIC)
  install(DIRECTORY ${source}/ DESTINATION share/moetune/${CMAKE_MATCH_1}
          FILES_MATCHING PATTERN "*.json" PATTERN "*.txt")
endforeach()

# Manual pages and completion are printed by the programs from their tables of options, when they are installed.
set(PRINTED ${CMAKE_BINARY_DIR}/printed)
find_program(GZIP_PROGRAM gzip)
set(PAGE_ENDING "$<IF:$<BOOL:${GZIP_PROGRAM}>,.gz,>")
install(CODE "
  set(PROGRAMS \"$<TARGET_FILE_DIR:moetune>\")
  set(OUTPUT \"${PRINTED}\")
  set(GZIP \"$<$<BOOL:${GZIP_PROGRAM}>:${GZIP_PROGRAM}>\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/print_manual.cmake)
install(FILES ${PRINTED}/moetune.1${PAGE_ENDING} ${PRINTED}/moetune-rank.1${PAGE_ENDING} DESTINATION share/man/man1)
install(FILES ${PRINTED}/moetune.bash DESTINATION share/bash-completion/completions RENAME moetune)
install(FILES ${PRINTED}/_moetune DESTINATION ${MOETUNE_ZSH_DIR})
install(FILES ${CMAKE_CURRENT_LIST_DIR}/package/copyright DESTINATION share/doc/moetune)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME moetune)
set(CPACK_PACKAGE_VENDOR "moetune developers")
set(CPACK_PACKAGE_CONTACT "moetune developers <moetune@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "profiling-driven autotuner for Mixture-of-Experts training")
set(CPACK_PACKAGE_DESCRIPTION
"moetune searches the parallel layout and the other choices of a
Mixture-of-Experts training run: it runs trials of its own training engine,
profiles them, and changes what binds them, one choice at a time. On a machine
without a GPU it emulates a cluster in virtual time.
.
This package is built without the CUDA backend.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS git)
include(CPack)
