# Runs at install time: writes a unit for the prefix that is being installed into, and the
# configuration it names unless the operator has one already.
set(TAPAS_BIN_DIR "${CMAKE_INSTALL_PREFIX}/${bin_dir}")
set(TAPAS_DOC_DIR "${CMAKE_INSTALL_PREFIX}/${doc_dir}")
if(CMAKE_INSTALL_PREFIX MATCHES "^(/usr|/usr/local)/?$")
  set(TAPAS_CONFIG_DIR /etc/tapas)
else()
  set(TAPAS_CONFIG_DIR "${CMAKE_INSTALL_PREFIX}/etc/tapas")
endif()

configure_file("${unit_template}" "${staging}/${unit}" @ONLY)
file(INSTALL "${staging}/${unit}" DESTINATION "${CMAKE_INSTALL_PREFIX}/${unit_dir}")

cmake_path(GET config_example FILENAME config_name)
if(EXISTS "$ENV{DESTDIR}${TAPAS_CONFIG_DIR}/${config_name}")
  message(STATUS "Kept: $ENV{DESTDIR}${TAPAS_CONFIG_DIR}/${config_name}")
else()
  file(INSTALL "${config_example}" DESTINATION "${TAPAS_CONFIG_DIR}")
endif()
