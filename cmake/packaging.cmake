# Debian packages: `cpack -G DEB` in the build folder. One package per component of install.cmake.
include_guard(GLOBAL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tapas)
set(CPACK_PACKAGE_VENDOR TAPAS)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
# A staging root instead of a staging prefix, so that units and configuration get their real paths.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL tapas-daemon tapas-agent tapas-tools)
set(CPACK_DEB_COMPONENT_INSTALL ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "TAPAS maintainers <maintainers@tapas.invalid>")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_COMPONENT_TAPAS-DAEMON_DESCRIPTION
    "daemon that keeps training jobs at their best plan
Receives step records from the agents of a cluster, names the slow node,
re-optimises the affected pipeline stages and switches the running job.")
set(CPACK_COMPONENT_TAPAS-AGENT_DESCRIPTION
    "node agent and rank library of TAPAS
Forwards the step records of the training ranks on this node to the daemon
and carries its switch orders to them. With the C library for ranks.")
set(CPACK_COMPONENT_TAPAS-TOOLS_DESCRIPTION
    "operator's tool, emulated cluster and documentation of TAPAS
tapasctl finds plans offline, watches and replans jobs; tapas-twin emulates
a cluster over the real wire protocol.")

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} COMPONENT)
  set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_NAME ${component})
endforeach()
# The tools make the keys, and bring the user and the folders that both services need.
foreach(service IN ITEMS tapasd:tapas-daemon:tapasd.json tapas-agent:tapas-agent:agent.json)
  string(REPLACE : ";" service ${service})
  list(GET service 0 UNIT)
  list(GET service 1 component)
  list(GET service 2 CONFIG)
  string(TOUPPER ${component} COMPONENT)
  set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_DEPENDS
      "tapas-tools (= ${PROJECT_VERSION}), systemd")
  set(control "${PROJECT_BINARY_DIR}/packaging/${component}")
  foreach(script IN ITEMS postinst prerm postrm)
    configure_file(systemd/debian/service.${script}.in ${control}/${script} @ONLY
                   FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                    WORLD_READ WORLD_EXECUTE)
  endforeach()
  file(WRITE ${control}/conffiles "/etc/tapas/${CONFIG}\n")
  set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_CONTROL_EXTRA
      "${control}/postinst;${control}/prerm;${control}/postrm;${control}/conffiles")
endforeach()
set(CPACK_DEBIAN_TAPAS-TOOLS_PACKAGE_DEPENDS systemd)
set(CPACK_DEBIAN_TAPAS-TOOLS_PACKAGE_CONTROL_EXTRA
    "${PROJECT_SOURCE_DIR}/systemd/debian/tools/postinst")

include(CPack)
