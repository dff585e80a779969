# Installs what was built into a folder of its own and tries it from there as another machine would: a trial by name,
# scripts and pages that are what the programs print, and no path of the sources or the build folder in what is looked
# up at run time. Run as: cmake -DBUILD=... -DSOURCE=... -DWORK=... -P install_test.cmake
cmake_minimum_required(VERSION 3.25)

function(check condition problem_text)
  cmake_language(EVAL CODE "if(NOT (${condition}))\n message(SEND_ERROR [==[${problem_text}]==])\n endif()")
endfunction()

# Runs a command without the environment of who started the test; sets OUT, ERR and CODE.
macro(run)
  execute_process(COMMAND env -i PATH=/usr/bin:/bin HOME=${WORK} ${ARGN}
                  WORKING_DIRECTORY ${WORK}/elsewhere
                  OUTPUT_VARIABLE OUT ERROR_VARIABLE ERR RESULT_VARIABLE CODE)
endmacro()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/elsewhere)
set(PREFIX ${WORK}/prefix)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
set(MOETUNE ${PREFIX}/bin/moetune)

# Links would lead back to the sources.
file(GLOB_RECURSE installed RELATIVE ${PREFIX} ${PREFIX}/*)
foreach(file IN LISTS installed)
  if(IS_SYMLINK ${PREFIX}/${file})
    message(SEND_ERROR "${file} is a link")
  endif()
endforeach()
foreach(shelf IN ITEMS models=engine/models hardware=sweeps/hardware sweeps=sweeps/configs data=sweeps/data
        calibration=sweeps/calibration)
  string(REPLACE "=" ";" pair ${shelf})
  list(GET pair 0 name)
  list(GET pair 1 folder)
  file(GLOB sources RELATIVE ${SOURCE}/${folder} ${SOURCE}/${folder}/*.json ${SOURCE}/${folder}/*.txt)
  file(GLOB files RELATIVE ${PREFIX}/share/moetune/${name} ${PREFIX}/share/moetune/${name}/*)
  check("sources AND sources STREQUAL files" "share/moetune/${name} holds '${files}', not '${sources}'")
endforeach()

# The programs name no file of the sources but those of their own messages (engine/x.cpp:12), which nobody opens.
foreach(program moetune moetune-rank)
  file(STRINGS ${PREFIX}/bin/${program} strings REGEX "${SOURCE}")
  list(FILTER strings EXCLUDE REGEX "${SOURCE}/[a-z_/]+\\.(cpp|h|cuh?)$")
  check("NOT strings" "bin/${program} knows '${strings}'")
endforeach()

# A tiny sweep of names only, standing anywhere, its trial run by the program beside.
file(READ ${PREFIX}/share/moetune/sweeps/quickstart.json sweep)
foreach(change "num_steps|6" "training;global_batch_size|8" "training;seq_length|16")
  string(REPLACE "|" ";" change_parts "${change}")
  list(POP_BACK change_parts value)
  string(JSON sweep SET "${sweep}" ${change_parts} ${value})
endforeach()
file(WRITE ${WORK}/elsewhere/tiny.json "${sweep}")
run(${MOETUNE} trial tiny.json --quiet --format json --set micro_batch_size=1 --set expert_model_parallel_size=8
    --set use_distributed_optimizer=true)
string(JSON status ERROR_VARIABLE problem GET "${OUT}" status)
check("CODE EQUAL 0 AND status STREQUAL ok" "a trial by names is '${status}' and ends with ${CODE}: ${ERR}")
string(JSON data ERROR_VARIABLE problem GET "${OUT}" spec data_path)
check("data STREQUAL \"${PREFIX}/share/moetune/data/quickstart.txt\"" "its text is ${data}")
file(GLOB names RELATIVE ${PREFIX}/share/moetune/sweeps ${PREFIX}/share/moetune/sweeps/*.json)
foreach(name IN LISTS names)
  string(REPLACE ".json" "" name ${name})
  run(${MOETUNE} trial ${name} --print-spec)
  check("CODE EQUAL 0" "the installed sweep ${name} ends with ${CODE}: ${ERR}")
endforeach()

# Pages and scripts are whole; what stands in them is tested where they are written (tests/sweeps/completion_test.cpp).
foreach(page moetune moetune-rank)
  file(GLOB found ${PREFIX}/share/man/man1/${page}.1 ${PREFIX}/share/man/man1/${page}.1.gz)
  check("found" "there is no manual page of ${page}")
  if(found MATCHES "gz$")
    execute_process(COMMAND gzip -dc ${found} OUTPUT_VARIABLE text)
  else()
    file(READ ${found} text)
  endif()
  check("text MATCHES [[^.TH .MOETUNE]]" "${found} is no manual page")
endforeach()
execute_process(COMMAND bash -n ${PREFIX}/share/bash-completion/completions/moetune RESULT_VARIABLE CODE ERROR_VARIABLE ERR)
check("CODE EQUAL 0" "bash does not take its completion: ${ERR}")
file(GLOB_RECURSE zsh ${PREFIX}/share/zsh/_moetune)
check("zsh" "there is no completion for zsh")
find_program(ZSH zsh)
if(ZSH)
  execute_process(COMMAND ${ZSH} -n ${zsh} RESULT_VARIABLE CODE ERROR_VARIABLE ERR)
  check("CODE EQUAL 0" "zsh does not take its completion: ${ERR}")
endif()
run(${PREFIX}/bin/moetune-rank -V)
check("OUT MATCHES \"^moetune-rank [0-9]\"" "moetune-rank -V says '${OUT}${ERR}'")
file(REMOVE_RECURSE ${WORK})
