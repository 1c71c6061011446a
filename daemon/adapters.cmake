# Everything of the daemon around its core: threads, sockets, files.
add_library(tapas_jobs STATIC jobs.cc)
target_link_libraries(tapas_jobs PUBLIC tapas_model PRIVATE tapas_model_io)

add_library(tapas_store STATIC store/database.cc store/journal.cc store/pid_file.cc store/rows.cc store/schema.cc
                               store/store.cc)
target_link_libraries(tapas_store PUBLIC tapas_core tapas_jobs PRIVATE tapas_log tapas_model_io
                                                                       SQLite::SQLite3)

add_library(tapas_net STATIC net/allow_list.cc net/connections.cc net/inbound.cc net/latency.cc net/net.cc net/outbound.cc net/zap.cc)
target_link_libraries(tapas_net PUBLIC tapas_core tapas_jobs tapas_wire
                                PRIVATE tapas_config tapas_log tapas_model_io cppzmq)

add_library(tapas_control STATIC control/api.cc control/format.cc control/http.cc control/listener.cc control/metrics.cc
                                 control/peer.cc control/server.cc)
target_link_libraries(tapas_control PUBLIC tapas_core tapas_jobs tapas_json tapas_store Boost::headers
                                    PRIVATE tapas_log tapas_model_io prometheus-cpp::core)

add_library(tapas_recording STATIC recording/format.cc recording/recorder.cc recording/replay.cc)
target_link_libraries(tapas_recording PUBLIC tapas_core tapas_jobs tapas_json PRIVATE tapas_log tapas_model_io)

add_executable(tapasd dispatch.cc main.cc solver_thread.cc supervision.cc)
target_link_libraries(tapasd PRIVATE tapas_config tapas_control tapas_core tapas_log tapas_net
                                     tapas_recording tapas_solver tapas_store CLI11::CLI11 PkgConfig::systemd)
