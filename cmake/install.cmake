# What `cmake --install` puts where.  Component programs: the programs with their manual pages and completion, which install
# themselves in tools/CMakeLists.txt, the configs, the licence.  Component development: libflim, its headers, flimcv.pc, the CMake
# package.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/flimcv)
install(TARGETS flim EXPORT flimcvTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT programs NAMELINK_COMPONENT development)
install(DIRECTORY include/flim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h")
install(EXPORT flimcvTargets NAMESPACE flim:: DESTINATION ${package_folder} COMPONENT development)

if(NOT DEFINED BUILD_SHARED_LIBS)
  set(BUILD_SHARED_LIBS OFF)
endif()
set(FLIM_HAVE_DEFLATE ${DEFLATE_FOUND})
if(NOT FLIM_HAVE_DEFLATE)
  set(FLIM_HAVE_DEFLATE OFF)
endif()
set(FLIM_FIND_FORMATS "")
foreach(format ${FLIM_FORMATS})
  string(APPEND FLIM_FIND_FORMATS "  pkg_check_modules(${format} REQUIRED QUIET IMPORTED_TARGET ${FLIM_MODULE_${format}})\n")
endforeach()
configure_package_config_file(cmake/flimcvConfig.cmake.in ${PROJECT_BINARY_DIR}/flimcvConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/flimcvConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/flimcvConfig.cmake ${PROJECT_BINARY_DIR}/flimcvConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT development)

# pkg-config: a static libflim asks its users to link all that it needs, a shared one knows it by itself.
set(modules yaml-0.1 jansson zlib libcrypto)
if(FLIM_HAVE_DEFLATE)
  list(APPEND modules libdeflate)
endif()
foreach(format ${FLIM_FORMATS})
  list(APPEND modules ${FLIM_MODULE_${format}})
endforeach()
set(FLIM_PC_MODULES ${modules}) # for cmake/debian.cmake
list(JOIN modules " " modules)
set(libraries ${HDF5_C_LIBRARIES})
if(FLIM_HAVE_CPU)
  list(APPEND libraries ${DNNL_LIBRARY} ${OpenMP_C_FLAGS})
endif()
if(FLIM_HAVE_CUDA)
  list(APPEND libraries ${CUDA_cudart_static_LIBRARY} -lstdc++ -ldl -lrt)
endif()
list(APPEND libraries -pthread -lm)
list(JOIN libraries " " libraries)
if(BUILD_SHARED_LIBS)
  set(FLIM_PC_REQUIRES "Requires.private: ${modules}")
  set(FLIM_PC_LIBS "\nLibs.private: ${libraries}")
else()
  set(FLIM_PC_REQUIRES "Requires: ${modules}")
  set(FLIM_PC_LIBS "${libraries}")
endif()
file(RELATIVE_PATH FLIM_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /) # so that the prefix may move
configure_file(cmake/flimcv.pc.in ${PROJECT_BINARY_DIR}/flimcv.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/flimcv.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/flimcv COMPONENT programs FILES_MATCHING PATTERN "*.json" PATTERN "*.yaml" PATTERN "*.sbatch")
install(FILES CHANGELOG.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/flimcv COMPONENT programs)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/flimcv RENAME copyright COMPONENT programs) # Debian's name for it
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libflim-dev RENAME copyright COMPONENT development)
