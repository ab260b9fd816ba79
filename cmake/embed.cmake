# Turns the text files of a folder into one C file, so that the library carries them:
#     cmake -DFOLDER=templates -DOUT=file.c -DNAME=symbol -DHEADER=declares/symbol.h -P embed.cmake
# writes the array NAME of flim_template, one row per file, and its length NAME_n.
file(GLOB files ${FOLDER}/*)
set(arrays "")
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER ${name} symbol)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "static const unsigned char ${symbol}[] = {\n${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", ${symbol}},\n")
endforeach()
file(WRITE ${OUT} "/* Written by cmake/embed.cmake. */\n#include \"${HEADER}\"\n\n${arrays}\n"
                  "const flim_template ${NAME}[] = {\n${rows}};\nconst size_t ${NAME}_n = sizeof ${NAME} / sizeof ${NAME}[0];\n")
