/* SPDX-License-Identifier: Apache-2.0 */
/* HELLO's interfaces as a JSON field; internal to lib/protocol. */
#ifndef HVD_PROTOCOL_CONTROL_ROUTE_JSON_H
#define HVD_PROTOCOL_CONTROL_ROUTE_JSON_H

#include "lib/protocol/control/control_json.h"
#include "lib/protocol/control/control_route.h"

json_t *control_json_interfaces(const struct control_interfaces *list);
void control_take_interfaces(struct control_fields *f, const char *name,
                             struct control_interfaces *list);

#endif
