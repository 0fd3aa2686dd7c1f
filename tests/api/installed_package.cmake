# Installs the build, builds examples/embed against what was installed, and compares what the programs print with what
# `lantern generate` does.
#   cmake -DSOURCE_DIR=... -DBUILD_DIR=... -DWORK_DIR=... -P installed_package.cmake
function(run name)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${name} ended with ${code}\n${output}\n${errors}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${WORK_DIR}/installed)
run("install" ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
run("configure" ${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples/embed -B ${WORK_DIR}/build -DCMAKE_PREFIX_PATH=${prefix}
  -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror ${FLAGS}"
  "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror ${FLAGS}")
run("build" ${CMAKE_COMMAND} --build ${WORK_DIR}/build)

set(model ${SOURCE_DIR}/models/tiny)
set(question "Question: Tom has 12 apples. He buys 3 bags with 5 apples each. How many apples does he have now?")
set(other "Question: Ann has 7 pens and finds 9 more. How many pens does she have now?")
file(GLOB program ${prefix}/bin/lantern)
foreach(prompt question other)
  run("generate" ${program} generate --model ${model} --prompt "${${prompt}}" --max-tokens 64 --temperature 0 --quiet)
  string(REGEX REPLACE "\n$" "" said_${prompt} "${output}")
  if(said_${prompt} STREQUAL "")
    message(FATAL_ERROR "lantern generate said nothing")
  endif()
endforeach()

run("embed_c" ${WORK_DIR}/build/embed_c ${model} "${question}")
string(REGEX REPLACE "\n$" "" said "${output}")
if(NOT said STREQUAL said_question)
  message(FATAL_ERROR "embed_c said\n${said}\nbut lantern generate\n${said_question}")
endif()

run("embed_cc" ${WORK_DIR}/build/embed_cc ${model} "${question}" "${other}" "${question}")
string(REPLACE "\n" "\\n" line_question "${said_question}")
string(REPLACE "\n" "\\n" line_other "${said_other}")
if(NOT output STREQUAL "${line_question}\n${line_other}\n${line_question}\n")
  message(FATAL_ERROR "embed_cc said\n${output}\nbut lantern generate\n${line_question}\n${line_other}")
endif()
