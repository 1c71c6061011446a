#include "agent/probe/interface.h"

#include "agent/health/formats.h"
#include "agent/health/sys_tree.h"
#include "agent/probe/ip.h"

#include <ifaddrs.h>
#include <sys/socket.h>

#include <memory>

namespace tapas::agent::probe {

namespace {

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

std::string name_of(const Ip& ip) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return "";
  }
  const std::unique_ptr<ifaddrs, FreeInterfaces> owner(list);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (ip_of(one->ifa_addr) == ip) {
      const std::string name = one->ifa_name;
      return name.substr(0, name.find(':'));  // "eth0:1" is a second address of eth0.
    }
  }
  return "";
}

}  // namespace

Interface interface_of(int socket) {
  Interface found;
  sockaddr_storage local = {};
  socklen_t size = sizeof(local);
  auto* any = reinterpret_cast<sockaddr*>(&local);  // What the call takes for every family.
  if (::getsockname(socket, any, &size) != 0) {
    return found;
  }
  if (const auto ip = ip_of(any)) {
    found.name = name_of(*ip);
  }
  const auto sys = health::SysTree::open("/sys");
  if (!found.name.empty() && sys) {
    if (const auto text = sys->read("class/net/" + found.name + "/speed")) {
      if (const auto bits = health::parse_net_speed(*text); bits && *bits > 0) {
        found.bytes_per_s = *bits / 8;
      }
    }
  }
  return found;
}

}  // namespace tapas::agent::probe
