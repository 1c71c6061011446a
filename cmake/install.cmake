# What `cmake --install` puts where, by package (component). Included last, when all targets exist.
include_guard(GLOBAL)

set(CMAKE_INSTALL_UNITDIR lib/systemd/system)

install(TARGETS tapasd RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tapas-daemon)

install(TARGETS tapas-agent RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tapas-agent)
# A full path, as a relative one would be looked up from here.
set_target_properties(tapas_rank PROPERTIES PUBLIC_HEADER
                                            ${PROJECT_SOURCE_DIR}/agent/rank/tapas_rank.h)
install(
  TARGETS tapas_rank
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tapas-agent
  PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT tapas-agent)
install(TARGETS nccl_profiler LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tapas-agent)
install(FILES agent/rank/example_rank.c DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples
        COMPONENT tapas-agent)

install(TARGETS tapasctl tapas-twin RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        COMPONENT tapas-tools)
install(DIRECTORY config/examples/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples
        COMPONENT tapas-tools)
install(DIRECTORY config/catalogue/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tapas/catalogue
        COMPONENT tapas-tools)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tapas-tools)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR}
        COMPONENT tapas-tools)
install(FILES systemd/tapas.sysusers.conf DESTINATION lib/sysusers.d RENAME tapas.conf
        COMPONENT tapas-tools)
install(FILES systemd/tapas.tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME tapas.conf
        COMPONENT tapas-tools)

# A unit names programs and files by full path, and the prefix is known only now: at install time.
function(tapas_install_service unit config component)
  install(
    CODE "
      set(unit ${unit})
      set(unit_template \"${PROJECT_SOURCE_DIR}/systemd/${unit}.in\")
      set(unit_dir \"${CMAKE_INSTALL_UNITDIR}\")
      set(config_example \"${PROJECT_SOURCE_DIR}/config/examples/${config}\")
      set(staging \"${PROJECT_BINARY_DIR}/units\")
      set(bin_dir \"${CMAKE_INSTALL_BINDIR}\")
      set(doc_dir \"${CMAKE_INSTALL_DOCDIR}\")
      include(\"${PROJECT_SOURCE_DIR}/cmake/install_service.cmake\")"
    COMPONENT ${component})
endfunction()
tapas_install_service(tapasd.service tapasd.json tapas-daemon)
tapas_install_service(tapas-agent.service agent.json tapas-agent)
