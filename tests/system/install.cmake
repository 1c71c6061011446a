add_test(NAME Install.PutsEverythingInItsPlace
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install_test.sh ${PROJECT_SOURCE_DIR}
                 ${PROJECT_BINARY_DIR})
set_tests_properties(Install.PutsEverythingInItsPlace PROPERTIES LABELS system TIMEOUT 120
                                                                 SKIP_RETURN_CODE 77)

add_test(NAME Tapasctl.KeepsItsExitCodes
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/ctl_test.sh ${PROJECT_SOURCE_DIR}
                 ${TAPAS_PROGRAM_DIR})
set_tests_properties(Tapasctl.KeepsItsExitCodes PROPERTIES LABELS system TIMEOUT 120)
