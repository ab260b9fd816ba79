# `cpack -G DEB`: flimcv (the programs) and libflim-dev (the library); packaging/deb.sh configures the build for it.
set(FLIM_MAINTAINER "The flimcv authors <flimcv@localhost>" CACHE STRING "Maintainer that a Debian package names")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME flimcv)
set(CPACK_PACKAGE_CONTACT "${FLIM_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL programs development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_PROGRAMS_DESCRIPTION
    "trains 3D CNNs on fluorescence lifetime imaging volumes
Cross-validated training on photon counts of single cells, whole donors kept apart, on NVIDIA GPUs or CPUs; prediction, reports
with intervals and baselines, import of instrument files, a memory planner.")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME flimcv)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_RECOMMENDS gnuplot-nox)

# libflim-dev depends on what flimcv.pc names (modules and libraries of cmake/install.cmake), as the packages of this machine
# that hold it.
set(needs "")
find_program(DPKG dpkg)
if(DPKG)
  set(files ${HDF5_C_LIBRARIES} ${DNNL_LIBRARY})
  foreach(module ${FLIM_PC_MODULES})
    execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --variable=pcfiledir ${module} OUTPUT_VARIABLE folder
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND files ${folder}/${module}.pc)
  endforeach()
  foreach(file ${files})
    execute_process(COMMAND ${DPKG} -S ${file} OUTPUT_VARIABLE owner ERROR_QUIET)
    if(owner MATCHES "^([a-z0-9.+-]+)")
      list(APPEND needs ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES needs)
endif()
list(JOIN needs ", " needs)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
    "library of flimcv, for programs of one's own
libflim with its headers, a pkg-config file and a CMake package.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libflim-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${needs}")
include(CPack)
